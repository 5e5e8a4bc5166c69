#include "kernels/attention_places.h"

#include "base/error.h"

namespace adjoint {

Rows rows_of(const Strides& strides, void* data) {
  CHECK(strides.size() == 3 && strides[2] == 1, "rows of attention have unit stride");
  return {data, strides[0], strides[1]};
}

std::array<Rows, 3> rows_of(const AttentionOperands& operands, std::span<const Strides> strides,
                            std::span<void* const> pointers) {
  const AttentionShape& shape = operands.shape;
  if (!operands.packed) {
    return {rows_of(strides[0], pointers[0]), rows_of(strides[1], pointers[1]),
            rows_of(strides[2], pointers[2])};
  }
  const int64_t heads = shape.kv_heads * shape.group;
  const int64_t element = size_of(shape.dtype).count;
  const auto at = [&](int64_t first_head) {
    return rows_of(strides[0], static_cast<char*>(pointers[0]) + first_head * shape.size * element);
  };
  return {at(0), at(heads), at(heads + shape.kv_heads)};
}

}  // namespace adjoint

#include "ops/movement.h"

#include <cstring>

#include "device/parallel.h"

namespace adjoint {

Launch prepare_copy(const Type& from_type, const Strides& from_strides, const void* from,
                    const Type& to_type, const Strides& to_strides, void* to) {
  const int64_t size = size_of(from_type.dtype).count, count = from_type.num_elements();
  const auto offset = [](const Type& type, const Strides& strides, int64_t k) {
    int64_t at = 0;
    for (int a = type.rank(); a-- > 0;) {
      at += k % type.dim(a) * strides[a];
      k /= type.dim(a);
    }
    return at;
  };
  return [=] {
    parallel_for(count, 16384, [&](int64_t begin, int64_t end, int) {
      for (int64_t k = begin; k < end; ++k) {
        std::memcpy(static_cast<char*>(to) + size * offset(to_type, to_strides, k),
                    static_cast<const char*>(from) + size * offset(from_type, from_strides, k),
                    size);
      }
    });
  };
}

std::string leading_letters(const Type& type, int untouched) {
  std::string letters;
  for (int i = 0; i + untouched < type.rank(); ++i) letters += static_cast<char>('a' + i);
  return letters;
}

Launch prepare_reshape(const KernelCall& call, const Pointers& at) {
  return prepare_copy(call.call.inputs[0], call.in_strides[0], at.in[0], call.outputs[0],
                      call.out_strides[0], at.out[0]);
}

}  // namespace adjoint

#include "kernels/attention_places.h"

#include <array>
#include <span>

#include "base/error.h"
#include "ops/cached_attention.h"

namespace adjoint {

namespace {

Rows rows_of(const Strides& strides, void* data) {
  CHECK(strides.size() == 3 && strides[2] == 1, "rows of attention have unit stride");
  return {data, strides[0], strides[1]};
}

// The rows of q, k and v inside `pointers`, which are laid out by `strides`.
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

// A Rows serves readers and writers, so it has no const.
std::vector<void*> operands_of(const Pointers& at) {
  std::vector<void*> in;
  for (const void* p : at.in) in.push_back(const_cast<void*>(p));
  return in;
}

AttentionExtras extras_of(const AttentionOperands& operands, const KernelCall& call,
                          const Pointers& at) {
  AttentionExtras extras;
  const auto strides = [&](int operand) -> const Strides& { return call.in_strides[operand]; };
  if (operands.bias >= 0) {
    extras.bias = at.in[operands.bias];
    extras.bias_head = strides(operands.bias)[0];
    extras.bias_step = strides(operands.bias)[1];
  }
  if (operands.sinks >= 0) {
    extras.sinks = at.in[operands.sinks];
    extras.sinks_step = strides(operands.sinks)[0];
  }
  if (operands.segments >= 0) {
    extras.segments = static_cast<const int32_t*>(at.in[operands.segments]);
    extras.segments_sample = strides(operands.segments)[0];
    extras.segments_step = strides(operands.segments)[1];
  }
  if (operands.counter >= 0) {
    extras.counter = static_cast<const int64_t*>(at.in[operands.counter]);
    extras.key = call.call.text("key");
  }
  return extras;
}

}  // namespace

AttentionPlaces attention_places(const KernelCall& call, const Pointers& at) {
  const AttentionOperands operands(call.call, call.call.inputs.size());
  const auto [q, k, v] = rows_of(operands, call.in_strides, operands_of(at));
  return {.shape = operands.shape,
          .q = q,
          .k = k,
          .v = v,
          .out = rows_of(call.out_strides[0], at.out[0]),
          .lse = at.out[1],
          .extras = extras_of(operands, call, at)};
}

AttentionPlaces cached_attention_places(const KernelCall& call, const Pointers& at) {
  const CachedAttentionOperands operands(call.call);
  // As attention has them, without the origin.
  KernelCall all = call;
  Pointers pointers = at;
  constexpr int kOrigin = CachedAttentionOperands::kOrigin;
  all.in_strides.erase(all.in_strides.begin() + kOrigin);
  pointers.in.erase(pointers.in.begin() + kOrigin);
  const auto [q, k, v] = rows_of(operands.all, all.in_strides, operands_of(pointers));
  return {.shape = operands.all.shape,
          .q = q,
          .k = k,
          .v = v,
          .out = rows_of(call.out_strides[0], at.out[0]),
          .lse = nullptr,
          .extras = extras_of(operands.all, all, pointers),
          .queries = operands.queries,
          .origins = static_cast<const int32_t*>(at.in[kOrigin]),
          .origins_step = call.in_strides[kOrigin][0],
          .ring = operands.ring ? operands.all.shape.length : 0};
}

AttentionGradPlaces attention_grad_places(const KernelCall& call, const Pointers& at) {
  const size_t count = attention_operands(call.call);
  const AttentionOperands operands(call.call, count);
  const std::vector<void*> in = operands_of(at);
  const auto [q, k, v] = rows_of(operands, call.in_strides, in);
  const auto [dq, dk, dv] = rows_of(operands, call.out_strides, at.out);
  AttentionGradPlaces places = {.shape = operands.shape,
                                .q = q,
                                .k = k,
                                .v = v,
                                .out = rows_of(call.in_strides[count], in[count]),
                                .dout = rows_of(call.in_strides[count + 2], in[count + 2]),
                                .dq = dq,
                                .dk = dk,
                                .dv = dv,
                                .lse = in[count + 1],
                                .extras = extras_of(operands, call, at)};
  size_t next = operands.rows();
  if (operands.bias >= 0) {
    places.dbias = at.out[next];
    places.dbias_head = call.out_strides[next][0];
    places.dbias_step = call.out_strides[next++][1];
  }
  if (operands.sinks >= 0) {
    places.dsinks = at.out[next];
    places.dsinks_step = call.out_strides[next][0];
  }
  return places;
}

}  // namespace adjoint

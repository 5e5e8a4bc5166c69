// Zeros, and then the operand in its place.
#include <cstring>

#include "kernels/cpu/copy.h"
#include "ops/axes.h"

namespace adjoint {

namespace {

Launch copy(const KernelCall& call, const Pointers& at) {
  const Type out = call.outputs[0];
  const Strides strides = call.out_strides[0];
  const int64_t skip =
      call.call.integer("start") * strides[axis_attr(call.call, call.call.inputs[0].rank() - 1)];
  auto* to = static_cast<char*>(at.out[0]);
  const Launch move =
      prepare_copy(call.call.inputs[0], call.in_strides[0], at.in[0], call.call.inputs[0], strides,
                   to + skip * size_of(out.dtype).count);
  if (strides == dense_strides(out)) {
    return [move, to, bytes = out.bytes()] {
      std::memset(to, 0, bytes.count);
      move();
    };
  }
  static constexpr double kZero = 0;  // all bits, whatever the dtype
  const Launch clear =
      prepare_copy(out, Strides(strides.size(), 0), &kZero, out, strides, at.out[0]);
  return [clear, move] {
    clear();
    move();
  };
}

}  // namespace

extern const Kernel cpu_pad = {
    .op = "pad",
    .prepare = copy,
};

}  // namespace adjoint

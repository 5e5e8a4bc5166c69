// A copy: the tiers of a CPU are one memory.
#include <cstring>

#include "device/parallel.h"
#include "kernels/cpu/copy.h"

namespace adjoint {

namespace {

Launch copy(const KernelCall& k, const Pointers& at) {
  const Type& type = k.call.inputs[0];
  const Strides dense = dense_strides(type);
  // Of the first axis the strides say nothing.
  const bool alike = k.outputs[0].bytes() == type.bytes() && k.out_strides[0] == dense;
  if (k.in_strides[0] != dense || !alike) return prepare_reshape(k, at);
  const auto* from = static_cast<const char*>(at.in[0]);
  auto* to = static_cast<char*>(at.out[0]);
  return [=, bytes = type.bytes().count] {
    parallel_for(bytes, 1 << 16, [&](int64_t begin, int64_t end, int) {
      std::memcpy(to + begin, from + begin, end - begin);
    });
  };
}

}  // namespace

extern const Kernel cpu_move = {
    .op = "move",
    .prepare = copy,
};

}  // namespace adjoint

// A copy of the slice, where a view cannot say it.
#include "kernels/cpu/copy.h"
#include "ops/axes.h"

namespace adjoint {

namespace {

Launch copy(const KernelCall& call, const Pointers& at) {
  const int64_t skip = call.call.integer("start") *
                       call.in_strides[0][axis_attr(call.call, call.call.inputs[0].rank() - 1)];
  const auto* from =
      static_cast<const char*>(at.in[0]) + skip * size_of(call.call.inputs[0].dtype).count;
  return prepare_copy(call.outputs[0], call.in_strides[0], from, call.outputs[0],
                      call.out_strides[0], at.out[0]);
}

}  // namespace

extern const Kernel cpu_slice = {
    .op = "slice",
    .prepare = copy,
};

}  // namespace adjoint

// A copy, where a view cannot say it.
#include "kernels/cpu/copy.h"

namespace adjoint {

namespace {

Launch copy_moved(const KernelCall& call, const Pointers& at) {
  Strides moved;
  for (const int64_t from : call.call.list("order")) moved.push_back(call.in_strides[0][from]);
  return prepare_copy(call.outputs[0], moved, at.in[0], call.outputs[0], call.out_strides[0],
                      at.out[0]);
}

}  // namespace

extern const Kernel cpu_transpose = {
    .op = "transpose",
    .prepare = copy_moved,
};

}  // namespace adjoint

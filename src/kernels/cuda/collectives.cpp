// Collectives on a GPU. One rank alone copies; several ranks are refused while a step is prepared,
// because the communicator moves bytes of the host's memory only, so far.
#include "base/error.h"
#include "kernels/cuda/kernels.h"
#include "ops/collective.h"

namespace adjoint {

namespace {

Launch copy_alone(const KernelCall& call, const Pointers& at) {
  if (ranks_of(call.call) > 1) {
    fail("a mesh of several ranks runs on the CPU so far, found ", call.call.op, " over ",
         ranks_of(call.call), " ranks on cuda; say --device cpu");
  }
  return move_cuda(call, at);
}

}  // namespace

extern const Kernel cuda_all_gather = {.op = "all_gather", .prepare = copy_alone};
extern const Kernel cuda_all_reduce = {.op = "all_reduce", .prepare = copy_alone};
extern const Kernel cuda_reduce_scatter = {.op = "reduce_scatter", .prepare = copy_alone};

}  // namespace adjoint

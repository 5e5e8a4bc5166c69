// Operands are copied side by side, except those that the plan has laid there.
#include "kernels/cuda/kernels.h"
#include "ops/axes.h"

namespace adjoint {

namespace {

Launch copy(const KernelCall& call, const Pointers& at) {
  const int axis = axis_attr(call.call, 0);
  const int64_t element = size_of(call.outputs[0].dtype).count;
  std::vector<Launch> moves;
  auto* to = static_cast<char*>(at.out[0]);
  for (size_t i = 0; i < at.in.size(); ++i) {
    const Type& type = call.call.inputs[i];
    if (at.in[i] != to) {  // else it was laid there
      moves.push_back(
          copy_cuda(type, call.in_strides[i], at.in[i], type, call.out_strides[0], to, at.stream));
    }
    to += type.dim(axis) * call.out_strides[0][axis] * element;
  }
  return [moves] {
    for (const Launch& move : moves) move();
  };
}

}  // namespace

extern const Kernel cuda_concat = {
    .op = "concat",
    .prepare = copy,
};

}  // namespace adjoint

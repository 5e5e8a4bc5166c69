// The ops that only say where elements are, as copies on a GPU.
#include <vector>

#include "kernels/cuda/kernels.h"
#include "ops/axes.h"

namespace adjoint {

namespace {

int last_axis(const OpCall& call) { return call.inputs[0].rank() - 1; }

Launch in_order(std::vector<Launch> launches) {
  return [launches = std::move(launches)] {
    for (const Launch& launch : launches) launch();
  };
}

}  // namespace

// Clears what is before the operand and what is after it, and nothing twice.
Launch pad_cuda(const KernelCall& call, const Pointers& at) {
  const Type &in = call.call.inputs[0], &out = call.outputs[0];
  const Strides& strides = call.out_strides[0];
  const int axis = axis_attr(call.call, last_axis(call.call));
  const int64_t start = call.call.integer("start"), past = start + in.dim(axis);
  const auto at_index = [&](int64_t index) {
    return static_cast<char*>(at.out[0]) + index * strides[axis] * size_of(out.dtype).count;
  };
  const auto clear = [&](int64_t from, int64_t to) {
    Type side = out;
    side.axes[axis] = {out.axes[axis].name, to - from};
    return clear_cuda(side, strides, at_index(from), at.stream);
  };
  return in_order(
      {clear(0, start),
       copy_cuda(in, call.in_strides[0], at.in[0], in, strides, at_index(start), at.stream),
       clear(past, out.dim(axis))});
}

Launch slice_cuda(const KernelCall& call, const Pointers& at) {
  const int axis = axis_attr(call.call, last_axis(call.call));
  const int64_t skip = call.call.integer("start") * call.in_strides[0][axis];
  const auto* from =
      static_cast<const char*>(at.in[0]) + skip * size_of(call.call.inputs[0].dtype).count;
  return copy_cuda(call.outputs[0], call.in_strides[0], from, call.outputs[0], call.out_strides[0],
                   at.out[0], at.stream);
}

Launch transpose_cuda(const KernelCall& call, const Pointers& at) {
  Strides moved;
  for (const int64_t from : call.call.list("order")) moved.push_back(call.in_strides[0][from]);
  return copy_cuda(call.outputs[0], moved, at.in[0], call.outputs[0], call.out_strides[0],
                   at.out[0], at.stream);
}

// Padding is moved along where both are dense: one stretch of bytes crosses the bus at once.
Launch move_cuda(const KernelCall& call, const Pointers& at) {
  Type whole = call.call.inputs[0];
  const Strides dense = dense_strides(whole);
  // Of the first axis the strides say nothing.
  const bool alike = call.outputs[0].bytes() == whole.bytes() && call.out_strides[0] == dense;
  if (call.in_strides[0] != dense || !alike) return reshape_cuda(call, at);
  for (Axis& axis : whole.axes) axis = {axis.name, axis.physical()};
  return copy_cuda(whole, dense, at.in[0], whole, dense, at.out[0], at.stream);
}

}  // namespace adjoint

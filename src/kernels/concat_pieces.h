// The copies that a concat consists of, for every backend.
#pragma once
#include "kernels/gang_calls.h"
#include "ops/axes.h"

namespace adjoint {

// Calls copy(type, strides, from, to) for every operand, except those that the plan has placed
// inside the result.
template <class F>
Launch concat_pieces(const KernelCall& call, const Pointers& at, const F& copy) {
  const int axis = axis_attr(call.call, 0);
  const int64_t element = size_of(call.outputs[0].dtype).count;
  std::vector<Launch> copies;
  auto* to = static_cast<char*>(at.out[0]);
  for (size_t i = 0; i < at.in.size(); ++i) {
    const Type& type = call.call.inputs[i];
    if (at.in[i] != to) copies.push_back(copy(type, call.in_strides[i], at.in[i], to));
    to += type.dim(axis) * call.out_strides[0][axis] * element;
  }
  return one_after_another(std::move(copies));
}

}  // namespace adjoint

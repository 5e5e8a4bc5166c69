// Ops without operands say their shape and dtype in attributes.
#pragma once
#include "base/error.h"
#include "ops/op_def.h"

namespace adjoint {

inline std::vector<Axis> shape_attr(const OpCall& call) {
  std::vector<Axis> axes;
  for (const int64_t size : call.list("shape")) {
    if (size < 1) fail(call.op, ": a shape has sizes of at least 1, found ", size);
    axes.push_back({"n" + std::to_string(axes.size()), size});
  }
  return axes;
}

inline Dtype dtype_attr(const OpCall& call) {
  const auto dtype = dtype_named(call.text("dtype", "f32"));
  if (!dtype) fail(call.op, ": '", call.text("dtype"), "' is no dtype");
  return *dtype;
}

}  // namespace adjoint

#include "ops/carry.h"

#include "base/error.h"

namespace adjoint {

Value CarryCall::origin_beside(size_t rank) const {
  Value v = origin;
  for (size_t i = 1; i < rank; ++i) {
    const int64_t parts = builder.type(v).dim(-1);
    v = builder.emit("split", {v}, {{"parts", parts}});
  }
  return v;
}

std::vector<Value> carry_counted_positions(CarryCall& carry) {
  if (carry.axis != 0) {
    fail(carry.call.op, ": counts positions along another axis than its first");
  }
  Attrs attrs = carry.call.attrs;
  auto& shape = std::get<std::vector<int64_t>>(attrs.at("shape"));
  shape[0] = carry.count;
  shape.insert(shape.begin(), carry.builder.type(carry.origin).dim(0));
  return carry.builder.emit_all(carry.call.op, {carry.origin_beside(shape.size())}, attrs);
}

Expr counted_position(Body& body, const OpCall& call, int axis_from_end) {
  const Expr at = index_along(body, axis_from_end);
  return call.inputs.empty() ? at : at + input(body, 0);
}

int axes_before_positions(const OpCall& call) {
  if (call.inputs.empty()) return 0;
  const std::vector<int64_t> shape = call.list("shape");
  const Type& origin = call.inputs[0];
  bool fits = call.inputs.size() == 1 && origin.dtype == Dtype::kI32 && shape.size() > 1 &&
              origin.rank() == static_cast<int>(shape.size()) && origin.dim(0) == shape[0];
  for (int i = 1; fits && i < origin.rank(); ++i) fits = origin.dim(i) == 1;
  if (!fits) {
    fail(call.op, ": wants no operand, or where positions begin, i32[batch, 1, ...] beside a shape",
         " [batch, ...], found ", to_string(origin));
  }
  return 1;
}

}  // namespace adjoint

// Sums, means and maxima over an axis. The ops reduce the last axis to one; a text may name any
// axis, which is then seen as the last, and be rid of it.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

const std::vector<Param> kParams = {
    {"x"}, {"axis", Param::Kind::kAxis, "-1"}, {"keep", Param::Kind::kFlag, "no"}};

std::vector<int64_t> swapped_with_last(int rank, int64_t axis) {
  std::vector<int64_t> order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[axis], order.back());
  return order;
}

std::vector<Value> reduce(SurfaceCall& call, std::string_view op) {
  Builder& b = call.builder;
  Value x = call.tensor("x");
  const int rank = b.type(x).rank();
  if (rank == 0) fail(op, ": wants an object with an axis, found ", to_string(b.type(x)));
  const int64_t axis = call.size("axis");
  const Source source = b.source();
  const auto at = [&](std::string_view part) -> Builder& {
    return b.at({source.path + "." + std::string(part)}, b.phase(), b.role());
  };
  const bool inner = axis != rank - 1, keep = call.flag("keep");
  const Attrs swap = {{"order", swapped_with_last(rank, axis)}};
  if (inner) x = at("swapped").emit("transpose", {x}, swap);
  const bool last = keep && !inner;
  if (last)
    b.at(source, b.phase(), b.role());
  else
    at("reduced");
  Value y = b.emit(op, {x});
  b.at(source, b.phase(), b.role());
  if (last) return {y};
  // Swapped back, the axis of one is where the reduced one was.
  if (inner) {
    if (!keep) at("back");
    y = b.emit("transpose", {y}, swap);
    b.at(source, b.phase(), b.role());
    if (keep) return {y};
  }
  return {b.emit("squeeze", {y}, {{"axis", axis}})};
}

Body row_body(const OpCall& call, Expr (*f)(Expr, double)) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1 || !is_float(call.inputs[0].dtype)) {
    fail(call.op, ": wants one floating object with an axis");
  }
  Body body;
  const Expr y = f(input(body, 0), static_cast<double>(call.inputs[0].dim(-1)));
  body.outputs = {{.node = y.node, .row = BodyOutput::Row::kOne}};
  return body;
}

std::vector<Sample> reduce_samples() {
  return {{.inputs = {of({3, 5})}},
          {.inputs = {of({2, 3, 7})}},
          {.inputs = {of({4, 1})}},
          {.inputs = {of({9})}}};
}
std::vector<Sample> reduce_refusals() {
  return {{.inputs = {}}, {.inputs = {of({})}}, {.inputs = {of({3, 4}, Dtype::kI32)}}};
}

// Equal largest ones share the gradient.
void max_grad(GradCall& g) {
  Body body;
  const Expr dy = input(body, 0), x = input(body, 1);
  const Expr is_largest = equal(x, row_max(x));
  body.outputs = {
      {.node = (dy * is_largest / row_sum(is_largest)).node, .dtype = g.call.inputs[0].dtype}};
  g.input_grads[0] = g.builder.emit("map", {g.dout(), g.inputs[0]}, {{"body", print(body)}});
}

}  // namespace

extern const OpDef op_sum = {
    .name = "sum",
    .summary = "the sum over an axis (the last, unless said)",
    .params = kParams,
    .surface = [](SurfaceCall& call) { return reduce(call, "sum"); },
    .body =
        [](const OpCall& call) {
          return row_body(call, [](Expr x, double) { return row_sum(x); });
        },
    .linear = [](const OpCall&) { return Linear::kTogether; },
    .samples = reduce_samples,
    .refused = reduce_refusals,
};

extern const OpDef op_mean = {
    .name = "mean",
    .summary = "the mean over an axis (the last, unless said)",
    .params = kParams,
    .surface = [](SurfaceCall& call) { return reduce(call, "mean"); },
    .body =
        [](const OpCall& call) {
          return row_body(call, [](Expr x, double n) { return row_sum(x) / n; });
        },
    .linear = [](const OpCall&) { return Linear::kTogether; },
    .samples = reduce_samples,
    .refused = reduce_refusals,
};

extern const OpDef op_max = {
    .name = "max",
    .summary = "the largest along an axis (the last, unless said)",
    .params = kParams,
    .surface = [](SurfaceCall& call) { return reduce(call, "max"); },
    .body =
        [](const OpCall& call) {
          return row_body(call, [](Expr x, double) { return row_max(x); });
        },
    .grad = max_grad,
    .samples = reduce_samples,
    .refused = reduce_refusals,
};

}  // namespace adjoint

// y = weight * x / sqrt(mean(x^2) + eps) over the last axis (Zhang and Sennrich, 2019).
#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<Value> surface(SurfaceCall& call) {
  if (call.type("x").rank() < 1) fail("rms_norm: x must have an axis, found a single number");
  const Axis width = call.type("x").axes.back();
  // Rows are scaled by offset + weight, which begins as 1.
  const double offset = call.number("offset");
  const Init start = offset == 0   ? Init{.kind = Init::Kind::kOnes}
                     : offset == 1 ? Init{}
                                   : Init{.kind = Init::Kind::kConstant, .scale = 1 - offset};
  const Value weight = call.parameter("weight", {width}, start);
  Attrs attrs = {{"eps", call.number("eps")}};
  if (offset != 0) attrs["offset"] = offset;
  return call.builder.emit_all("rms_norm", {call.tensor("x"), weight}, std::move(attrs));
}

Body body(const OpCall& call) {
  if (call.inputs.size() != 2 || call.inputs[0].rank() < 1 || call.inputs[1].rank() != 1 ||
      call.inputs[1].dim(0) != call.inputs[0].dim(-1)) {
    fail("rms_norm: wants x and a weight as long as a row of x, found ", call.inputs.size(),
         " operands",
         call.inputs.size() == 2
             ? ": " + shape_string(call.inputs[0]) + " and " + shape_string(call.inputs[1])
             : "");
  }
  if (!(call.number("eps", 1e-5) >= 0)) fail("rms_norm: eps must be 0 or more");
  Body body;
  const Expr x = input(body, 0);
  const Expr mean_square = row_sum(x * x) / static_cast<double>(call.inputs[0].dim(-1));
  const double offset = call.number("offset", 0);
  const Expr weight = input(body, 1), gain = offset == 0 ? weight : weight + offset;
  const Expr y = x * rsqrt(mean_square + call.number("eps", 1e-5)) * gain;
  body.outputs = {{.node = y.node, .dtype = call.inputs[0].dtype}};
  return body;
}

std::vector<Sample> samples() {
  const auto at = [](int64_t rows, int64_t width) {
    return Sample{.inputs = {of({2, rows, width}), of({width})}};
  };
  Sample offset = at(3, 5);
  offset.attrs = {{"offset", 1.0}};
  return {at(1, 1), at(3, 5), at(2, 257), offset};
}

std::vector<Sample> refused() {
  return {{.inputs = {of({4, 6}), of({5})}}, {.inputs = {of({4, 6})}}};
}

}  // namespace

extern const OpDef op_rms_norm = {
    .name = "rms_norm",
    .summary = "(offset + weight) * x / sqrt(mean(x^2) + eps) over the last axis",
    .params = {{"x"}, {"eps", Param::Kind::kNumber, "1e-5"}, {"offset", Param::Kind::kNumber, "0"}},
    .surface = surface,
    .body = body,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

// y = weight * (x - mean) / sqrt(variance + eps) + bias over the last axis (Ba et al., 2016).
// The gradient computes mean and variance again from x: the row is in cache by then, and nothing
// but x has to be kept.
#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<Value> surface(SurfaceCall& call) {
  if (call.type("x").rank() < 1) fail("layer_norm: x must have an axis, found a single number");
  const Axis width = call.type("x").axes.back();
  std::vector<Value> operands = {call.tensor("x"),
                                 call.parameter("weight", {width}, {.kind = Init::Kind::kOnes})};
  if (call.flag("bias")) operands.push_back(call.parameter("bias", {width}, {}));
  return call.builder.emit_all("layer_norm", operands, {{"eps", call.number("eps")}});
}

Body body(const OpCall& call) {
  if (call.inputs.size() < 2 || call.inputs.size() > 3 || call.inputs[0].rank() < 1) {
    fail("layer_norm: wants x, weight and maybe bias, found ", call.inputs.size(), " operands");
  }
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const Type& t = call.inputs[i];
    if (t.rank() != 1 || t.dim(0) != call.inputs[0].dim(-1)) {
      fail("layer_norm: weight and bias must be as long as a row of x, found ", shape_string(t),
           " for x ", shape_string(call.inputs[0]));
    }
  }
  if (!(call.number("eps", 1e-5) >= 0)) fail("layer_norm: eps must be 0 or more");
  Body body;
  const Expr x = input(body, 0);
  const double width = static_cast<double>(call.inputs[0].dim(-1));
  const Expr centered = x - row_sum(x) / width;
  const Expr variance = row_sum(centered * centered) / width;
  Expr y = centered * rsqrt(variance + call.number("eps", 1e-5)) * input(body, 1);
  if (call.inputs.size() > 2) y = y + input(body, 2);
  body.outputs = {{.node = y.node, .dtype = call.inputs[0].dtype}};
  return body;
}

std::vector<Sample> samples() {
  const auto at = [](int64_t rows, int64_t width) {
    return Sample{.inputs = {of({2, rows, width}), of({width}), of({width})}};
  };
  return {at(1, 2), at(3, 5), at(2, 257), {.inputs = {of({4, 6}), of({6})}}};
}

std::vector<Sample> refused() {
  return {{.inputs = {of({4, 6}), of({5})}}, {.inputs = {of({4, 6})}}};
}

}  // namespace

extern const OpDef op_layer_norm = {
    .name = "layer_norm",
    .summary = "weight * (x - mean) / sqrt(variance + eps) + bias over the last axis",
    .params = {{"x"}, {"bias", Param::Kind::kFlag, "yes"}, {"eps", Param::Kind::kNumber, "1e-5"}},
    .surface = surface,
    .body = body,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

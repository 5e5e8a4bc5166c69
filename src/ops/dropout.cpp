// y = x / (1 - rate) where a random number is at least the rate, else 0 (Srivastava et al., 2014).
// The random number is a function of seed, step, source path and the element's index, so the
// gradient draws the same mask again and nothing is kept.
#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<Value> surface(SurfaceCall& call) {
  const double rate = call.number("rate");
  if (!(rate >= 0 && rate < 1)) fail("dropout: the rate must be in [0, 1), found ", rate);
  if (rate == 0) return {call.tensor("x")};
  const Value counter = call.builder.control(kRandomCounter, random_counter_type());
  return call.builder.emit_all("dropout", {call.tensor("x"), counter},
                               {{"rate", rate}, {"key", call.path}});
}

Body body(const OpCall& call) {
  if (call.inputs.size() != 2 || call.inputs[1] != random_counter_type()) {
    fail("dropout: wants x and the random counter, found ", call.inputs.size(), " operands");
  }
  const double rate = call.number("rate");
  Body body;
  const Expr x = input(body, 0);
  const Expr dropped = less(random_uniform(body, 1, call.text("key")), constant(body, rate));
  body.outputs = {{.node = select(dropped, constant(body, 0), x * (1 / (1 - rate))).node}};
  return body;
}

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> sizes) {
    return Sample{.inputs = {of(std::move(sizes)), random_counter_type()},
                  .attrs = {{"rate", 0.25}, {"key", std::string("block[0].dropout#1")}},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kCounter}};
  };
  return {at({7}), at({3, 5}), at({3, 2, 1031})};
}

std::vector<Sample> refused() { return {{.inputs = {of({3})}, .attrs = {{"rate", 0.5}}}}; }

}  // namespace

extern const OpDef op_dropout = {
    .name = "dropout",
    .summary = "zero with probability `rate`, else x / (1 - rate)",
    .params = {{"x"}, {"rate", Param::Kind::kNumber, "0.1"}},
    .surface = surface,
    .body = body,
    .effect = Effect::kRandom,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

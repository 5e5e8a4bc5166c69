// y = f(linear(x, w, b)), and with keep=1 the linear map's own result beside it for the gradient.
// f is an elementwise body of one operand, written as text. The CPU runs the product and then f,
// both as they would run apart: the same bits. A device with epilogues does it in one launch.
#include "base/counts.h"
#include "base/error.h"
#include "body/facts.h"
#include "ops/builder.h"
#include "ops/in_turn.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

bool keeps(const OpCall& call) { return call.integer("keep", 0) != 0; }

OpCall linear_call(const OpCall& call) {
  OpCall linear{.op = "linear", .inputs = call.inputs};
  if (const auto math = call.attrs.find("math"); math != call.attrs.end())
    linear.attrs.insert(*math);
  return linear;
}

OpCall act_call(const OpCall& call) {
  return {.op = "map",
          .inputs = infer_types(linear_call(call)),
          .attrs = {{"body", call.text("body")}}};
}

std::vector<Type> infer(const OpCall& call) {
  const std::vector<Type> linear = infer_types(linear_call(call));
  const OpCall act = act_call(call);
  const Body body = body_of(act);
  if (!is_elementwise(body) || body.num_inputs() != 1) {
    fail("linear_act: wants the body of an elementwise op of one operand, found \"",
         call.text("body"), "\"");
  }
  const std::vector<Type> y = infer_types(act);
  return keeps(call) ? std::vector<Type>{y[0], linear[0]} : y;
}

void grad(GradCall& g) {
  Builder& b = g.builder;
  const Value pre =
      keeps(g.call) ? g.outputs[1] : b.emit("linear", {g.inputs.begin(), g.inputs.end()});
  std::vector<std::optional<Value>> dpre = {keeps(g.call) ? g.output_grads[1] : std::nullopt};
  if (g.output_grads[0]) {
    const int first = static_cast<int>(b.scheme().morphisms.size());
    const Value y = b.emit("map", {pre}, {{"body", g.call.text("body")}});
    const std::pair<Value, Value> seed[] = {{y, *g.output_grads[0]}};
    const Value wanted[] = {pre};
    const auto through = backpropagate(b, first, first + 1, seed, wanted);
    b.at(b.source(), Phase::kBackward, Role::kGradient);
    dpre = {dpre[0] ? b.emit("add", {*dpre[0], *through[0]}) : *through[0]};
  }
  const OpCall call = linear_call(g.call);
  const Value made[] = {pre};
  GradCall linear{.builder = b,
                  .call = call,
                  .inputs = g.inputs,
                  .outputs = made,
                  .output_grads = dpre,
                  .wants = g.wants,
                  .input_grads = g.input_grads};
  op_named("linear").grad(linear);
  g.input_grads = linear.input_grads;
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const Value pre = op_named("linear").meaning(b, in, {})[0];
  const Value y = b.emit("map", {pre}, {{"body", attrs.find("body")->second}});
  const auto keep = attrs.find("keep");
  const bool both = keep != attrs.end() && std::get<int64_t>(keep->second) != 0;
  return both ? std::vector<Value>{y, pre} : std::vector<Value>{y};
}

std::vector<Sample> samples() {
  const auto with = [](std::vector<Type> inputs, const char* body, int64_t keep) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"body", std::string(body)}, {"keep", keep}}};
  };
  const std::string gelu = print(body_of({.op = "gelu", .inputs = {of({1})}, .attrs = {}}));
  return {with({of({3, 5}), of({7, 5})}, "tanh(x0)", 0),
          with({of({2, 3, 5}), of({7, 5}), of({7})}, "tanh(x0)", 1),
          with({of({2, 33, 17}), of({65, 17}), of({65})}, "mul(x0, tanh(x0))", 1),
          with({of({2, 33, 16}), of({64, 16}), of({64})}, gelu.c_str(), 1)};
}

std::vector<Sample> refused() {
  const auto with = [](std::vector<Type> inputs, const char* body) {
    return Sample{.inputs = std::move(inputs), .attrs = {{"body", std::string(body)}}};
  };
  return {with({of({3, 5}), of({7, 6})}, "tanh(x0)"),
          with({of({3, 5}), of({7, 5})}, "rowsum(x0)/one"),
          with({of({3, 5}), of({7, 5})}, "add(x0, x1)"),
          with({of({3, 5}), of({7, 5}, Dtype::kBF16)}, "tanh(x0)"),
          with({of({3, 5}), of({7, 5})}, "0")};
}

}  // namespace

InTurn linear_act_in_turn(const OpCall& call) { return {linear_call(call), act_call(call)}; }

extern const OpDef op_linear_act = {
    .name = "linear_act",
    .summary = "an elementwise function of a linear map, and the map itself with keep=1",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          IndexMap map = index_map_of(linear_call(call));
          map.whole = "i";  // a function of a sum is no sum of functions
          if (keeps(call)) map.outputs.push_back(map.outputs[0]);
          return map;
        },
    .flops =
        [](const OpCall& call) {
          return sum_of(count_flops(linear_call(call)), count_flops(act_call(call)));
        },
    .grad = grad,
    .output_names = {"pre"},
    .one_dtype = true,
    .multiplies = true,
    .meaning = meaning,
    .cost = CostClass::kProducts,
    .rounds_operands = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

// weights[..., e] = exp(scores[..., e]) / sum of exp over the chosen, where e is chosen, else 0.
// The choice (top_k's) is a constant: dscores = weights * (dweights - sum(dweights * weights)), the
// softmax's gradient, whose zeros keep to the chosen by themselves. An expert that is chosen twice
// counts once.

#include "base/error.h"
#include "ops/builder.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2) fail("route: wants scores and a choice");
  const Type &scores = call.inputs[0], &choice = call.inputs[1];
  bool fits = is_float(scores.dtype) && choice.dtype == Dtype::kI32 && scores.rank() > 0 &&
              scores.rank() == choice.rank();
  for (int i = 0; fits && i + 1 < scores.rank(); ++i) fits = scores.dim(i) == choice.dim(i);
  if (!fits) {
    fail("route: the choice ", to_string(choice), " does not fit scores ", to_string(scores),
         ": i32 indices into the last axis are wanted, as top_k gives them");
  }
  return {scores};
}

void grad(GradCall& g) {
  if (!g.wants[0]) return;
  Body body;
  const Expr dweights = input(body, 0), weights = input(body, 1);
  body.outputs = {{.node = (weights * (dweights - row_sum(dweights * weights))).node,
                   .dtype = g.call.inputs[0].dtype}};
  g.input_grads[0] = g.builder.emit("map", {g.dout(), g.outputs[0]}, {{"body", print(body)}});
}

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> rows, int64_t experts, int64_t k) {
    Type scores = of(rows), choice = of(rows, Dtype::kI32);
    scores.axes.push_back({"experts", experts});
    choice.axes.push_back({"chosen", k});
    return Sample{.inputs = {scores, choice},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = experts};
  };
  Sample large = at({5}, 6, 3);
  large.fills[0] = Sample::Fill::kLarge;
  return {at({}, 4, 2), at({7}, 5, 1), at({2, 70}, 8, 3), at({3, 2}, 1, 1), large};
}

}  // namespace

extern const OpDef op_route = {
    .name = "route",
    .summary = "softmax over the chosen of the last axis, 0 elsewhere",
    .params = {{"scores"}, {"choice"}},
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[0].rank() - 1);
          return IndexMap{{rows + "x", rows + "."}, {rows + "x"}, "x"};
        },
    .flops = [](const OpCall& call) { return 4 * call.inputs[1].num_elements(); },
    .grad = grad,
    .constants = {1},
    .one_dtype = true,
    .wants_dense = true,
    .samples = samples,
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 4})}},
                                     {.inputs = {of({3, 4}), of({3, 2})}},
                                     {.inputs = {of({3, 4}), of({2, 2}, Dtype::kI32)}},
                                     {.inputs = {of({3, 4}), of({2}, Dtype::kI32)}}};
        },
};

}  // namespace adjoint

// sum = sum over rows of log(sum(exp(logits))) - logits[target], count = rows that are not ignored.
// The loss is this pair: whatever splits a batch adds pairs, and the step divides once. The log of
// the row's sum is kept (one number a row), so the gradient reads the logits once and no
// probabilities are ever stored.

#include "ops/cross_entropy.h"

#include <cmath>

#include "base/error.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_cross_entropy_operands(call);
  const Type& logits = call.inputs[0];
  const Dtype sums = logits.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  Type lse{.dtype = sums, .axes = logits.axes};
  lse.axes.pop_back();
  return {{sums, {}}, {sums, {}}, lse};
}

void grad(GradCall& g) {
  if (!g.wants[0] || !g.output_grads[0]) return;
  g.input_grads[0] =
      g.builder.emit("cross_entropy_grad", {g.inputs[0], g.inputs[1], g.outputs[2], g.dout(0)},
                     {{"ignore", g.call.integer("ignore", -1)}});
}

}  // namespace

void check_cross_entropy_operands(const OpCall& call) {
  if (call.inputs.size() < 2) fail(call.op, ": wants logits and targets");
  const Type &logits = call.inputs[0], &targets = call.inputs[1];
  bool fits =
      targets.dtype == Dtype::kI32 && is_float(logits.dtype) && logits.rank() == targets.rank() + 1;
  for (int i = 0; fits && i < targets.rank(); ++i) fits = logits.dim(i) == targets.dim(i);
  if (!fits) {
    fail(call.op, ": targets ", to_string(targets), " do not fit logits ", to_string(logits),
         ": floating logits and one i32 target a row are wanted");
  }
}

extern const OpDef op_cross_entropy = {
    .name = "cross_entropy",
    .summary =
        "(sum, count) of -log softmax(logits)[target] over rows whose target is not `ignore`",
    .params = {{"logits"}, {"targets"}, {"ignore", Param::Kind::kNumber, "-1"}},
    .surface =
        [](SurfaceCall& call) {
          const double ignore = call.number("ignore");
          if (std::floor(ignore) != ignore || std::abs(ignore) > 0x7fffffff) {
            fail("cross_entropy: ignore must be a whole number that a target can be, found ",
                 ignore);
          }
          const auto made = call.builder.emit_all("cross_entropy",
                                                  {call.tensor("logits"), call.tensor("targets")},
                                                  {{"ignore", static_cast<int64_t>(ignore)}});
          return std::vector<Value>{made[0], made[1]};  // the pair; lse is the gradient's business
        },
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          return IndexMap{{rows + "v", rows}, {"", "", rows}, "v"};
        },
    .flops = [](const OpCall& call) { return 4 * call.inputs[0].num_elements(); },
    .grad = grad,
    .output_names = {"count", "lse"},
    .wants_dense = true,
    .takes_padding = true,
    .targets = 1,
    .loss = true,
    .counted_by = "count_targets",
    .loss_grad = "cross_entropy_grad",
    .loss_with_grad = "cross_entropy_with_grad",
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> rows, int64_t classes, int64_t ignore) {
            Type targets = of(rows, Dtype::kI32), logits = of(rows);
            logits.axes.push_back({"v", classes});
            return Sample{.inputs = {logits, targets},
                          .attrs = {{"ignore", ignore}},
                          .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                          .ids_below = classes,
                          .ignored_id = ignore};
          };
          return std::vector<Sample>{at({3}, 5, -1), at({2, 3}, 37, -100), at({97}, 2, 1)};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 5}), of({4}, Dtype::kI32)}},
                                     {.inputs = {of({3, 5}), of({3})}},
                                     {.inputs = {of({3, 5}, Dtype::kI32), of({3}, Dtype::kI32)}}};
        },
};

}  // namespace adjoint

// sum, count = cross_entropy(logits, targets); dlogits = cross_entropy_grad of the same, by the
// scale that the sum's gradient is. The log-sums between the two are nobody else's. dlogits may
// take the logits' place. A GPU then reads the logits once; the CPU runs the two one after the
// other.

#include "base/counts.h"
#include "base/error.h"
#include "ops/builder.h"
#include "ops/in_turn.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

OpCall loss_call(const OpCall& call) {
  return {.op = "cross_entropy", .inputs = {call.inputs[0], call.inputs[1]}, .attrs = call.attrs};
}

OpCall gradient_call(const OpCall& call) {
  const Type lse = infer_types(loss_call(call))[2];
  return {.op = "cross_entropy_grad",
          .inputs = {call.inputs[0], call.inputs[1], lse, call.inputs[2]},
          .attrs = call.attrs};
}

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 3) {
    fail("cross_entropy_with_grad: wants logits, targets and the gradient of the sum");
  }
  const std::vector<Type> loss = infer_types(loss_call(call));
  return {loss[0], loss[1], infer_types(gradient_call(call))[0]};
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const std::vector<Value> loss = b.emit_all("cross_entropy", {in[0], in[1]}, attrs);
  return {loss[0], loss[1], b.emit("cross_entropy_grad", {in[0], in[1], loss[2], in[2]}, attrs)};
}

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> rows, int64_t classes, int64_t ignore,
                     Attrs options = {}) {
    Type targets = of(rows, Dtype::kI32), logits = of(rows);
    logits.axes.push_back({"v", classes});
    options["ignore"] = ignore;
    return Sample{.inputs = {logits, targets, of({})},
                  .attrs = std::move(options),
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = classes,
                  .ignored_id = ignore};
  };
  // On a GPU a warp a row, and a block a row.
  const Attrs all = {{"smoothing", 0.25}, {"z", 0.125}, {"cap", 2.0}};
  return {at({3}, 5, -1),      at({2, 3}, 37, -100),   at({97}, 2, 1),
          at({4}, 1027, -100), at({3, 5}, 37, 2, all), at({4}, 1027, -100, all)};
}

}  // namespace

InTurn cross_entropy_with_grad_in_turn(const OpCall& call) {
  return {loss_call(call), gradient_call(call)};
}

extern const OpDef op_cross_entropy_with_grad = {
    .name = "cross_entropy_with_grad",
    .summary = "cross_entropy's (sum, count), and the gradient of its logits",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          return IndexMap{{rows + "v", rows, ""}, {"", "", rows + "v"}, "v"};
        },
    .flops =
        [](const OpCall& call) {
          return sum_of(count_flops(loss_call(call)), count_flops(gradient_call(call)));
        },
    .differentiable = false,
    .output_names = {"count", "dlogits"},
    .wants_dense = true,
    .takes_padding = true,
    .may_overwrite = {{2, 0}},
    .meaning = meaning,
    .targets = 1,
    .loss = true,
    .samples = samples,
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({4}, Dtype::kI32), of({})}},
              {.inputs = {of({3, 5}), of({3}, Dtype::kI32)}},
              {.inputs = {of({3, 5}), of({3}, Dtype::kI32), of({3})}},
              {.inputs = {of({3, 5}), of({3}, Dtype::kI32), of({})}, .attrs = {{"cap", -1.0}}}};
        },
};

}  // namespace adjoint

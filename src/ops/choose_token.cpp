// token[b, i] = one of the tokens that logits[b, i, :] weigh, drawn as choice[b, :] says:
// temperature, top_k, top_p, min_p and a number of [0, 1). ops/choose_token.h states which. It is
// data, so that one recorded step serves every way to draw; and what it draws is the next step's.
#include "ops/choose_token.h"

#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2) fail("choose_token: wants logits and how to choose");
  const Type &logits = call.inputs[0], &choice = call.inputs[1];
  if (logits.rank() != 3 || !is_float(logits.dtype)) {
    fail("choose_token: wants floating logits[batch, positions, vocab], found ", to_string(logits));
  }
  if (choice.rank() != 2 || choice.dim(0) != logits.dim(0) || choice.dim(1) != kChoiceNumbers ||
      !is_float(choice.dtype)) {
    fail("choose_token: a choice is f32[", logits.dim(0), ", ", kChoiceNumbers, "], found ",
         to_string(choice));
  }
  const int64_t usable = usable_tokens(call);
  if (usable < 1 || usable > logits.dim(2)) {
    fail("choose_token: wants 1 to ", logits.dim(2), " usable tokens, found ", usable);
  }
  return {Type{.dtype = Dtype::kI32, .axes = {logits.axes[0], logits.axes[1]}}};
}

std::vector<Sample> samples() {
  const auto with = [](int64_t batch, int64_t positions, int64_t vocab, Attrs attrs = {}) {
    return Sample{.inputs = {of({batch, positions, vocab}), of({batch, kChoiceNumbers})},
                  .attrs = std::move(attrs),
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kPositive}};
  };
  Sample ties = with(6, 1, 9);
  ties.fills = {Sample::Fill::kLarge, Sample::Fill::kPositive};  // four values in all
  Sample greedy = with(3, 2, 40);
  greedy.fills = {Sample::Fill::kNormal, Sample::Fill::kLarge};
  // The last is more than a block of any kernel takes at once.
  return {with(5, 1, 7), with(2, 3, 33, {{"usable", int64_t{20}}}), ties, greedy, with(4, 1, 3000)};
}

std::vector<Sample> refused() {
  const Type choice = of({2, kChoiceNumbers});
  return {{.inputs = {of({2, 5}), choice}},
          {.inputs = {of({2, 1, 5}, Dtype::kI32), choice}},
          {.inputs = {of({2, 1, 5}), of({2, 3})}},
          {.inputs = {of({3, 1, 5}), choice}},
          {.inputs = {of({2, 1, 5}), choice}, .attrs = {{"usable", int64_t{6}}}},
          {.inputs = {of({2, 1, 5})}}};
}

}  // namespace

int64_t usable_tokens(const OpCall& call) { return call.integer("usable", call.inputs[0].dim(-1)); }

extern const OpDef op_choose_token = {
    .name = "choose_token",
    .summary = "a token, drawn by its logits as an operand says for every sample",
    .infer = infer,
    .index_map =
        [](const OpCall&) {
          return IndexMap{{"btx", "by"}, {"bt"}, "xy"};
        },
    .flops = [](const OpCall& call) { return 3 * call.inputs[0].num_elements(); },
    .differentiable = false,
    .effect = Effect::kChoosing,
    .wants_dense = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

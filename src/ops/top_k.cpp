// choice[..., j] = where the j-th largest of scores[..., :] stands; of equals the lower index comes
// first, and what is not a number comes last, so that k different indices come out of any row. The
// choice is discrete: no gradient passes through it, and a step makes it once (Effect::kChoosing).

#include "base/counts.h"
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1 || !is_float(call.inputs[0].dtype)) {
    fail("top_k: wants one operand of floating scores with at least one axis");
  }
  Type choice = call.inputs[0];
  const Axis from = choice.axes.back();
  const int64_t k = call.integer("k");
  if (k < 1 || k > from.size) {
    fail("top_k: k must be from 1 to ", from.name, "=", from.size, ", found ", k);
  }
  choice.dtype = Dtype::kI32;
  choice.axes.back() = {"chosen", k};
  return {choice};
}

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> sizes, int64_t k) {
    return Sample{.inputs = {of(std::move(sizes))}, .attrs = {{"k", k}}};
  };
  Sample ties = at({5, 7}, 4);
  ties.fills = {Sample::Fill::kLarge};  // four values in all
  return {at({8}, 2), at({3, 5}, 5), at({2, 70, 6}, 1), at({4, 1}, 1), ties};
}

}  // namespace

extern const OpDef op_top_k = {
    .name = "top_k",
    .summary = "where the k largest of the last axis stand, the largest first",
    .params = {{"scores"}, {"k", Param::Kind::kSize}},
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[0].rank() - 1);
          return IndexMap{{rows + "x"}, {rows + "."}, "x"};
        },
    .flops =
        [](const OpCall& call) {
          return product_of({call.inputs[0].num_elements(), call.integer("k")});
        },
    .differentiable = false,
    .effect = Effect::kChoosing,
    .wants_dense = true,
    .samples = samples,
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 4})}, .attrs = {{"k", int64_t{5}}}},
              {.inputs = {of({3, 4})}, .attrs = {{"k", int64_t{0}}}},
              {.inputs = {of({3, 4}, Dtype::kI32)}, .attrs = {{"k", int64_t{1}}}},
              {.inputs = {of({})}, .attrs = {{"k", int64_t{1}}}}};
        },
};

}  // namespace adjoint

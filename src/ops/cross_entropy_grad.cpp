// dlogits = dsum * (exp(logits - lse) - onehot(target)), 0 on ignored rows. May take the logits'
// place.

#include "base/error.h"
#include "ops/builder.h"
#include "ops/cross_entropy.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_cross_entropy_operands(call);
  if (call.inputs.size() != 4) {
    fail("cross_entropy_grad: wants logits, targets, lse and the gradient of the sum, found ",
         call.inputs.size(), " operands");
  }
  const Type &logits = call.inputs[0], &lse = call.inputs[2], &dsum = call.inputs[3];
  const Dtype wide = logits.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  const Type wanted = with_dtype(call.inputs[1], wide);
  if (!same_shape(lse, wanted) || lse.dtype != wide) {
    fail("cross_entropy_grad: the log-sums of logits ", to_string(logits), " are ",
         to_string(wanted), ", found ", to_string(lse));
  }
  if (dsum.rank() != 0 || !is_float(dsum.dtype)) {
    fail("cross_entropy_grad: the gradient of the sum is one floating number, found ",
         to_string(dsum));
  }
  return {logits};
}

}  // namespace

extern const OpDef op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .summary = "the gradient of cross_entropy's logits",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          return IndexMap{{rows + "v", rows, rows, ""}, {rows + "v"}, "v"};
        },
    .flops = [](const OpCall& call) { return 3 * call.inputs[0].num_elements(); },
    .differentiable = false,
    .wants_dense = true,
    .takes_padding = true,
    .may_overwrite = {{0, 0}},
    .targets = 1,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({3}, Dtype::kI32), of({3}), of({})},
               .attrs = {{"ignore", int64_t{-1}}},
               .fills = {Sample::Fill::kNormal, Sample::Fill::kIds, Sample::Fill::kPositive},
               .ids_below = 5}};
        },
    .refused =
        [] {
          const Type targets = of({3}, Dtype::kI32);
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({4}, Dtype::kI32), of({3}), of({})}},
              {.inputs = {of({3, 5}), targets, of({3})}},
              {.inputs = {of({3, 5}), targets, of({2}), of({})}},
              {.inputs = {of({3, 5}), targets, of({3}, Dtype::kBF16), of({})}},
              {.inputs = {of({3, 5}, Dtype::kBF16), targets, of({3}, Dtype::kBF16), of({})}},
              {.inputs = {of({3, 5}), targets, of({3}), of({}, Dtype::kI32)}},
              {.inputs = {of({3, 5}), targets, of({3}), of({3})}}};
        },
};

}  // namespace adjoint

// dprobabilities[..., s, e] = dsum * load[..., e], 0 at positions whose target is ignored. Of the
// probabilities only the type is read: the loss is linear in them.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/balance_loss.h"
#include "ops/builder.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer_balance_grad(const OpCall& call) {
  if (call.inputs.size() != 3 && call.inputs.size() != 4) {
    fail(
        "balance_loss_grad: wants probabilities, load, the gradient of the sum and maybe targets, "
        "found ",
        call.inputs.size(), " operands");
  }
  const Type &p = call.inputs[0], &load = call.inputs[1], &dsum = call.inputs[2];
  if (!is_float(p.dtype) || p.rank() < 2 || p.rank() > 7) {
    fail("balance_loss_grad: wants probabilities [..., seq, experts], found ", to_string(p));
  }
  Type wanted{.dtype = p.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32, .axes = p.axes};
  wanted.axes.erase(balances_batch(call) ? wanted.axes.begin() : wanted.axes.end() - 2,
                    wanted.axes.end() - 1);
  if (!same_shape(load, wanted) || load.dtype != wanted.dtype) {
    fail("balance_loss_grad: the load of probabilities ", to_string(p), " is ", to_string(wanted),
         ", found ", to_string(load));
  }
  if (dsum.rank() != 0 || !is_float(dsum.dtype)) {
    fail("balance_loss_grad: the gradient of the sum is one floating number, found ",
         to_string(dsum));
  }
  if (call.inputs.size() > 3) check_balance_targets(call, 3);
  return {p};
}

}  // namespace

extern const OpDef op_balance_loss_grad = {
    .name = "balance_loss_grad",
    .summary = "the gradient of balance_loss's probabilities",
    .infer = infer_balance_grad,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = leading_letters(call.inputs[0], 2);
          const bool whole = balances_batch(call);
          IndexMap map{{rows + "se", whole ? "e" : rows + "e", ""}, {rows + "se"}};
          if (call.inputs.size() > 3) map.inputs.push_back(whole ? "M" : rows + "s");
          if (call.inputs.size() > 3 && whole) map.merged = {{'M', {rows + "s"}}};
          return map;
        },
    .flops = [](const OpCall& call) { return call.inputs[0].num_elements(); },
    .differentiable = false,
    .wants_dense = true,
    .may_overwrite = {{0, 0}},
    .targets = 3,
    .samples =
        [] {
          Sample masked{.inputs = {of({2, 7, 5}), of({2, 5}), of({}), of({2, 7}, Dtype::kI32)},
                        .attrs = {{"ignore", int64_t{1}}},
                        .fills = {Sample::Fill::kNormal, Sample::Fill::kPositive,
                                  Sample::Fill::kNormal, Sample::Fill::kIds}};
          Sample over_batch = masked;
          over_batch.inputs[1] = of({5});
          over_batch.inputs[3] = of({14}, Dtype::kI32);
          over_batch.attrs["whole"] = int64_t{1};
          return std::vector<Sample>{{.inputs = {of({3, 4}), of({4}), of({})}}, masked, over_batch};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 4}), of({4})}},
              {.inputs = {of({4}), of({}), of({})}},
              {.inputs = {of({3, 4}), of({3}), of({})}},
              {.inputs = {of({2, 3, 4}), of({4}), of({})}},
              {.inputs = {of({2, 3, 4}), of({2, 4}), of({})}, .attrs = {{"whole", int64_t{1}}}},
              {.inputs = {of({3, 4}, Dtype::kBF16), of({4}, Dtype::kBF16), of({})}},
              {.inputs = {of({3, 4}), of({4}), of({1})}},
              {.inputs = {of({3, 4}), of({4}), of({}, Dtype::kI32)}},
              {.inputs = {of({3, 4}), of({4}), of({}), of({3})}},
              {.inputs = {of({3, 4}), of({4}), of({}), of({4}, Dtype::kI32)}}};
        },
};

}  // namespace adjoint

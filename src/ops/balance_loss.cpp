// The loss that keeps a router's experts equally busy (Shazeer et al., 2017; Fedus et al., 2021),
// for each sequence by itself: experts * sum over e of f[e] * p[e]. f[e] is the share of the
// sequence's choices that name e, a constant; p[e] is the mean probability of e. It is 1 where both
// are even. sum adds the sequences up, count counts them.
//
// Positions whose target is `ignore` are left out of f and p, and a sequence without any other does
// not count. So the pair is right for every part of a batch, also where empty samples fill it up.
//
// over=batch takes all sequences for one. Then the shares of one part of the batch depend on what
// the others choose, so a batch in parts cannot have it: its axes are whole, which refuses that.
//
// load[sequence, e] = experts * f[e] / positions that count: the gradient by any p of a position.
#include "ops/balance_loss.h"

#include <cmath>

#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

BalanceShape balance_shape(const Type& p, const Type& load) {
  BalanceShape s{.sequences = 1, .positions = 1, .experts = p.dim(-1)};
  for (int i = 0; i + 1 < load.rank(); ++i) s.sequences *= load.dim(i);
  for (int i = load.rank() - 1; i + 1 < p.rank(); ++i) s.positions *= p.dim(i);
  return s;
}

bool balances_batch(const OpCall& call) { return call.integer("whole", 0) != 0; }

void check_balance_targets(const OpCall& call, int operand) {
  const Type &p = call.inputs[0], &targets = call.inputs[operand];
  const bool whole = balances_batch(call);
  bool fits = targets.dtype == Dtype::kI32 && targets.rank() == (whole ? 1 : p.rank() - 1);
  for (int i = 0; fits && i < targets.rank() && !whole; ++i) fits = targets.dim(i) == p.dim(i);
  if (fits && whole) fits = targets.num_elements() * p.dim(-1) == p.num_elements();
  if (!fits) {
    fail(call.op, ": targets ", to_string(targets), " do not fit probabilities ", to_string(p),
         ": one i32 target for each position is wanted");
  }
}

namespace {

std::vector<Type> infer_balance(const OpCall& call) {
  if (call.inputs.size() != 2 && call.inputs.size() != 3) {
    fail("balance_loss: wants probabilities, a choice and maybe targets, found ",
         call.inputs.size(), " operands");
  }
  const Type &p = call.inputs[0], &choice = call.inputs[1];
  bool fits = is_float(p.dtype) && choice.dtype == Dtype::kI32 && p.rank() >= 2 && p.rank() <= 7 &&
              p.rank() == choice.rank();
  for (int i = 0; fits && i + 1 < p.rank(); ++i) fits = p.dim(i) == choice.dim(i);
  if (!fits) {
    fail("balance_loss: the choice ", to_string(choice), " does not fit probabilities ",
         to_string(p), ": [..., seq, experts] and i32 indices into the last axis are wanted");
  }
  if (call.inputs.size() > 2) check_balance_targets(call, 2);
  const Dtype sums = p.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  Type load{.dtype = sums, .axes = p.axes};
  load.axes.erase(balances_batch(call) ? load.axes.begin() : load.axes.end() - 2,
                  load.axes.end() - 1);
  return {{sums, {}}, {sums, {}}, load};
}

std::vector<Sample> balance_samples() {
  const auto at = [](std::vector<int64_t> rows, int64_t experts, int64_t k, bool targets) {
    Type p = of(rows), choice = of(rows, Dtype::kI32);
    p.axes.push_back({"experts", experts});
    choice.axes.push_back({"chosen", k});
    Sample sample{.inputs = {p, choice},
                  .fills = {Sample::Fill::kPositive, Sample::Fill::kIds, Sample::Fill::kIds},
                  .ids_below = experts};
    if (!targets) return sample;
    sample.inputs.push_back(of(rows, Dtype::kI32));
    sample.attrs["ignore"] = int64_t{1};  // a valid id, so that the choices stay valid too
    sample.ignored_id = 1;
    return sample;
  };
  const auto over_batch = [&](std::vector<int64_t> rows, int64_t experts, int64_t k, bool targets) {
    Sample sample = at(rows, experts, k, targets);
    sample.attrs["whole"] = int64_t{1};
    if (targets) sample.inputs[2] = of({sample.inputs[2].num_elements()}, Dtype::kI32);
    return sample;
  };
  return {at({5}, 4, 2, false),
          at({3, 7}, 5, 2, false),
          at({2, 70}, 8, 3, true),
          at({9, 1}, 3, 1, true),  // whole sequences that do not count
          at({2, 3, 4}, 2, 1, true),
          at({1, 1}, 1, 1, false),
          over_batch({3, 7}, 5, 2, false),
          over_batch({4, 30}, 8, 2, true),
          over_batch({2, 3, 4}, 2, 1, true),
          over_batch({5}, 3, 1, true)};
}

}  // namespace

extern const OpDef op_balance_loss = {
    .name = "balance_loss",
    .summary = "(sum, count) over sequences of experts * sum(share of choices * mean probability)",
    .params = {{"probabilities"},
               {"choice"},
               {"targets", Param::Kind::kMaybeTensor, "none"},
               {"ignore", Param::Kind::kNumber, "-1"},
               {"over", Param::Kind::kWord, "sequence"}},
    .surface =
        [](SurfaceCall& call) {
          const double ignore = call.number("ignore");
          if (std::floor(ignore) != ignore || std::abs(ignore) > 0x7fffffff) {
            fail("balance_loss: ignore must be a whole number that a target can be, found ",
                 ignore);
          }
          const std::string over = call.word("over");
          if (over != "sequence" && over != "batch") {
            fail("balance_loss: over must be sequence or batch, found '", over, "'");
          }
          std::vector<Value> operands = {call.tensor("probabilities"), call.tensor("choice")};
          Attrs attrs;
          if (over == "batch") attrs["whole"] = int64_t{1};
          if (call.has("targets")) {
            Value targets = call.tensor("targets");
            // One sequence of all, so that it counts for one where losses are added.
            while (over == "batch" && call.builder.scheme()[targets].type.rank() > 1) {
              targets = call.builder.emit("merge", {targets});
            }
            operands.push_back(targets);
            attrs["ignore"] = static_cast<int64_t>(ignore);
          }
          const auto made = call.builder.emit_all("balance_loss", operands, std::move(attrs));
          return std::vector<Value>{made[0], made[1]};  // the pair; load is the gradient's business
        },
    .infer = infer_balance,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = leading_letters(call.inputs[0], 2);
          const bool whole = balances_batch(call);
          IndexMap map{{rows + "se", rows + "sk"},
                       {"", "", whole ? "e" : rows + "e"},
                       whole ? rows + "sek" : "sek"};
          if (call.inputs.size() > 2) map.inputs.push_back(whole ? "M" : rows + "s");
          if (call.inputs.size() > 2 && whole) map.merged = {{'M', {rows + "s"}}};
          return map;
        },
    .flops =
        [](const OpCall& call) {
          return 2 * call.inputs[0].num_elements() + call.inputs[1].num_elements();
        },
    .grad =
        [](GradCall& g) {
          if (!g.wants[0] || !g.output_grads[0]) return;
          std::vector<Value> operands = {g.inputs[0], g.outputs[2], g.dout(0)};
          Attrs attrs;
          if (balances_batch(g.call)) attrs["whole"] = int64_t{1};
          if (g.inputs.size() > 2) {
            operands.push_back(g.inputs[2]);
            attrs["ignore"] = ignored_target(g.call);
          }
          g.input_grads[0] =
              g.builder.emit("balance_loss_grad", std::move(operands), std::move(attrs));
        },
    .constants = {1},
    .output_names = {"count", "load"},
    .wants_dense = true,
    .targets = 2,
    .counted_by = "count_sequences",
    .samples = balance_samples,
    .refused =
        [] {
          const Type choice = of({3, 4, 2}, Dtype::kI32);
          return std::vector<Sample>{{.inputs = {of({3, 4, 5})}},
                                     {.inputs = {of({3, 4, 5}), of({3, 4, 2})}},
                                     {.inputs = {of({3, 5, 5}), choice}},
                                     {.inputs = {of({5}), of({2}, Dtype::kI32)}},
                                     {.inputs = {of({3, 4, 5}, Dtype::kI32), choice}},
                                     {.inputs = {of({3, 4, 5}), choice, of({3, 4})}},
                                     {.inputs = {of({3, 4, 5}), choice, of({3, 4}, Dtype::kI32)},
                                      .attrs = {{"whole", int64_t{1}}}},
                                     {.inputs = {of({3, 4, 5}), choice, of({11}, Dtype::kI32)},
                                      .attrs = {{"whole", int64_t{1}}}},
                                     {.inputs = {of({3, 4, 5}), choice, of({4, 3}, Dtype::kI32)}}};
        },
};

}  // namespace adjoint

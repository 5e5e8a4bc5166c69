// The cross entropy of classes that are split over ranks: (sum, count, log-sums), made of what
// `loss_piece` gave on every rank, side by side along the last axis.
#include "base/error.h"
#include "ops/cross_entropy.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  const CrossEntropyOptions o = cross_entropy_options(call);
  const size_t kinds = o.smoothing > 0 ? 3 : 2;
  bool fits = call.inputs.size() == kinds + 1 && call.inputs[1].rank() > 0;
  for (size_t i = 1; fits && i <= kinds; ++i) {
    fits = same_shape(call.inputs[i], call.inputs[1]) && is_float(call.inputs[i].dtype);
  }
  fits = fits && call.inputs[0].dtype == Dtype::kI32 &&
         call.inputs[0].rank() == call.inputs[1].rank() && call.inputs[0].dim(-1) == 1;
  if (!fits) {
    fail("loss_joined: wants targets [..., 1], and log-sums and logits of targets [..., ranks]");
  }
  Body body;
  const Expr targets = input(body, 0), log_sums = input(body, 1), hits = input(body, 2);
  const Expr counted =
      1.0 - equal(targets, constant(body, static_cast<double>(ignored_target(call))));
  const Expr most = row_max(log_sums);
  const Expr log_sum = most + log(row_sum(exp(log_sums - most)));
  Expr loss = log_sum - row_sum(hits) * (1 - o.smoothing);
  if (o.smoothing > 0) {
    loss = loss - row_sum(input(body, 3)) * (o.smoothing / call.number("classes"));
  }
  if (o.z > 0) loss = loss + log_sum * log_sum * o.z;
  const Dtype dtype = sums_of(call.inputs[1].dtype);
  for (const Expr sum : {select(counted, loss, 0), counted}) {
    body.outputs.push_back({.node = sum.node,
                            .summed_axes = call.inputs[1].rank() - 1,
                            .row = BodyOutput::Row::kDropped,
                            .dtype = dtype});
  }
  body.outputs.push_back({.node = log_sum.node, .row = BodyOutput::Row::kOne, .dtype = dtype});
  return body;
}

}  // namespace

extern const OpDef op_loss_joined = {
    .name = "loss_joined",
    .summary = "(sum, count, log-sums) of a cross entropy whose classes several ranks have",
    .body = body,
    .differentiable = false,
    .output_names = {"count", "lse"},
    .targets = 0,
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> rows, int64_t ranks, Attrs options = {}) {
            std::vector<int64_t> sums = rows;
            sums.push_back(ranks), rows.push_back(1);
            options["ignore"] = int64_t{2};
            return Sample{.inputs = {of(rows, Dtype::kI32), of(sums), of(sums)},
                          .attrs = std::move(options),
                          .fills = {Sample::Fill::kIds},
                          .ids_below = 5};
          };
          return std::vector<Sample>{at({3}, 2), at({2, 3}, 3), at({5}, 1, {{"z", 0.25}})};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3}, Dtype::kI32), of({3, 2}), of({3, 2})}},
                                     {.inputs = {of({3, 1}, Dtype::kI32), of({3, 2}), of({3, 1})}}};
        },
};

}  // namespace adjoint

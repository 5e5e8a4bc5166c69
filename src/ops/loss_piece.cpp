// A rank's share of a cross entropy whose classes are split over ranks: of each row the log-sum of
// the classes that it has, and the logit of the target, 0 where the target is another rank's. With
// smoothed targets also the sum of its logits. `loss_joined` makes the loss of what all ranks have.
#include "ops/cross_entropy.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  check_class_piece(call, 3);
  Body body;
  const ClassPiece p(body, call, input(body, 0), input(body, 1), input(body, 2));
  const Expr none = constant(body, -3e38);  // of a rank that has no class at all
  const Expr most = row_max(select(p.is_class, p.logit, none));
  const Expr sum = row_sum(select(p.is_class, exp(p.logit - most), 0));
  const Expr log_sum =
      select(less(constant(body, 0), sum), most + log(max(sum, constant(body, 1e-37))), none);
  std::vector<Expr> results = {log_sum, row_sum(select(p.is_target, p.logit, 0))};
  if (cross_entropy_options(call).smoothing > 0) {
    results.push_back(row_sum(select(p.is_class, p.logit, 0)));
  }
  for (const Expr result : results) {
    body.outputs.push_back({.node = result.node,
                            .row = BodyOutput::Row::kOne,
                            .dtype = sums_of(call.inputs[0].dtype)});
  }
  return body;
}

}  // namespace

extern const OpDef op_loss_piece = {
    .name = "loss_piece",
    .summary = "log-sums and targets' logits of the classes that one rank has",
    .body = body,
    .differentiable = false,
    .output_names = {"hit", "total"},
    .targets = 1,
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> rows, int64_t piece, int64_t classes,
                             Attrs options = {}) {
            std::vector<int64_t> logits = rows;
            logits.push_back(piece), rows.push_back(1);
            options["classes"] = classes, options["piece"] = piece, options["ignore"] = int64_t{-1};
            return Sample{.inputs = {of(logits), of(rows, Dtype::kI32), of({}, Dtype::kI32)},
                          .attrs = std::move(options),
                          .fills = {Sample::Fill::kNormal, Sample::Fill::kIds, Sample::Fill::kIds},
                          .ids_below = 2};
          };
          return std::vector<Sample>{at({3}, 4, 7), at({2, 3}, 5, 10, {{"cap", 1.5}}),
                                     at({3}, 4, 7, {{"smoothing", 0.25}})};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({3}, Dtype::kI32), of({}, Dtype::kI32)},
               .attrs = {{"classes", int64_t{9}}, {"piece", int64_t{5}}}},
              {.inputs = {of({3, 5}), of({3, 1}, Dtype::kI32)},
               .attrs = {{"classes", int64_t{9}}, {"piece", int64_t{5}}}}};
        },
};

}  // namespace adjoint

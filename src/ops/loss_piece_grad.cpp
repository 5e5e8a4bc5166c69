// The gradient of the logits that one rank has, of a cross entropy whose classes are split over
// ranks; 0 on ignored rows and on what pads the last piece. The log-sums are those of all classes.
#include "ops/cross_entropy.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  check_class_piece(call, 5);
  const CrossEntropyOptions o = cross_entropy_options(call);
  Body body;
  const Expr targets = input(body, 1), log_sum = input(body, 2), scale = input(body, 3);
  const ClassPiece p(body, call, input(body, 0), targets, input(body, 4));
  Expr share = exp(p.logit - log_sum);
  if (o.z > 0) share = share * (log_sum * (2 * o.z) + 1.0);
  Expr gradient = share - p.is_target * (1 - o.smoothing);
  if (o.smoothing > 0) gradient = gradient - o.smoothing / call.number("classes");
  if (o.cap > 0) {
    const Expr bent = p.logit * (1 / o.cap);
    gradient = gradient * (1.0 - bent * bent);
  }
  const Expr ignored = equal(targets, constant(body, static_cast<double>(ignored_target(call))));
  const Expr counted = select(ignored, constant(body, 0), p.is_class);
  body.outputs = {{.node = select(counted, gradient * scale, 0).node}};
  return body;
}

}  // namespace

extern const OpDef op_loss_piece_grad = {
    .name = "loss_piece_grad",
    .summary = "the gradient of the logits of the classes that one rank has",
    .body = body,
    .differentiable = false,
    .targets = 1,
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> rows, int64_t piece, int64_t classes,
                             Attrs options = {}) {
            std::vector<int64_t> logits = rows;
            logits.push_back(piece), rows.push_back(1);
            options["classes"] = classes, options["piece"] = piece, options["ignore"] = int64_t{1};
            return Sample{
                .inputs = {of(logits), of(rows, Dtype::kI32), of(rows), of({}),
                           of({}, Dtype::kI32)},
                .attrs = std::move(options),
                .fills = {Sample::Fill::kNormal, Sample::Fill::kIds, Sample::Fill::kPositive,
                          Sample::Fill::kNormal, Sample::Fill::kIds},
                .ids_below = 2};
          };
          return std::vector<Sample>{
              at({3}, 4, 7), at({2, 3}, 5, 10, {{"cap", 1.5}}),
              at({3}, 4, 7, {{"smoothing", 0.25}, {"z", 0.125}, {"cap", 2.0}})};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({3, 1}, Dtype::kI32), of({3, 1}), of({})},
               .attrs = {{"classes", int64_t{9}}, {"piece", int64_t{5}}}}};
        },
};

}  // namespace adjoint

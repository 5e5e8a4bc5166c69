// Tells a loss that is no number, or far above those of the steps before:
//   usual  = the mean of the last losses, n at most
//   take   = loss is finite, and at most usual + (times - 1) * |usual|    (times * usual, if > 0)
//   losses = with this loss in place of the oldest, where it is taken and something was counted
// Below kEnough losses nothing is far above them; times=0 asks for a number alone. The last of the
// n + 1 numbers of `losses` counts those that were taken, and once they are n goes around from n to
// 2n: a count in float32 would stop growing at 2^24, and its remainder be wrong before that.
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

constexpr double kEnough = 10;

Body body(const OpCall& call) {
  bool fits = call.inputs.size() == 3 && call.inputs[2].rank() == 1;
  for (const size_t i : {0, 1}) fits = fits && call.inputs[i].rank() == 0;
  if (!fits) fail("watch_loss: wants the numbers loss and count, and losses[n + 1]");
  const double times = call.number("times", 0);
  if (!(times >= 0)) fail("watch_loss: times must be 0 or more, found ", times);
  const auto size = static_cast<double>(call.inputs[2].dim(0)) - 1;
  if (size < kEnough) {
    fail("watch_loss: wants ", kEnough, " losses or more to compare with, found ", size);
  }
  Body body;
  const Expr loss = input(body, 0), losses = input(body, 2), at = index_along(body, 0);
  const Expr zero = constant(body, 0), one = constant(body, 1), most = constant(body, size);
  const Expr counts = equal(at, most);  // and is no loss
  const Expr seen = row_sum(select(counts, losses, zero));
  const Expr usual = row_sum(select(counts, zero, losses)) / max(min(seen, most), one);
  const Expr known = less(constant(body, kEnough - 0.5), seen);
  const Expr limit = usual + (times - 1) * max(usual, -usual);
  const Expr far = times > 0 ? known * less(limit, loss) : zero;
  const Expr take = is_finite(loss) * (1.0 - far);
  const Expr noted = take * less(zero, input(body, 1));
  const Expr oldest = select(less(most - 0.5, seen), seen - most, seen);
  const Expr next = select(less(2.0 * most - 1.5, seen), most, seen + 1.0);
  const Expr with = select(counts, next, select(equal(at, oldest), loss, losses));
  const auto row = BodyOutput::Row::kDropped;
  body.outputs = {{.node = take.node, .row = row},
                  {.node = select(noted, with, losses).node},
                  {.node = usual.node, .row = row}};
  return body;
}

}  // namespace

extern const OpDef op_watch_loss = {
    .name = "watch_loss",
    .summary = "loss, count, losses -> take, losses, usual: is the loss as usual?",
    .body = body,
    .differentiable = false,
    .output_names = {"losses", "usual"},
    .samples =
        [] {
          const auto at = [](int64_t size, double times) {
            return Sample{.inputs = {of({}), of({}), of({size})},
                          .attrs = {{"times", times}},
                          .fills = std::vector<Sample::Fill>(3, Sample::Fill::kPositive)};
          };
          return std::vector<Sample>{at(11, 0), at(12, 2), at(101, 1.5)};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({}), of({})}},
              {.inputs = {of({}), of({}), of({10})}},
              {.inputs = {of({}), of({}), of({101})}, .attrs = {{"times", -1.0}}}};
        },
};

}  // namespace adjoint

// The scale of the loss for the next step (Micikevicius et al., "Mixed Precision Training", 2018):
// halved when this step's gradients were not finite (then the update was skipped), doubled after
// `window` good steps in a row, always in [1, 2^24]. A step without targets has gradients of 0,
// which any scale would do for: it says nothing.
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  bool fits = call.inputs.size() == 4;
  for (const Type& t : call.inputs) fits = fits && t.rank() == 0;
  if (!fits) fail("loss_scale: wants the numbers scale, good, norm and count");
  const int64_t window = call.integer("window", 2000);
  if (window < 1) fail("loss_scale: the window must be 1 step or more, found ", window);
  Body body;
  const Expr scale = input(body, 0), before = input(body, 1), good = before + 1.0;
  const Expr finite = is_finite(input(body, 2)), zero = constant(body, 0);
  const Expr counted = less(zero, input(body, 3));
  const Expr enough = less(constant(body, static_cast<double>(window) - 0.5), good);
  const Expr doubled = min(scale * 2.0, constant(body, 0x1p24));
  const Expr halved = max(scale * 0.5, constant(body, 1));
  const Expr next_scale = select(finite, select(enough, doubled, scale), halved);
  const Expr next_good = select(finite, select(enough, zero, good), zero);
  body.outputs = {{.node = select(counted, next_scale, scale).node},
                  {.node = select(counted, next_good, before).node}};
  return body;
}

}  // namespace

extern const OpDef op_loss_scale = {
    .name = "loss_scale",
    .summary =
        "scale, good, norm, count -> scale, good: halved at overflow, doubled after good steps",
    .body = body,
    .differentiable = false,
    .effect = Effect::kWritesState,
    .output_names = {"good"},
    .samples =
        [] {
          const auto at = [](int64_t window) {
            return Sample{.inputs = std::vector<Type>(4, of({})),
                          .attrs = {{"window", window}},
                          .fills = std::vector<Sample::Fill>(4, Sample::Fill::kPositive)};
          };
          return std::vector<Sample>{at(1), at(2000)};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({}), of({}), of({})}},
              {.inputs = std::vector<Type>(4, of({})), .attrs = {{"window", int64_t{0}}}}};
        },
};

}  // namespace adjoint

// From the loss's count, its scale and a sum of squares of gradients (of scale * sum) to what
// updates need:
//   norm   = sqrt(squares) / (count * scale)             the norm of the mean's gradient
//   factor = min(1, clip / norm) / (count * scale)       divides once, unscales, and clips at once
//   ok     = count > 0 and norm is finite                (clipping: Pascanu et al., 2013)
// clip=0 does not clip. Without squares there is nothing to wait for, and ok = count > 0. A fourth
// number, 1 or 0, says whether somebody else would take this step (watch_loss), and ok follows it.
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  bool fits = call.inputs.size() >= 2 && call.inputs.size() <= 4;
  for (const Type& t : call.inputs) fits = fits && t.rank() == 0;
  if (!fits) {
    fail("gradient_factor: wants the numbers count and scale, and maybe the sum of squares and ",
         "whether to take the step");
  }
  const double clip = call.number("clip", 0);
  if (!(clip >= 0)) fail("gradient_factor: clip must be 0 or more, found ", clip);
  Body body;
  const Expr count = input(body, 0), zero = constant(body, 0), one = constant(body, 1);
  const Expr divide = 1.0 / (max(count, one) * input(body, 1));
  const Expr counted = less(zero, count);
  if (call.inputs.size() == 2) {
    body.outputs = {{.node = divide.node}, {.node = counted.node}};
    return body;
  }
  const Expr norm = sqrt(input(body, 2)) * divide;
  const Expr factor = clip > 0 ? divide * min(one, clip / (norm + 1e-6)) : divide;
  Expr ok = counted * is_finite(norm);
  if (call.inputs.size() == 4) ok = ok * input(body, 3);
  body.outputs = {{.node = factor.node}, {.node = ok.node}, {.node = norm.node}};
  return body;
}

}  // namespace

extern const OpDef op_gradient_factor = {
    .name = "gradient_factor",
    .summary =
        "count, scale, squares, take -> factor, ok, norm: one division and one clipping for all "
        "gradients",
    .body = body,
    .differentiable = false,
    .output_names = {"ok", "norm"},
    .verdict = 1,
    .samples =
        [] {
          const auto at = [](size_t numbers, double clip) {
            return Sample{.inputs = std::vector<Type>(numbers, of({})),
                          .attrs = {{"clip", clip}},
                          .fills = std::vector<Sample::Fill>(numbers, Sample::Fill::kPositive)};
          };
          return std::vector<Sample>{at(2, 0), at(3, 0), at(3, 0.5), at(4, 0.5)};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}}, {.inputs = {of({}), of({}), of({})}, .attrs = {{"clip", -1.0}}}};
        },
};

}  // namespace adjoint

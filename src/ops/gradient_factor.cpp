// From the loss's count and the sum of squares of all gradients (of the sum) to what the update
// needs:
//   norm   = sqrt(squares) / count            the norm of the mean's gradient
//   factor = min(1, clip / norm) / count      divides once and clips at once (Pascanu et al., 2013)
//   ok     = count > 0 and norm is finite
// Without clipping there are no squares to wait for: factor = 1/count, ok = count > 0.
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  const bool clips = call.inputs.size() == 2;
  if (call.inputs.empty() || call.inputs.size() > 2 || call.inputs[0].rank() != 0) {
    fail("gradient_factor: wants the count and, to clip, the sum of squares");
  }
  Body body;
  const Expr count = input(body, 0), zero = constant(body, 0), one = constant(body, 1);
  const Expr divide = 1.0 / max(count, one);
  if (!clips) {
    body.outputs = {{.node = divide.node}, {.node = less(zero, count).node}};
    return body;
  }
  const Expr norm = sqrt(input(body, 1)) * divide;
  const double clip = call.number("clip");
  if (!(clip > 0)) fail("gradient_factor: clip must be above 0, found ", clip);
  const Expr factor = divide * min(one, clip / (norm + 1e-6));
  const Expr ok = less(zero, count) * is_finite(norm);
  body.outputs = {{.node = factor.node}, {.node = ok.node}, {.node = norm.node}};
  return body;
}

}  // namespace

extern const OpDef op_gradient_factor = {
    .name = "gradient_factor",
    .summary =
        "count, squares -> factor, ok, norm: one division and one clipping for all gradients",
    .body = body,
    .differentiable = false,
    .output_names = {"ok", "norm"},
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {of({})}, .fills = {Sample::Fill::kPositive}},
                                     {.inputs = {of({}), of({})},
                                      .attrs = {{"clip", 0.5}},
                                      .fills = {Sample::Fill::kPositive, Sample::Fill::kPositive}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {}},
                                     {.inputs = {of({}), of({})}, .attrs = {{"clip", -1.0}}}};
        },
};

}  // namespace adjoint

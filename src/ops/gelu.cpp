// y = x * P(X <= x) for a standard normal X (Hendrycks and Gimpel, 2016). GPT-2 uses the tanh
// approximation, which is the default here; approximate=none is the exact one.
#include "ops/gelu.h"

#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

Body gelu_gradient() {
  const OpCall gelu{.op = "gelu", .inputs = {{Dtype::kF32, {{"x", 1}}}}, .attrs = {}};
  Body gradient = differentiate(body_of(gelu), space_of(gelu), gelu.inputs, {0}, {0});
  gradient = without_dead_nodes(gradient);
  drop_unused_inputs(gradient);
  gradient.outputs[0].dtype = std::nullopt;  // the operands'
  return gradient;
}

extern const OpDef op_gelu = {
    .name = "gelu",
    .summary = "x * P(X <= x) for a standard normal X, exact or by tanh",
    .params = {{"x"}, {"approximate", Param::Kind::kWord, "tanh"}},
    .body =
        [](const OpCall& call) {
          const std::string kind = call.text("approximate", "tanh");
          if (kind != "tanh" && kind != "none") {
            fail("gelu: approximate must be tanh or none, found '", kind, "'");
          }
          Body body;
          const Expr x = input(body, 0);
          // (1 + tanh(u)) / 2 is sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
          const Expr y =
              kind == "none"
                  ? 0.5 * x * (1.0 - (-erf(x * 0.7071067811865476)))
                  : x * sigmoid(x * (0.07135481627260025 * (x * x) + 1.5957691216057308));
          body.outputs = {{.node = y.node}};
          return body;
        },
    .samples =
        [] {
          auto samples = saturating_samples();
          samples.push_back(
              {.inputs = {of({3, 5})}, .attrs = {{"approximate", std::string("none")}}});
          return samples;
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}},
              {.inputs = {of({3})}, .attrs = {{"approximate", std::string("maybe")}}},
          };
        },
};

}  // namespace adjoint

// p' = p - rate * (factor * g + decay * p)
#include "ops/optimizer_samples.h"

namespace adjoint {

static const UpdateRule kRule = {};

extern const OpDef op_sgd = {
    .name = "sgd",
    .summary = "a step of stochastic gradient descent: p, g, rate, factor, ok -> p",
    .body =
        [](const OpCall& call) {
          check_update(call, 2, 3);
          Body body;
          const Expr p = input(body, 0), g = input(body, 1), rate = input(body, 2);
          const Expr factor = input(body, 3), ok = input(body, 4);
          const Expr next = p - rate * (factor * g + call.number("decay", 0) * p);
          body.outputs = {{.node = select(ok, next, p).node}};
          return body;
        },
    .differentiable = false,
    .effect = Effect::kWritesState,
    .update = &kRule,
    .samples =
        [] {
          return update_samples(2, 3, {{"decay", 0.1}});
        },
    .refused = [] { return update_refusals(2, 3); },
};

}  // namespace adjoint

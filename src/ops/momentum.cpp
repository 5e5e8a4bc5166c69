// v' = momentum * v + factor * g + decay * p;  p' = p - rate * v'   (Polyak, 1964)
#include "ops/optimizer_samples.h"

namespace adjoint {

static const UpdateRule kRule = {.states = {"v"}, .numbers = {"momentum"}};

extern const OpDef op_momentum = {
    .name = "momentum",
    .summary = "a step of gradient descent with momentum: p, g, v, rate, factor, ok -> p, v",
    .body =
        [](const OpCall& call) {
          check_update(call, 3, 3);
          Body body;
          const Expr p = input(body, 0), g = input(body, 1), v = input(body, 2);
          const Expr rate = input(body, 3), factor = input(body, 4), ok = input(body, 5);
          const Expr next_v =
              call.number("momentum") * v + factor * g + call.number("decay", 0) * p;
          body.outputs = {{.node = select(ok, p - rate * next_v, p).node},
                          {.node = select(ok, next_v, v).node}};
          return body;
        },
    .differentiable = false,
    .effect = Effect::kWritesState,
    .output_names = {"v"},
    .update = &kRule,
    .samples =
        [] {
          return update_samples(3, 3, {{"momentum", 0.9}, {"decay", 0.1}});
        },
    .refused = [] { return update_refusals(3, 3); },
};

}  // namespace adjoint

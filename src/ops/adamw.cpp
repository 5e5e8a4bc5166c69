// AdamW (Loshchilov and Hutter, 2019), with g' = factor * g and t the number of steps taken:
//   m' = beta1 m + (1 - beta1) g';  v' = beta2 v + (1 - beta2) g'^2
//   p' = p - rate * (m' / (1 - beta1^t) / (sqrt(v' / (1 - beta2^t)) + eps) + decay * p)
#include <cmath>

#include "ops/optimizer_samples.h"

namespace adjoint {

namespace {

// 1 - beta^t without losing digits when beta^t is near 1: 1 - e^y = -2 h / (1 - h), h = tanh(y/2).
Expr one_minus_power(Expr t, double beta) {
  const Expr h = tanh(t * (std::log(beta) / 2));
  return -2.0 * h / (1.0 - h);
}

Body body(const OpCall& call) {
  check_update(call, 4, 4);
  const double beta1 = call.number("beta1"), beta2 = call.number("beta2");
  Body body;
  const Expr p = input(body, 0), m = input(body, 2), v = input(body, 3), rate = input(body, 4);
  const Expr g = input(body, 5) * input(body, 1), ok = input(body, 6), t = input(body, 7);
  const Expr next_m = beta1 * m + (1 - beta1) * g;
  const Expr next_v = beta2 * v + (1 - beta2) * (g * g);
  const Expr step = next_m / one_minus_power(t, beta1) /
                    (sqrt(next_v / one_minus_power(t, beta2)) + call.number("eps"));
  const Expr next_p = p - rate * (step + call.number("decay", 0) * p);
  body.outputs = {{.node = select(ok, next_p, p).node},
                  {.node = select(ok, next_m, m).node},
                  {.node = select(ok, next_v, v).node}};
  return body;
}

}  // namespace

static const UpdateRule kRule = {
    .states = {"m", "v"}, .counts_steps = true, .numbers = {"beta1", "beta2", "eps"}};

extern const OpDef op_adamw = {
    .name = "adamw",
    .summary = "a step of AdamW: p, g, m, v, rate, factor, ok, t -> p, m, v",
    .body = body,
    .differentiable = false,
    .effect = Effect::kWritesState,
    .output_names = {"m", "v"},
    .update = &kRule,
    .samples =
        [] {
          return update_samples(4, 4,
                                {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"decay", 0.1}});
        },
    .refused = [] { return update_refusals(4, 4); },
};

}  // namespace adjoint

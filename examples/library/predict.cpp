// A program of one's own with libadjoint: it reads a model's text, makes a training step of it
// under a stack, predicts its memory, and runs it to see whether the prediction holds.
//
//   cmake -S . -B build && cmake --build build && build/predict "checkpoint(every=2)"
#include <cstdio>

#include "base/error.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "plan/plan.h"
#include "run/profile.h"
#include "train/bound_model.h"

constexpr const char* kModel = R"(
axes layers=4 hidden=64 heads=4 context=32 vocab=96

block x[batch, seq, hidden]:
  a = attention(linear(layer_norm(x), 3*hidden, name=qkv), heads, causal)
  x = x + linear(a, hidden, name=proj)
  x = x + linear(gelu(linear(layer_norm(x), 4*hidden, name=up)), hidden, name=down)

model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, name=wte) + embed(position, context, name=wpe))
  loss = cross_entropy(linear(layer_norm(x), vocab, bias=no, name=readout), targets)
)";

int main(int argc, char** argv) {
  using namespace adjoint;
  try {
    const BoundModel model({.file = "mine.scheme", .text = kModel}, {.batch = 8});
    const Stack stack = parse_stack(argc > 1 ? argv[1] : "");
    const Scheme step = build_step(model.forward(), stack, StepOptions{}).scheme;
    const Plan plan = make_plan(step, PlanOptions{.threads = num_threads()});
    std::printf("%zu morphisms, %lld bytes predicted\n", step.morphisms.size(),
                static_cast<long long>(plan.arena.count));

    const Measured run = measure_step(step, plan, {.steps = 10});
    std::printf("%lld bytes touched\n", static_cast<long long>(run.touched.count));
    std::printf("loss %.4f, after %zu steps %.4f\n", run.losses.front(), run.losses.size(),
                run.losses.back());
  } catch (const Error& error) {
    std::fprintf(stderr, "predict: %s\n", error.what());
    return 1;
  }
}

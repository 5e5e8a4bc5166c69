// The same object in another tier: `tier` says in which its result lies. On a CPU both are memory,
// so it is a copy.

#include "base/error.h"
#include "ops/axes.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1) fail("move: wants one operand, found ", call.inputs.size());
  const std::string tier = call.text("tier");
  if (tier != "host" && tier != "device") {
    fail("move: the tier must be host or device, found '", tier, "'");
  }
  return {call.inputs[0]};
}

std::vector<Sample> samples() {
  return {{.inputs = {of({3, 5})}, .attrs = {{"tier", std::string("host")}}},
          {.inputs = {of({})}, .attrs = {{"tier", std::string("device")}}},
          {.inputs = {of({2, 1031}, Dtype::kI32)},
           .attrs = {{"tier", std::string("host")}},
           .fills = {Sample::Fill::kIds}}};
}

std::vector<Sample> refused() {
  return {{.inputs = {of({3})}, .attrs = {{"tier", std::string("moon")}}},
          {.inputs = {}, .attrs = {{"tier", std::string("host")}}}};
}

}  // namespace

extern const OpDef op_move = {
    .name = "move",
    .summary = "the same object in another tier of memory",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string letters = leading_letters(call.inputs[0], 0);
          return IndexMap{{letters}, {letters}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .takes_padding = true,
    .linear = [](const OpCall&) { return Linear::kTogether; },
    .moves = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

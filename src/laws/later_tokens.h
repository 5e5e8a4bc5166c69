// Whether the loss of a position depends on tokens behind it, as with `shift(x, -1)` or an
// attention that is not causal. Such a model learns to copy what it should predict, and generates
// nothing of use; but an encoder is meant so, hence nobody refuses it.
#pragma once
#include "functors/stack.h"
#include "train/bound_model.h"

namespace adjoint {

// One sentence that names the first call and its line; nothing where no loss depends on later
// tokens. Where some call mixes positions otherwise than a causal attention, a small copy of the
// model with the stack is evaluated in float64 twice, with other tokens in the second half of every
// sample: a mask that a text writes by itself hides them as well as an op's own. `set` are the
// settings that the user said.
std::optional<std::string> doubt_about_later_tokens(const BoundModel& model,
                                                    const nlohmann::json& set, const Stack& stack,
                                                    const StepOptions& options);

}  // namespace adjoint

// A forward scheme as it is used when nothing is trained.
#pragma once
#include "scheme/scheme.h"

namespace adjoint {

// The forward scheme as it is evaluated: random ops become what they are on average, the identity
// of their first operand, and calls that draw random numbers beside their work draw none.
Scheme without_randomness(const Scheme& forward);

// The forward scheme without its loss, its output what the loss takes the softmax of: the logits,
// soft-capped where the loss caps them. Of several losses it is the first one whose targets are the
// input `targets`, the next tokens; a model where none is refused.
Scheme logits_of(const Scheme& forward);

// The forward scheme whose outputs are the sum of its targets' negative log probabilities and how
// many they are: the same loss, without what other losses, smoothing and the like add to train
// better.
Scheme likelihood_of(const Scheme& forward);

}  // namespace adjoint

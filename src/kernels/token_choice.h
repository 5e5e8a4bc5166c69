// The host's way to draw a token (ops/choose_token.h): the CPU's kernel, and whoever has logits in
// hand.
#pragma once
#include <span>

#include "ops/choose_token.h"

namespace adjoint {

int32_t drawn_token(std::span<const float> logits, const TokenChoice& choice);

}  // namespace adjoint

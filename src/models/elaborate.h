// A model's text and its settings -> the forward scheme: every size concrete, every repetition
// written out, boxes left as paths (block[3].qkv.weight).
#pragma once
#include "models/settings.h"
#include "scheme/scheme.h"

namespace adjoint {

// Inputs: the model box's formals (i32 unless they say otherwise), then parameters and control in
// the order in which they arise. Outputs: what the model's last statement names; for a loss that is
// the pair (sum, count). An Error names file, line and column.
Scheme elaborate(const Document& document, std::string_view file, const ModelConfig& config);

}  // namespace adjoint

// The mean loss of a text, window by window.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "run/run.h"

namespace adjoint {

// Goes once through the tokens with a run of an evaluation scheme, whose inputs are tokens and
// targets [batch, context]. What does not fill a window is left out. Nothing if `stop` interrupted
// it or no target was counted.
std::optional<double> mean_loss(Run& evaluation, std::span<const int32_t> tokens,
                                const std::atomic<bool>& stop);

}  // namespace adjoint

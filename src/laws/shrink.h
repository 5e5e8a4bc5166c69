// The user's own model made small: the same text and preset with other settings, so that a law can
// be checked in seconds. What each axis is for is found from how the text uses it.
#pragma once
#include "train/bound_model.h"

namespace adjoint {

struct ShrinkWish {
  int64_t width = 64;   // of the state that runs through the blocks
  int64_t repeats = 4;  // of each box that is repeated, at most as many as it has
  int64_t batch = 6;
  int64_t context = 8;
  int64_t vocab = 61;
  double dropout = 0.1;  // where the model has none
};

// What an axis of the text is for.
enum class AxisUse : uint8_t {
  kDerived,  // another setting says its size
  kRepeats,  // how often a box is repeated
  kContext,
  kVocab,  // rows of a table that the model's inputs look up
  kWidth,  // comparable to the width of what is looked up
  kSmall,  // heads, experts, windows
};
// `set` are the axes that the user set: those are plain numbers now.
std::map<std::string, AxisUse> axis_uses(const BoundModel& model, const nlohmann::json& set);

// The largest ratios between small axes that still make a model of about this width. Small axes
// shrink together, as far as each head keeps a few numbers; where no size fits, the width grows. An
// Error when none does: the message is the model's own about the first try.
BoundModel shrunken(const BoundModel& model, const nlohmann::json& set, const ShrinkWish& wish);
// The model at its own sizes, random ops as they are in a copy: the same objects with fewer blocks.
BoundModel with_rates(const BoundModel& model, const nlohmann::json& set, const ShrinkWish& wish);
std::string describe(const BoundModel& model);  // layers=4 hidden=64 ..., batch 6 x 12

}  // namespace adjoint

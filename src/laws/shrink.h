// Makes a small copy of the user's own model, with the same text and preset and other settings, so
// that a law can be checked in seconds. How the text uses an axis tells what it is for.
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
  // Numbers of ranks. An axis that such a number divides in the model is divided by it in the copy,
  // and one that it does not is not, so that shards are padded in both or in neither.
  std::vector<int64_t> ranks = {};
  // Settings that say from which position on something else happens, a window, and what they are in
  // the copy (scaled_reaches).
  std::map<std::string, int64_t> said = {};
};
// The settings of the model's text, axes and numbers, that move such a position and are larger than
// a copy shows, each with a size that it shows.
std::map<std::string, int64_t> scaled_reaches(const BoundModel& model, const nlohmann::json& set);
// Of every axis of a mesh, and of every two of them together.
std::vector<int64_t> ranks_to_keep(const std::vector<MeshAxis>& mesh);

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

// The copy keeps the ratios between small axes as far as its width allows. Small axes shrink
// together, but each head keeps a few numbers; where no size fits, the width grows. Throws an Error
// if none fits, with the model's own message about the first attempt.
BoundModel shrunken(const BoundModel& model, const nlohmann::json& set, const ShrinkWish& wish);
// The model at its own sizes, with the copy's dropout rates, so that both have the same kinds of
// objects.
BoundModel with_rates(const BoundModel& model, const nlohmann::json& set, const ShrinkWish& wish);
// One sentence for each axis that a number of ranks divides in the model and not in its copy, or
// the other way round.
std::vector<std::string> divided_otherwise(const BoundModel& model, const BoundModel& copy,
                                           const std::vector<int64_t>& ranks);
std::string describe(const BoundModel& model);  // layers=4 hidden=64 ..., batch 6 x 12

}  // namespace adjoint

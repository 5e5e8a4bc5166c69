// Zero bubble by hand (Qi et al., 2024, section 2): the gradient by the input goes on at once, and
// the weights' gradients fill what would be a bubble. H1 keeps 1F1B's memory; H2 begins with twice
// as many forward passes, and where all three kinds take the same time a rank never waits between
// its first slot and its last.
#include <algorithm>

#include "schedules/table.h"

namespace adjoint {

namespace {

// `ahead` forward passes before the first backward one; weights' gradients `lag` parts behind it.
std::vector<Slot> with_weights_behind(int parts, int rank, int ahead, int lag) {
  ahead = std::min(parts, ahead);
  std::vector<Slot> list;
  for (int part = 0; part < ahead; ++part) list.push_back({SlotKind::kForward, part, rank});
  for (int part = 0; part < parts; ++part) {
    list.push_back({SlotKind::kBackward, part, rank});
    if (part >= lag) list.push_back({SlotKind::kWeight, part - lag, rank});
    if (part + ahead < parts) list.push_back({SlotKind::kForward, part + ahead, rank});
  }
  for (int part = std::max(0, parts - lag); part < parts; ++part) {
    list.push_back({SlotKind::kWeight, part, rank});
  }
  return list;
}

}  // namespace

std::vector<Slot> zero_bubble_list(const PipelineShape& shape, int rank) {
  return with_weights_behind(shape.parts, rank, shape.ranks - rank, rank);
}

std::vector<Slot> zb_h2_list(const PipelineShape& shape, int rank) {
  return with_weights_behind(shape.parts, rank, 2 * (shape.ranks - rank) - 1, 2 * rank);
}

}  // namespace adjoint

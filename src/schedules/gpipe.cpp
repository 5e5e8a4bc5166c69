// GPipe (Huang et al., 2018): all parts forward, then all backward. Every part is in flight at
// once. Backward passes take the parts in the same order, so that gradients are summed as
// accumulate sums them; the bubble does not depend on it.
#include "schedules/table.h"

namespace adjoint {

std::vector<Slot> gpipe_list(const PipelineShape& shape, int rank) {
  std::vector<Slot> list;
  for (const SlotKind kind : {SlotKind::kForward, SlotKind::kBackward}) {
    for (int part = 0; part < shape.parts; ++part) list.push_back({kind, part, rank});
  }
  return list;
}

}  // namespace adjoint

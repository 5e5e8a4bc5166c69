// 1F1B (PipeDream-Flush, DAPPLE): a rank runs forward until the first gradient can reach it, then
// backward and forward in turns, so that it has no more parts in flight than there are ranks from
// it to the end.
#include <algorithm>

#include "schedules/table.h"

namespace adjoint {

std::vector<Slot> one_f_one_b_list(const PipelineShape& shape, int rank) {
  const int ahead = std::min(shape.parts, shape.ranks - rank);
  std::vector<Slot> list;
  for (int part = 0; part < ahead; ++part) list.push_back({SlotKind::kForward, part, rank});
  for (int part = 0; part < shape.parts; ++part) {
    list.push_back({SlotKind::kBackward, part, rank});
    const int next = part + ahead;
    if (next < shape.parts) list.push_back({SlotKind::kForward, next, rank});
  }
  return list;
}

}  // namespace adjoint

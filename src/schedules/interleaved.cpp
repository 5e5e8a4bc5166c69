// Interleaved 1F1B (Narayanan et al., 2021), in Megatron's order: a rank holds several chunks, and
// as many parts as there are ranks go through one of them before the next chunk's turn. Backward
// passes take the chunks from the last to the first.
#include <algorithm>

#include "schedules/table.h"

namespace adjoint {

namespace {

// The n-th forward, or backward, slot of a rank.
Slot nth(SlotKind kind, int n, const PipelineShape& shape, int rank) {
  const int round = n / (shape.ranks * shape.per_rank);  // of `ranks` parts through all its chunks
  const int turn = n / shape.ranks % shape.per_rank;
  const int own = kind == SlotKind::kForward ? turn : shape.per_rank - 1 - turn;
  return {kind, round * shape.ranks + n % shape.ranks, own * shape.ranks + rank};
}

}  // namespace

std::vector<Slot> interleaved_list(const PipelineShape& shape, int rank) {
  if (shape.per_rank == 1) return one_f_one_b_list(shape, rank);
  const int total = shape.parts * shape.per_rank;
  const int warm_up = (shape.ranks - rank - 1) * 2 + (shape.per_rank - 1) * shape.ranks;
  const int ahead = std::min(total, warm_up + 1);
  std::vector<Slot> list;
  for (int n = 0; n < ahead; ++n) list.push_back(nth(SlotKind::kForward, n, shape, rank));
  for (int n = 0; n < total; ++n) {
    list.push_back(nth(SlotKind::kBackward, n, shape, rank));
    if (n + ahead < total) list.push_back(nth(SlotKind::kForward, n + ahead, shape, rank));
  }
  return list;
}

}  // namespace adjoint

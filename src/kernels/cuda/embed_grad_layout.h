// Where embed_grad's CUDA kernels keep what is between them. Known from shapes alone, because plans
// are made where no GPU is.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// Runs of one id are summed in pieces of this many places, and the pieces then in order: an id that
// half of the places have would otherwise be one long sum of one block.
inline constexpr int64_t kPiecePlaces = 128;

struct EmbedGradLayout {
  explicit EmbedGradLayout(const KernelCall& call);
  int64_t places, rows, width;
  int64_t slots;  // for sums of pieces
  // Offsets in the workspace. Ids and places have two buffers each: a sort goes to and fro.
  Bytes ids[2], sources[2], starts, sums, sort, total;
  Bytes sort_size;  // enough for a sort of our own, and as a rule for CUB's
};

}  // namespace adjoint

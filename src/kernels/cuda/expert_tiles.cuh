// Products of experts' 16-bit rows by tensor cores. A block makes tiles of 128 x 256 results and
// takes one tile after another of a list that only the device knows the length of. Steps of 64
// terms are copied ahead into stages of shared memory, also across the end of a tile: while a tile
// is written, the next is on its way.
//
// What is multiplied (where tiles are, how they are copied and written: expert_products.cuh,
// expert_row_sums.cuh) is apart from the instructions that multiply (expert_mma.cuh and
// expert_wgmma.cuh). Here is what all of them share: how a stage lies in shared memory, how it is
// copied, and the list of tiles.
//
// Both operands lie in shared memory in lines of 128 bytes whose 16-byte chunks are permuted by
// their line (chunk ^ line % 8), which is wgmma's 128-byte swizzle, too. A line holds either 64
// terms of one row of results ("terms run along lines"), or 64 results of one term, with 64 lines
// for each 64 results; ldmatrix transposes the latter. So weights are read as they lie, transposed
// or not, and rows are gathered by the copies.
#pragma once
#include "kernels/cuda/expert_sort.cuh"

namespace adjoint::experts::tiles {

constexpr int kRows = kExpertTileRows, kColumns = kExpertTileColumns, kTerms = kExpertTileTerms;
constexpr int kThreads = 256;
constexpr int kLine = 128, kChunk = 16, kBlock = kTerms * kLine;  // bytes; of 64 results' terms
constexpr int kStageA = kRows * kLine, kStageBytes = (kRows + kColumns) * kLine;
constexpr int kElements = kChunk / 2;  // of a chunk
static_assert(kRows * kLine == kRows / 64 * kBlock);

inline size_t shared_bytes(int stages, int64_t experts) {
  return stages * kStageBytes + 4 * (experts + 1);
}

// ---- copies into shared memory ----

// Copies `bytes` of 16, and zeros for the rest. Where chunks are whole, `bytes` is 16 or 0, and
// that is one instruction; any other number is several.
template <bool kWhole>
__device__ void copy_chunk(uint32_t to, const void* from, int bytes) {
  if constexpr (kWhole) {
    asm volatile(
        "{ .reg .pred none; setp.eq.s32 none, %2, 0;\n"
        "cp.async.cg.shared.global [%0], [%1], 16, none; }\n" ::"r"(to),
        "l"(from), "r"(bytes)
        : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  }
}
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kOpen>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kOpen) : "memory");
}

// Threads copy kLines at once, and each a chunk of every so-manieth line, so its places lie as far
// apart as the lines do. A step has few cycles to spare: whatever a tile knows of its copies is
// kept for all of its steps.
__device__ inline int own_chunk() { return threadIdx.x % 8; }
__device__ inline int own_line() { return threadIdx.x / 8; }
__device__ inline uint32_t own_place(uint32_t stage) {
  return stage + own_line() * kLine + ((own_chunk() ^ (own_line() % 8)) * kChunk);
}
// The bytes of a chunk that are within so many elements, of which the chunk begins at `first`. That
// matters where a chunk is of terms; what lies behind the last result of a row makes results that
// nobody writes.
__device__ inline int bytes_within(int first, int count) {
  return ::max(0, ::min(kChunk, 2 * (count - first)));
}

// ---- the list of tiles, seen twice: by who copies ahead and by who multiplies ----

struct Tile {
  int expert = 0;
  int first = 0, past = 0;  // rows, in the order of experts
  int m0 = 0, n0 = 0;       // where results begin
  int steps = 0;
  float* part = nullptr;  // where the sums go if others have the rest of the terms
};

// A place in the list: tiles come in units, which blocks take in turns, and a unit may hold more
// than one tile, told apart by the step that they begin with.
struct Cursor {
  int64_t unit;
  int step;
};

// The one who copies: it knows the tile and the step that come next, ahead of whoever multiplies.
template <class Work, int kLines>
struct Ahead {
  const Work& work;
  const int* before;
  int64_t units;
  Cursor next;
  Tile tile = {};
  typename Work::template Source<kLines> source = {};
  int step = 0;

  __device__ Ahead(const Work& work, const int* before, int64_t units)
      : work(work), before(before), units(units), next(work.enter(before, blockIdx.x)) {}

  __device__ bool has_step() {
    while (step == tile.steps && next.unit < units) {  // a tile without steps is nothing to copy
      tile = work.tile(before, next);
      next = work.after(before, next, tile);
      step = 0;
      if (tile.steps > 0) source = work.template source<kLines>(tile);
    }
    return step < tile.steps;
  }
  __device__ void copy_step(uint32_t stage) {
    if (work.whole_chunks()) {
      work.template copy<true>(source, tile, step++, stage);
    } else {
      work.template copy<false>(source, tile, step++, stage);
    }
  }
};

// Results of a warp: kDown x 16 rows by kAcross x 8 columns. A thread has, of each 16 x 8, row
// lane / 4 and the row 8 below, columns 2 * (lane % 4) and the next.
template <int kDown, int kAcross>
using SumsOf = float[kDown][kAcross][4];

}  // namespace adjoint::experts::tiles

// A body's iteration space as kernels walk it: which axes are merged, which are summed, what varies
// along a row. And how the CPU runs it: where every value lives, how sums over leading axes are
// split among threads. All of it follows from shapes alone, so the planner can size workspaces.
#pragma once
#include "kernels/cpu/jit/body_segments.h"
#include "kernels/kernel.h"

namespace adjoint {

inline constexpr int64_t kPiece = 1024;  // elements: 4 KiB per register, and half a dozen fit in L1
inline constexpr int64_t kMaxBlocks = 64;  // of rows, for sums over leading axes
inline constexpr int64_t kWideSuffix =
    16384;  // elements: from here on threads split sums by column

// The iteration space after merging, and what is known of it before any data.
struct BodySpace {
  Body body;
  std::vector<int64_t> dims;     // leading (summed) axes, then the rest; the last is the row
  std::vector<size_t> leads;     // per output: how many leading axes it sums
  size_t leading = 0;            // the fewest axes that any sum sums
  std::vector<Strides> in, out;  // along dims
  std::vector<bool> varies;      // per node: along the row
  bool sums = false;
  bool alike = true;                  // all sums are of whole rows over the same axes
  int64_t rows = 1, summed_rows = 1;  // in all, and those that are summed
  int64_t sample = 1;                 // elements of one sample, for random counters
  std::vector<int64_t> sum_size;      // per output: elements of its sums, 0 if it has none

  int64_t row() const { return dims.back(); }
  int64_t suffix_rows() const { return rows / summed_rows; }
};
BodySpace space_layout(const KernelCall& call);

struct Layout : BodySpace {
  std::vector<int> slot;  // per node: its register, or -1
  int num_slots = 0;
  TilePlan tile;           // how generated code runs it
  int64_t tile_bytes = 0;  // of the arguments of generated code
  int64_t piece = 0;       // elements of a register
  bool by_column = false;
  // Blocks of summed rows. Their number depends on the shape and on `leading` alone, so a body
  // gives the same bits alone and joined to others.
  int64_t blocks = 1;

  int64_t total_sums() const {
    int64_t total = 0;
    for (const int64_t size : sum_size) total += size;
    return total;
  }
  // Bytes of one thread's registers.
  Bytes thread_bytes() const {
    const int64_t nodes = static_cast<int64_t>(body.nodes.size());
    Bytes bytes = round_up({tile_bytes}, {64}) + round_up({nodes * 8}, {64});
    bytes += {int64_t{num_slots} * round_up({piece * 4}, {64}).count};
    if (by_column) bytes += {kPiece * num_summed() * (4 + 8)};  // of a block, and of all blocks
    return bytes;
  }
  int64_t num_summed() const {
    int64_t count = 0;
    for (const int64_t size : sum_size) count += size > 0;
    return count;
  }
  Bytes block_bytes() const { return by_column ? Bytes{0} : Bytes{blocks * total_sums() * 4}; }
};

Layout lay_out(const KernelCall& call);

}  // namespace adjoint

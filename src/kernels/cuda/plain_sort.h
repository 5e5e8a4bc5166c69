// Pairs sorted stably by the lowest bits of their keys, in next to no memory: what serves where a
// library's sort wants a larger workspace than was planned. The same result, some times slower.
#pragma once
#include <cstdint>

#include "base/bytes.h"

struct CUstream_st;  // a cudaStream_t points to one

namespace adjoint {

inline constexpr int64_t kSortTile = 1024;  // pairs that one block moves
inline constexpr int kSortDigits = 16;      // of four bits, one pass each

// The workspace of a sort: where each tile puts its pairs of each digit.
inline Bytes plain_sort_workspace(int64_t count) {
  return ((count + kSortTile - 1) / kSortTile * kSortDigits) * Bytes{4};
}

// Each has two buffers, and passes go to and fro. Returns which of them holds the result: that
// depends on the number of bits alone. Enqueues, and fails like any launch (MachineError).
struct SortedPairs {
  uint32_t *keys[2], *values[2];
};
int plain_sort(const SortedPairs& pairs, int count, int bits, void* workspace, CUstream_st* stream);

}  // namespace adjoint

// Rows sorted by the experts that they chose, in one launch and without the host: a block for each
// expert and slice of the rows counts all ids, then writes its own rows in their order. Ids are few
// beside the rows that they stand for, and stay in the L2 cache.
//
// And how a grid that does not know the counts shares out tiles of the experts' rows: a block adds
// up the tiles of all experts, and takes every so-manieth of them.
#pragma once
#include <algorithm>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/expert_layout.h"

namespace adjoint::experts {

// n / divisor of numbers up to 2^31, without a division.
struct Quotient {
  uint32_t factor;
  int shift;

  explicit Quotient(int divisor) : shift(31) {
    while ((int64_t{1} << (shift - 31)) < divisor) ++shift;
    factor = static_cast<uint32_t>((uint64_t{1} << shift) / divisor + 1);
  }
  __device__ int of(int n) const {
    return static_cast<int>(uint64_t{factor} * static_cast<uint32_t>(n) >> shift);
  }
};

// The rows of expert e are order[starts[e]] to order[starts[e + 1]].
struct Sorted {
  int32_t *order, *starts;
  int rows, experts, chosen;
  Quotient by_choices;

  __device__ int token(int row) const { return by_choices.of(row); }
};

constexpr int kSortThreads = 1024;

__device__ inline int2 add(int2 a, int2 b) { return make_int2(a.x + b.x, a.y + b.y); }

// Sums of all threads before this one, and of all threads.
__device__ inline int2 scan_block(int2 mine, int2& total) {
  __shared__ int2 sums[kSortThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int2 here = mine;
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int2 other =
        make_int2(__shfl_up_sync(~0u, here.x, lanes), __shfl_up_sync(~0u, here.y, lanes));
    if (lane >= lanes) here = add(here, other);
  }
  if (lane == 31) sums[warp] = here;
  __syncthreads();
  int2 before = make_int2(0, 0);
  total = make_int2(0, 0);
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) {
    if (w < warp) before = add(before, sums[w]);
    total = add(total, sums[w]);
  }
  return make_int2(before.x + here.x - mine.x, before.y + here.y - mine.y);
}

// Slices are of whole kSortThreads. In a slice, warps take neighbouring shares, 32 rows at once, so
// that what a block writes is in the order of the data.
static __global__ void __launch_bounds__(kSortThreads)
    sort_rows(Sorted s, const int32_t* choice, int slice) {
  const int expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto id_of = [&](int i) { return ::max(0, ::min(choice[i], s.experts - 1)); };
  const int64_t slice_begin = int64_t{blockIdx.y} * slice;
  int2 mine = make_int2(0, 0);  // rows of experts before this one, and of this one before the slice
#pragma unroll 16
  for (int64_t i = threadIdx.x; i < s.rows; i += kSortThreads) {
    const int id = id_of(static_cast<int>(i));
    mine.x += id < expert;
    mine.y += id == expert && i < slice_begin;
  }
  int2 total;
  scan_block(mine, total);
  // And those of this one in the slice, by warps.
  const int share = slice / (kSortThreads / 32);
  const int64_t begin = slice_begin + int64_t{warp} * share;
  mine = make_int2(0, 0);
#pragma unroll 8
  for (int turn = 0; turn < share; turn += 32) {
    const int64_t i = begin + turn + lane;
    mine.x += i < s.rows && id_of(static_cast<int>(i)) == expert;
  }
  int2 in_slice;
  __syncthreads();  // the scan before has been read
  const int2 before = scan_block(mine, in_slice);
  int to = total.x + total.y + __shfl_sync(~0u, before.x, 0);
#pragma unroll 8
  for (int turn = 0; turn < share; turn += 32) {
    const int64_t i = begin + turn + lane;
    const bool chosen = i < s.rows && id_of(static_cast<int>(i)) == expert;
    const unsigned all = __ballot_sync(~0u, chosen);
    if (chosen) s.order[to + __popc(all & ((1u << lane) - 1))] = static_cast<int>(i);
    to += __popc(all);
  }
  if (blockIdx.y || threadIdx.x) return;
  s.starts[expert] = total.x;
  if (expert == s.experts - 1) s.starts[s.experts] = s.rows;
}

inline Sorted sorted_at(const ExpertRows& rows, const ExpertLayout& layout, void* workspace) {
  if (rows.count() > INT32_MAX || rows.experts > kMostExperts) {
    throw MachineError("expert_linear: CUDA takes no more than 2^31 rows and " +
                       std::to_string(kMostExperts) + " experts");
  }
  auto* bytes = static_cast<char*>(workspace);
  return {.order = reinterpret_cast<int32_t*>(bytes + layout.order.count),
          .starts = reinterpret_cast<int32_t*>(bytes + layout.starts.count),
          .rows = static_cast<int>(rows.count()),
          .experts = static_cast<int>(rows.experts),
          .chosen = static_cast<int>(rows.chosen),
          .by_choices = Quotient(std::max(1, static_cast<int>(rows.chosen)))};
}
inline void launch_sort(const Sorted& sorted, const int32_t* choice, cudaStream_t stream) {
  // Blocks for most of a GPU, if each has a few turns of its own.
  const int64_t most = std::max(1, 128 / sorted.experts);
  const int64_t slices = std::clamp<int64_t>(sorted.rows / (4 * kSortThreads), 1, most);
  const auto slice =
      static_cast<int>(ceil_div(ceil_div(sorted.rows, slices), kSortThreads) * kSortThreads);
  const dim3 blocks(sorted.experts, static_cast<unsigned>(slices));
  sort_rows<<<blocks, kSortThreads, 0, stream>>>(sorted, choice, slice);
}

// before[e] = tiles of `height` rows of all experts before e; before[experts] = all of them.
__device__ inline void count_tiles(const Sorted& s, int height, int* before) {
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    int sum = 0;
    for (int first = 0; first < s.experts; first += 32) {
      const int e = first + lane;
      int tiles = e < s.experts ? (s.starts[e + 1] - s.starts[e] + height - 1) / height : 0;
      int here = tiles;
#pragma unroll
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const int other = __shfl_up_sync(~0u, here, lanes);
        if (lane >= lanes) here += other;
      }
      if (e < s.experts) before[e] = sum + here - tiles;
      sum += __shfl_sync(~0u, here, 31);
    }
    if (lane == 0) before[s.experts] = sum;
  }
  __syncthreads();
}

// The expert whose tile this is.
__device__ inline int expert_of(const int* before, int experts, int tile) {
  int low = 0, high = experts - 1;  // the last expert that begins at or before the tile
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (before[middle] <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

inline int device_attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check_cuda(cudaGetDevice(&device), "expert_linear");
  check_cuda(cudaDeviceGetAttribute(&value, which, device), "expert_linear");
  return value;
}
inline int multiprocessors() { return device_attribute(cudaDevAttrMultiProcessorCount); }

// What the kernels multiply. Steps count elements; a weight has strides of its own for experts,
// results and terms, because the transposed one is read where it lies.
struct RowProducts {
  Sorted sorted;
  int in, out;
  bool x_each;
  int64_t x_step, y_step, bias_step;
  int64_t w_expert, w_out, w_in;
};
struct RowSums {
  Sorted sorted;
  int p, q;
  bool a_each, b_each;
  int64_t a_step, b_step;
  int64_t to_expert, to_step, addend_expert, addend_step;
  Dtype out;
};

}  // namespace adjoint::experts

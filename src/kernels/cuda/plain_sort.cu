// A radix sort from the lowest digit up. Each pass counts the digits of every tile, adds the counts
// up in the order (digit, tile), and moves every pair to its place. In a tile one thread moves all
// pairs of one digit, from left to right, so that pairs of one key keep their order.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/plain_sort.h"

namespace adjoint {

namespace {

constexpr int kTile = static_cast<int>(kSortTile), kThreads = 256, kScanThreads = 1024;
constexpr int kDigitBits = 4;
static_assert(1 << kDigitBits == kSortDigits && kSortDigits <= kThreads);

__device__ int digit_of(uint32_t key, int shift) { return (key >> shift) % kSortDigits; }

// counts[digit][tile]
__global__ void count_digits(const uint32_t* keys, int count, int shift, uint32_t* counts) {
  __shared__ uint32_t sums[kSortDigits];
  if (threadIdx.x < kSortDigits) sums[threadIdx.x] = 0;
  __syncthreads();
  const int begin = static_cast<int>(blockIdx.x) * kTile, end = ::min(begin + kTile, count);
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    atomicAdd(&sums[digit_of(keys[i], shift)], 1u);
  }
  __syncthreads();
  if (threadIdx.x < kSortDigits) counts[threadIdx.x * gridDim.x + blockIdx.x] = sums[threadIdx.x];
}

// Each number becomes the sum of those before it. One block: a thousand tiles are a million pairs.
__global__ void add_up(uint32_t* numbers, int64_t count) {
  __shared__ uint32_t sums[kScanThreads];
  uint32_t before = 0;  // the sum of what earlier rounds read
  for (int64_t begin = 0; begin < count; begin += kScanThreads) {
    const int64_t i = begin + threadIdx.x;
    const uint32_t own = i < count ? numbers[i] : 0;
    sums[threadIdx.x] = own;
    __syncthreads();
    for (unsigned step = 1; step < kScanThreads; step *= 2) {
      const uint32_t left = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += left;
      __syncthreads();
    }
    if (i < count) numbers[i] = before + sums[threadIdx.x] - own;
    before += sums[kScanThreads - 1];
    __syncthreads();
  }
}

__global__ void move_pairs(const uint32_t* keys, const uint32_t* values, int count, int shift,
                           const uint32_t* places, uint32_t* to_keys, uint32_t* to_values) {
  __shared__ uint32_t tile_keys[kTile], tile_values[kTile];
  const int begin = static_cast<int>(blockIdx.x) * kTile, here = ::min(kTile, count - begin);
  for (int i = static_cast<int>(threadIdx.x); i < here; i += kThreads) {
    tile_keys[i] = keys[begin + i];
    tile_values[i] = values[begin + i];
  }
  __syncthreads();
  if (threadIdx.x >= kSortDigits) return;
  uint32_t to = places[threadIdx.x * gridDim.x + blockIdx.x];
  for (int i = 0; i < here; ++i) {
    if (digit_of(tile_keys[i], shift) != static_cast<int>(threadIdx.x)) continue;
    to_keys[to] = tile_keys[i];
    to_values[to++] = tile_values[i];
  }
}

}  // namespace

int plain_sort(const SortedPairs& pairs, int count, int bits, void* workspace,
               cudaStream_t stream) {
  auto* counts = static_cast<uint32_t*>(workspace);
  const auto tiles = static_cast<unsigned>(ceil_div(count, kTile));
  int at = 0;
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    const uint32_t *keys = pairs.keys[at], *values = pairs.values[at];
    at = 1 - at;
    if (count == 0) continue;
    count_digits<<<tiles, kThreads, 0, stream>>>(keys, count, shift, counts);
    add_up<<<1, kScanThreads, 0, stream>>>(counts, int64_t{tiles} * kSortDigits);
    move_pairs<<<tiles, kThreads, 0, stream>>>(keys, values, count, shift, counts, pairs.keys[at],
                                               pairs.values[at]);
  }
  check_launch("a sort");
  return at;
}

}  // namespace adjoint

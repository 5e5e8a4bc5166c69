// Tokens are ordered by a key of 64 bits, the logit's bits and then the id's, all of them
// different. Many blocks look for the largest key of a row; then one block draws, and where the
// likeliest token is wanted it has nothing more to do. What is kept by top_k and top_p is all keys
// from some key on, which is found digit by digit: sums of one digit's values are whole numbers, so
// that their order does not matter. Shares are computed again wherever they are asked for; most of
// them are known to be 0 without.
#include <cstdint>

#include "kernels/cuda/choose_token_layout.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "ops/choose_token.h"

namespace adjoint {

namespace {

constexpr int kChoosers = 1024, kChooserWarps = kChoosers / 32, kDigit = 8, kDigits = 1 << kDigit;
using Whole = unsigned long long;

// Larger for what comes first: the logit's bits in the order of numbers, and then the lower id.
__device__ Whole key_of(float logit, int token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // there is one zero
  const uint32_t ordered = ::isnan(logit) ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return Whole{ordered} << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
__device__ int token_of(Whole key) { return static_cast<int>(0xffffffffu - uint32_t(key)); }
__device__ float logit_of(Whole key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

template <class T>
struct Row {
  const T* logits;
  int size;

  __device__ float logit(int token) const { return static_cast<float>(widen(logits[token])); }
};

struct Shares {
  float largest;
  double temperature;

  __device__ Whole of(float logit) const {
    const double below = logit == largest ? 0.0 : (double(logit) - double(largest)) / temperature;
    return below >= kLeastLogit ? Whole(::llrint(::exp(below) * kWholeShare)) : 0;
  }
};

template <int kWarps, class W>
__device__ W max_over_block(W mine) {
  __shared__ W of_warps[kWarps];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) mine = ::max(mine, __shfl_xor_sync(~0u, mine, lanes));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  W all = of_warps[0];
  for (int w = 1; w < kWarps; ++w) all = ::max(all, of_warps[w]);
  __syncthreads();
  return all;
}

__device__ Whole sum_over_warp(Whole mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
  return mine;
}

__device__ Whole sum_over_block(Whole mine) {
  __shared__ Whole of_warps[kChooserWarps];
  mine = sum_over_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  Whole all = 0;
  for (int w = 0; w < kChooserWarps; ++w) all += of_warps[w];
  __syncthreads();
  return all;
}

// The last key that is kept: the weights of all that come before it sum to less than `wanted`.
// weight(key) is asked of keys from `least` on. 0: all are kept.
template <class T, class Weight>
__device__ Whole last_kept(const Row<T>& row, Whole least, Whole wanted, const Weight& weight) {
  __shared__ Whole sums[kDigits];
  __shared__ Whole found, before;
  if (threadIdx.x == 0) found = 0, before = 0;
  for (int shift = 64 - kDigit; shift >= 0; shift -= kDigit) {
    if (threadIdx.x < kDigits) sums[threadIdx.x] = 0;
    __syncthreads();
    const Whole prefix = found;
    for (int token = threadIdx.x; token < row.size; token += kChoosers) {
      const Whole key = key_of(row.logit(token), token);
      // Digits above this one are found; a shift by all 64 bits would be none.
      const bool mine =
          shift == 64 - kDigit || key >> (shift + kDigit) == prefix >> (shift + kDigit);
      if (!mine || key < least) continue;
      const Whole w = weight(key);
      if (w > 0) atomicAdd(&sums[key >> shift & (kDigits - 1)], w);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      // A lane has eight digits' values; lanes count from the largest.
      constexpr int kEach = kDigits / 32;
      const int first = kDigits - 1 - static_cast<int>(threadIdx.x) * kEach;
      Whole own = 0;
      for (int i = 0; i < kEach; ++i) own += sums[first - i];
      Whole up_to = own;
#pragma unroll
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const Whole other = __shfl_up_sync(~0u, up_to, lanes);
        if (static_cast<int>(threadIdx.x) >= lanes) up_to += other;
      }
      Whole above = before + up_to - own;
      const bool reaches = above + own >= wanted;
      const unsigned who = __ballot_sync(~0u, reaches);
      __syncwarp();  // all have read what one of them writes now
      if (who == 0) {
        if (threadIdx.x == 0) found = 0, before = ~Whole{0};  // there are not so many
      } else if (static_cast<int>(threadIdx.x) == __ffs(who) - 1) {
        int digit = first;
        while (above + sums[digit] < wanted) above += sums[digit--];
        found = prefix | Whole(digit) << shift;
        before = above;
      }
    }
    __syncthreads();
    if (before == ~Whole{0}) break;
  }
  const Whole key = found;
  __syncthreads();
  return key;
}

// A block for a part of a row: the largest of its keys.
constexpr int kSeekers = 256;
template <class T>
__global__ void __launch_bounds__(kSeekers)
    seek_best(const T* logits, int64_t step, int size, Whole* found) {
  await_earlier();
  const Row<T> row{logits + blockIdx.x * step, size};
  const int first = static_cast<int>(blockIdx.y) * kSeekers + static_cast<int>(threadIdx.x);
  Whole best = 0;
#pragma unroll 8
  for (int token = first; token < size; token += kSeekers * static_cast<int>(kBestBlocks)) {
    best = ::max(best, key_of(row.logit(token), token));
  }
  best = max_over_block<kSeekers / 32>(best);
  if (threadIdx.x == 0) found[blockIdx.x * kBestBlocks + blockIdx.y] = best;
}

// A block for each row.
template <class T>
__global__ void __launch_bounds__(kChoosers)
    choose(const T* logits, int64_t step, int size, int positions, const Whole* found,
           const void* choices, Dtype choice_dtype, int64_t choice_step, int32_t* tokens) {
  static_assert(kBestBlocks == 64, "a lane of every warp takes two");
  await_earlier();
  const Row<T> row{logits + blockIdx.x * step, size};
  const auto number = [&](int i) {
    return load_float<float>(choices, choice_dtype, blockIdx.x / positions * choice_step + i);
  };
  // Every warp looks at what all blocks have found, so that none waits for another.
  const Whole* own = found + blockIdx.x * kBestBlocks + threadIdx.x % 32;
  Whole first = ::max(own[0], own[32]);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    first = ::max(first, __shfl_xor_sync(~0u, first, lanes));
  }
  const int best = token_of(first);
  const float temperature = number(0), top_k = number(1), top_p = number(2);
  if (!(temperature > 0) || first >> 32 == 0) {
    // Where nothing is a number the first token is drawn, which has the largest of such keys.
    if (threadIdx.x == 0) tokens[blockIdx.x] = best;
    return;
  }
  const Shares shares{logit_of(first), temperature};
  const auto share_of = [&](Whole key) { return key >> 32 ? shares.of(logit_of(key)) : Whole{0}; };
  Whole least = 0;
  if (top_k >= 1 && top_k < float(size)) {
    least = last_kept(row, 0, Whole(top_k), [](Whole) { return Whole{1}; });
  }
  if (top_p < 1) {
    Whole mine = 0;
    for (int token = threadIdx.x; token < size; token += kChoosers) {
      const Whole key = key_of(row.logit(token), token);
      if (key >= least) mine += share_of(key);
    }
    const double wanted = double(top_p) * double(sum_over_block(mine));
    least = ::max(
        least, last_kept(row, least, ::max(Whole{1}, Whole(::ceil(::max(wanted, 1.0)))), share_of));
  }
  const double least_share = ::min(1.0, double(number(3))) * kWholeShare;
  const auto kept_share = [&](int token) -> Whole {
    const Whole key = key_of(row.logit(token), token);
    const Whole share = key >= least ? share_of(key) : 0;
    return double(share) < least_share ? 0 : share;
  };
  // A warp takes tokens that follow one another, so that sums of warps are in the order of ids.
  __shared__ Whole of_warps[kChooserWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int each = (size + kChoosers - 1) / kChoosers * 32;
  const int begin = ::min(size, warp * each), end = ::min(size, begin + each);
  Whole mine = 0;
  for (int token = begin + lane; token < end; token += 32) mine += kept_share(token);
  mine = sum_over_warp(mine);
  if (lane == 0) of_warps[warp] = mine;
  __syncthreads();
  Whole all = 0, before = 0;
  for (int w = 0; w < kChooserWarps; ++w) {
    if (w < warp) before += of_warps[w];
    all += of_warps[w];
  }
  const double draw = ::min(::max(double(number(4)), 0.0), 1 - 0x1p-24);
  const auto wanted = static_cast<Whole>(draw * double(all));
  if (wanted < before || wanted >= before + mine) return;
  for (int tile = begin; tile < end; tile += 32) {
    const Whole own = tile + lane < end ? kept_share(tile + lane) : 0;
    Whole up_to = own;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const Whole other = __shfl_up_sync(~0u, up_to, lanes);
      if (lane >= lanes) up_to += other;
    }
    const unsigned who = __ballot_sync(~0u, before + up_to > wanted);
    if (who != 0) {
      if (lane == 0) tokens[blockIdx.x] = tile + __ffs(who) - 1;
      return;
    }
    before += __shfl_sync(~0u, up_to, 31);
  }
}

}  // namespace

Launch choose_token_cuda(const KernelCall& k, const Pointers& at) {
  const Type &logits = k.call.inputs[0], &choice = k.call.inputs[1];
  CHECK(k.in_strides[0] == dense_strides(logits), "logits are dense");
  const int64_t usable = usable_tokens(k.call), rows = logits.dim(0) * logits.dim(1);
  if (usable > 1 << 20) throw MachineError("choose_token: CUDA takes no more than 2^20 tokens");
  const int64_t step = logits.axes.back().physical();
  const int64_t choice_step = choice.axes.back().physical();
  const auto positions = static_cast<int>(logits.dim(1)), size = static_cast<int>(usable);
  const void* choices = at.in[1];
  auto* tokens = static_cast<int32_t*>(at.out[0]);
  auto* found = static_cast<Whole*>(at.workspace);
  if (rows == 0) return [] {};
  const auto blocks = static_cast<unsigned>(rows);
  const LaunchPlace seek{dim3(blocks, kBestBlocks), dim3(kSeekers), as_stream(at.stream), at.early};
  const LaunchPlace draw{dim3(blocks), dim3(kChoosers), as_stream(at.stream), at.early};
  return with_device_type(logits.dtype, [&]<class T>() -> Launch {
    const auto* from = static_cast<const T*>(at.in[0]);
    return [=, dtype = choice.dtype] {
      launch_at(seek, "choose_token", seek_best<T>, from, step, size, found);
      launch_at(draw, "choose_token", choose<T>, from, step, size, positions, found, choices, dtype,
                choice_step, tokens);
    };
  });
}

}  // namespace adjoint

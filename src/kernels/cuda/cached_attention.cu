// A block for each query and piece of the keys that it sees, and a share of a warp for each key in
// turn: numbers of the head lie across its lanes, 16 bytes in each. Shares keep a running maximum
// and sum (Milakov & Gimelshein, 2018) and are added up across lanes and in shared memory. A second
// kernel adds up the pieces. How many keys a query sees is data, so pieces are a share of those and
// not a number of keys: one recorded launch serves every position.
#include <algorithm>

#include "kernels/cuda/attention_options.cuh"
#include "kernels/cuda/cached_attention.h"
#include "kernels/cuda/cached_attention_layout.h"
#include "kernels/cuda/elements.cuh"

namespace adjoint {

namespace {

using attention_tiles::device_options;
using attention_tiles::HeadOptions;
using attention_tiles::kHidden;
using attention_tiles::SomeOptions;

constexpr int kWarps = 8, kLanes = 32;

struct RowSteps {
  int64_t sample, row;
};

struct Cached {
  int heads, group, size, value_size, queries, keys, pieces;
  bool ring;  // the key of a position has the row of its remainder
  RowSteps q, k, v, out;
  const int32_t* origins;
  int64_t origins_step;
};

// What a warp, a block or a piece has seen: the largest logit, the sum against it, and the values.
template <class W, int N>
struct Seen {
  W largest = W(kHidden), sum = 0;
  W values[N] = {};

  __device__ void add(W logit, const W (&value)[N]) {
    const W above = max(largest, logit);
    const W shrink = exp(largest - above), weight = exp(logit - above);
    largest = above;
    sum = sum * shrink + weight;
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = values[i] * shrink + weight * value[i];
  }
  __device__ void join(W other, W other_sum, const W (&value)[N]) {
    const W above = max(largest, other);
    const W shrink = exp(largest - above), weight = exp(other - above);
    largest = above;
    sum = sum * shrink + other_sum * weight;
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = values[i] * shrink + weight * value[i];
  }
};

// A row is shared out among kShare lanes of a warp, V of its numbers at a time, kTimes times; a
// warp has rows of 32 / kShare keys at once.
template <class T, int kShare_, int V_, int kTimes_>
struct Shares {
  static constexpr int kShare = kShare_, V = V_, kTimes = kTimes_, N = V * kTimes;
  static constexpr int kRows = kLanes / kShare, kWidth = N * kShare;
  using W = typename Wide<T>::type;

  // The place in the row of a lane's i-th number.
  __device__ static int place(int i) {
    return (i / V * kShare + static_cast<int>(threadIdx.x % kShare)) * V + i % V;
  }
  // Zeros past the end, which is a multiple of V.
  __device__ static void load(const T* row, int size, W (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += V) {
      const int at = place(i);
      if constexpr (V == 1) {
        to[i] = at < size ? W(widen(row[at])) : W(0);
      } else {
        W some[V] = {};
        if (at < size) Pack<T>{*reinterpret_cast<const uint4*>(row + at)}.widen_to(some);
#pragma unroll
        for (int j = 0; j < V; ++j) to[i + j] = some[j];
      }
    }
  }
  __device__ static W sum_over(W x) {
#pragma unroll
    for (int step = kShare / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  }
};

template <class T, class S>
__global__ void __launch_bounds__(kWarps* kLanes)
    attend(Cached c, SomeOptions options, const T* q, const T* k, const T* v, T* out,
           typename S::W* left) {
  using W = typename S::W;
  constexpr int N = S::N;
  await_earlier();
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int64_t row = blockIdx.x;
  const int query = row % c.queries, head = row / c.queries % c.heads;
  const int sample = row / c.queries / c.heads, kv = head / c.group;
  const int origin = max(0, c.origins[sample * c.origins_step]);
  const int position = c.ring ? origin + query : min(c.keys - 1, origin + query);
  const HeadOptions<T, W> of_head(options, c.ring ? position + 1 : c.keys, true, c.heads, sample,
                                  head);
  const int first = options.window ? max(0, position + 1 - options.window) : 0;
  const int seen = position + 1 - first, piece = blockIdx.y;
  const int begin = first + static_cast<int>(int64_t{seen} * piece / c.pieces);
  const int end = first + static_cast<int>(int64_t{seen} * (piece + 1) / c.pieces);

  W mine[N];
  S::load(q + sample * c.q.sample + query * c.q.row + head * c.size, c.size, mine);
  const T* keys = k + sample * c.k.sample + kv * c.size;
  const T* values = v + sample * c.v.sample + kv * c.value_size;
  Seen<W, N> state;
  // All lanes of a warp go as far as the first of its rows: they add up together.
#pragma unroll 2
  for (int of_warp = begin + warp * S::kRows; of_warp < end; of_warp += kWarps * S::kRows) {
    const int at = of_warp + lane / S::kShare;
    const bool has = at < end;
    W key[N], value[N];
    const int place = has ? at : begin, row_of_key = c.ring ? place % c.keys : place;
    S::load(keys + row_of_key * c.k.row, c.size, key);
    S::load(values + row_of_key * c.v.row, c.value_size, value);
    W product = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) product += mine[i] * key[i];
    product = S::sum_over(product);
    W slope;
    if (has && of_head.sees(position, at)) {
      state.add(of_head.logit(product, position, at, slope), value);
    }
  }
  // Rows of a warp first, then warps.
#pragma unroll
  for (int step = S::kShare; step < kLanes; step *= 2) {
    const W largest = __shfl_xor_sync(~0u, state.largest, step);
    const W sum = __shfl_xor_sync(~0u, state.sum, step);
    W value[N];
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = __shfl_xor_sync(~0u, state.values[i], step);
    state.join(largest, sum, value);
  }
  __shared__ W largest[kWarps], sums[kWarps], rows[kWarps][S::kWidth];
  if (lane == 0) largest[warp] = state.largest, sums[warp] = state.sum;
  if (lane < S::kShare) {
#pragma unroll
    for (int i = 0; i < N; ++i) rows[warp][S::place(i)] = state.values[i];
  }
  __syncthreads();
  if (warp > 0) return;
  for (int other = 1; other < kWarps; ++other) {
    W value[N];
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = rows[other][S::place(i)];
    state.join(largest[other], sums[other], value);
  }
  if (c.pieces > 1) {
    W* to = left + (row * c.pieces + piece) * (2 + c.value_size);
    if (lane == 0) to[0] = state.largest, to[1] = state.sum;
    for (int i = 0; i < N; ++i) {
      const int at = S::place(i);
      if (at < c.value_size && lane < S::kShare) to[2 + at] = state.values[i];
    }
    return;
  }
  if (options.sinks) {
    const W none[N] = {};
    state.join(W(attention_tiles::read_element<T>(options.sinks, head * options.sinks_step)), 1,
               none);
  }
  T* to = out + sample * c.out.sample + query * c.out.row + head * c.value_size;
  for (int i = 0; i < N; ++i) {
    const int at = S::place(i);
    if (at < c.value_size && lane < S::kShare) to[at] = narrow<T>(state.values[i] / state.sum);
  }
}

template <class T, class W, int N>
__global__ void __launch_bounds__(kLanes)
    add_pieces(Cached c, SomeOptions options, const W* left, T* out) {
  await_earlier();
  const int lane = threadIdx.x;
  const int64_t row = blockIdx.x;
  const int query = row % c.queries, head = row / c.queries % c.heads;
  const int sample = row / c.queries / c.heads;
  Seen<W, N> state;
  for (int piece = 0; piece < c.pieces; ++piece) {
    const W* from = left + (row * c.pieces + piece) * (2 + c.value_size);
    W value[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int at = lane + i * kLanes;
      value[i] = at < c.value_size ? from[2 + at] : W(0);
    }
    state.join(from[0], from[1], value);
  }
  if (options.sinks) {
    const W none[N] = {};
    state.join(W(attention_tiles::read_element<T>(options.sinks, head * options.sinks_step)), 1,
               none);
  }
  T* to = out + sample * c.out.sample + query * c.out.row + head * c.value_size;
  for (int i = 0; i < N; ++i) {
    const int at = lane + i * kLanes;
    if (at < c.value_size) to[at] = narrow<T>(state.values[i] / state.sum);
  }
}

RowSteps steps(const Rows& rows) { return {rows.sample_step, rows.row_step}; }

// Whether 16 bytes at a time can be read of every row.
template <class T>
bool in_packs(const AttentionPlaces& p) {
  const auto fits = [](const Rows& rows) {
    return is_aligned(rows.data, 16) && rows.sample_step % kPackSize<T> == 0 &&
           rows.row_step % kPackSize<T> == 0;
  };
  return p.shape.size % kPackSize<T> == 0 && p.shape.value_size % kPackSize<T> == 0 && fits(p.q) &&
         fits(p.k) && fits(p.v);
}

template <class T, class S>
PlainLaunch launch_of(const AttentionPlaces& p, const CachedAttentionLaunch& at) {
  using W = typename S::W;
  const AttentionShape& s = p.shape;
  const CachedAttentionLayout layout(s, p.queries);
  const Cached cached{.heads = static_cast<int>(s.kv_heads * s.group),
                      .group = static_cast<int>(s.group),
                      .size = static_cast<int>(s.size),
                      .value_size = static_cast<int>(s.value_size),
                      .queries = static_cast<int>(p.queries),
                      .keys = static_cast<int>(s.length),
                      .pieces = static_cast<int>(layout.pieces),
                      .ring = p.ring > 0,
                      .q = steps(p.q),
                      .k = steps(p.k),
                      .v = steps(p.v),
                      .out = steps(p.out),
                      .origins = p.origins,
                      .origins_step = p.origins_step};
  const SomeOptions options = device_options(s, p.extras);
  const dim3 grid(static_cast<unsigned>(layout.rows), static_cast<unsigned>(layout.pieces));
  const auto *q = static_cast<const T*>(p.q.data), *k = static_cast<const T*>(p.k.data);
  const auto* v = static_cast<const T*>(p.v.data);
  auto* out = static_cast<T*>(p.out.data);
  auto* left = static_cast<W*>(at.workspace);
  const LaunchPlace all{grid, kWarps * kLanes, at.stream, at.early};
  const LaunchPlace sums{grid.x, kLanes, at.stream, at.early};
  return [=] {
    launch_at(all, "cached_attention", attend<T, S>, cached, options, q, k, v, out, left);
    if (cached.pieces == 1) return;
    constexpr int kNumbers = (S::kWidth + kLanes - 1) / kLanes;
    launch_at(sums, "cached_attention", add_pieces<T, W, kNumbers>, cached, options, left, out);
  };
}

}  // namespace

PlainLaunch prepare_cached_attention(const AttentionPlaces& p, const CachedAttentionLaunch& at) {
  const int64_t size = std::max(p.shape.size, p.shape.value_size);
  if (size > 512) {
    throw MachineError("cached attention on a GPU takes heads of up to 512 numbers, found " +
                       std::to_string(size));
  }
  return with_device_type(p.shape.dtype, [&]<class T>() -> PlainLaunch {
    constexpr int V = kPackSize<T>;
    if (in_packs<T>(p)) {
      if (size <= 8 * V) return launch_of<T, Shares<T, 8, V, 1>>(p, at);
      if (size <= 16 * V) return launch_of<T, Shares<T, 16, V, 1>>(p, at);
      if (size <= 32 * V) return launch_of<T, Shares<T, 32, V, 1>>(p, at);
    }
    if (size <= 64) return launch_of<T, Shares<T, 32, 1, 2>>(p, at);
    if (size <= 128) return launch_of<T, Shares<T, 32, 1, 4>>(p, at);
    if (size <= 256) return launch_of<T, Shares<T, 32, 1, 8>>(p, at);
    return launch_of<T, Shares<T, 32, 1, 16>>(p, at);
  });
}

}  // namespace adjoint

// A block for each query and piece of the keys that it sees, a warp for each key in turn: numbers
// of the head lie across the lanes, so that a key or value is one coalesced read. Warps keep a
// running maximum and sum (Milakov & Gimelshein, 2018) and are added up in shared memory. A second
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

constexpr int kWarps = 4, kLanes = 32;

struct RowSteps {
  int64_t sample, row;
};

struct Cached {
  int heads, group, size, value_size, queries, keys, pieces;
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

template <class W>
__device__ W over_lanes(W x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Numbers lane, lane + 32, ... of a row; zeros past its end.
template <class T, class W, int N>
__device__ void load_lanes(const T* row, int size, int lane, W (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = lane + i * kLanes;
    to[i] = at < size ? W(widen(row[at])) : W(0);
  }
}

template <class T, class W, int N>
__global__ void __launch_bounds__(kWarps* kLanes)
    attend(Cached c, SomeOptions options, const T* q, const T* k, const T* v, T* out, W* left) {
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int64_t row = blockIdx.x;
  const int query = row % c.queries, head = row / c.queries % c.heads;
  const int sample = row / c.queries / c.heads, kv = head / c.group;
  const int origin = max(0, c.origins[sample * c.origins_step]);
  const int position = min(c.keys - 1, origin + query);
  const HeadOptions<T, W> of_head(options, c.keys, true, c.heads, sample, head);
  const int first = options.window ? max(0, position + 1 - options.window) : 0;
  const int seen = position + 1 - first, piece = blockIdx.y;
  const int begin = first + static_cast<int>(int64_t{seen} * piece / c.pieces);
  const int end = first + static_cast<int>(int64_t{seen} * (piece + 1) / c.pieces);

  W mine[N];
  load_lanes(q + sample * c.q.sample + query * c.q.row + head * c.size, c.size, lane, mine);
  const T* keys = k + sample * c.k.sample + kv * c.size;
  const T* values = v + sample * c.v.sample + kv * c.value_size;
  Seen<W, N> state;
#pragma unroll 2
  for (int at = begin + warp; at < end; at += kWarps) {
    W key[N], value[N];
    load_lanes(keys + at * c.k.row, c.size, lane, key);
    load_lanes(values + at * c.v.row, c.value_size, lane, value);
    W product = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) product += mine[i] * key[i];
    product = over_lanes(product);
    W slope;
    if (of_head.sees(position, at)) state.add(of_head.logit(product, position, at, slope), value);
  }

  __shared__ W largest[kWarps], sums[kWarps], rows[kWarps][N * kLanes];
  if (lane == 0) largest[warp] = state.largest, sums[warp] = state.sum;
#pragma unroll
  for (int i = 0; i < N; ++i) rows[warp][lane + i * kLanes] = state.values[i];
  __syncthreads();
  if (warp > 0) return;
  for (int other = 1; other < kWarps; ++other) {
    W value[N];
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = rows[other][lane + i * kLanes];
    state.join(largest[other], sums[other], value);
  }
  if (c.pieces > 1) {
    W* to = left + (row * c.pieces + piece) * (2 + c.value_size);
    if (lane == 0) to[0] = state.largest, to[1] = state.sum;
    for (int i = 0; i < N; ++i) {
      const int at = lane + i * kLanes;
      if (at < c.value_size) to[2 + at] = state.values[i];
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
    const int at = lane + i * kLanes;
    if (at < c.value_size) to[at] = narrow<T>(state.values[i] / state.sum);
  }
}

template <class T, class W, int N>
__global__ void __launch_bounds__(kLanes)
    add_pieces(Cached c, SomeOptions options, const W* left, T* out) {
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

template <int N>
PlainLaunch launch_of(const AttentionPlaces& p, void* workspace, cudaStream_t stream) {
  const AttentionShape& s = p.shape;
  const CachedAttentionLayout layout(s, p.queries);
  const Cached cached{.heads = static_cast<int>(s.kv_heads * s.group),
                      .group = static_cast<int>(s.group),
                      .size = static_cast<int>(s.size),
                      .value_size = static_cast<int>(s.value_size),
                      .queries = static_cast<int>(p.queries),
                      .keys = static_cast<int>(s.length),
                      .pieces = static_cast<int>(layout.pieces),
                      .q = steps(p.q),
                      .k = steps(p.k),
                      .v = steps(p.v),
                      .out = steps(p.out),
                      .origins = p.origins,
                      .origins_step = p.origins_step};
  const SomeOptions options = device_options(s, p.extras);
  const dim3 grid(static_cast<unsigned>(layout.rows), static_cast<unsigned>(layout.pieces));
  return with_device_type(s.dtype, [&]<class T>() -> PlainLaunch {
    using W = typename Wide<T>::type;
    const auto *q = static_cast<const T*>(p.q.data), *k = static_cast<const T*>(p.k.data);
    const auto* v = static_cast<const T*>(p.v.data);
    auto* out = static_cast<T*>(p.out.data);
    auto* left = static_cast<W*>(workspace);
    return [=] {
      attend<T, W, N><<<grid, kWarps * kLanes, 0, stream>>>(cached, options, q, k, v, out, left);
      if (cached.pieces > 1) {
        add_pieces<T, W, N><<<grid.x, kLanes, 0, stream>>>(cached, options, left, out);
      }
      check_launch("cached_attention");
    };
  });
}

}  // namespace

PlainLaunch prepare_cached_attention(const AttentionPlaces& p, void* workspace,
                                     cudaStream_t stream) {
  const int64_t size = std::max(p.shape.size, p.shape.value_size);
  if (size <= 64) return launch_of<2>(p, workspace, stream);
  if (size <= 128) return launch_of<4>(p, workspace, stream);
  if (size <= 256) return launch_of<8>(p, workspace, stream);
  if (size <= 512) return launch_of<16>(p, workspace, stream);
  throw MachineError("cached attention on a GPU takes heads of up to 512 numbers, found " +
                     std::to_string(size));
}

}  // namespace adjoint

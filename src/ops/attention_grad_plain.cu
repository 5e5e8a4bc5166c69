// Backward computes the scores again from the kept log-sum (Dao et al., 2022), once for dk and dv
// by tiles of keys and once for dq by tiles of queries: no two blocks add to the same row.
#include "ops/attention_tiles.cuh"

namespace adjoint {

using namespace attention_tiles;

namespace {

// sums[sample, head, query] = sum of dout * out; a warp per row.
template <class T, class W>
__global__ void row_sums(Shape shape, RowsOf<const T> out, RowsOf<const T> dout, W* sums) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int heads = shape.kv_heads * shape.group, lane = threadIdx.x % 32;
  if (row >= static_cast<int64_t>(shape.samples) * heads * shape.length) return;
  const int query = row % shape.length, head = row / shape.length % heads;
  const int sample = row / shape.length / heads;
  const T* a = out.head(sample, head, shape.size) + query * out.row_step;
  const T* b = dout.head(sample, head, shape.size) + query * dout.row_step;
  W sum = 0;
  for (int i = lane; i < shape.size; i += 32) sum += widen(a[i]) * widen(b[i]);
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) sums[row] = sum;
}

// What the two passes of backward compute from a score and the product dout . value.
template <class W>
struct Weight {
  W weight, dscore;
  __device__ Weight(W score, W dweight, W lse, W row_sum, bool seen, W scale)
      : weight(seen ? exponential(score * scale - lse) : W(0)),
        dscore(seen ? weight * (dweight - row_sum) * scale : W(0)) {}
};

template <class K>
__global__ void __launch_bounds__(K::kThreads)
    grad_of_keys(Shape shape, RowsOf<const typename K::Element> q,
                 RowsOf<const typename K::Element> k, RowsOf<const typename K::Element> v,
                 RowsOf<const typename K::Element> dout, const typename K::W* lse,
                 const typename K::W* sums, RowsOf<typename K::Element> dk,
                 RowsOf<typename K::Element> dv) {
  using W = typename K::W;
  extern __shared__ __align__(16) unsigned char memory[];
  W* keys = reinterpret_cast<W*>(memory);
  W* values = keys + K::kTile;
  W* queries = values + K::kTile;
  W* douts = queries + K::kTile;
  W* weights = douts + K::kTile;
  W* dscores = weights + K::kScores;
  W* tile_lse = dscores + K::kScores;
  W* tile_sums = tile_lse + K::kRows;

  const Place place(shape.kv_heads, shape.samples);
  const int first = place.tile * K::kRows;
  const int row = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, key = first + row;
  K::load(keys, k.head(place.sample, place.head, shape.size), k.row_step, first, shape);
  K::load(values, v.head(place.sample, place.head, shape.size), v.row_step, first, shape);

  W dkey[K::kColumns] = {}, dvalue[K::kColumns] = {};
  for (int g = 0; g < shape.group; ++g) {
    const int head = place.head * shape.group + g;
    const int64_t rows =
        (static_cast<int64_t>(place.sample) * shape.kv_heads * shape.group + head) * shape.length;
    for (int query0 = shape.causal ? first : 0; query0 < shape.length; query0 += K::kRows) {
      __syncthreads();
      K::load(queries, q.head(place.sample, head, shape.size), q.row_step, query0, shape);
      K::load(douts, dout.head(place.sample, head, shape.size), dout.row_step, query0, shape);
      if (threadIdx.x < K::kRows && query0 + threadIdx.x < shape.length) {
        tile_lse[threadIdx.x] = lse[rows + query0 + threadIdx.x];
        tile_sums[threadIdx.x] = sums[rows + query0 + threadIdx.x];
      }
      __syncthreads();
      W scores[K::kPartners], dweights[K::kPartners];
      K::dots(keys + row * K::kStride, queries, lane, shape.size, scores);
      K::dots(values + row * K::kStride, douts, lane, shape.size, dweights);
#pragma unroll
      for (int j = 0; j < K::kPartners; ++j) {
        const int i = lane + j * kLanes, query = query0 + i;
        const bool seen =
            query < shape.length && key < shape.length && (!shape.causal || key <= query);
        const Weight<W> w(scores[j], dweights[j], tile_lse[i], tile_sums[i], seen, W(shape.scale));
        weights[row * K::kScoreStride + i] = w.weight;
        dscores[row * K::kScoreStride + i] = w.dscore;
      }
      __syncwarp();  // a row's scores stay within its warp
      K::add_rows(weights + row * K::kScoreStride, douts, lane, dvalue);
      K::add_rows(dscores + row * K::kScoreStride, queries, lane, dkey);
    }
  }
  K::store(dk.head(place.sample, place.head, shape.size), dk.row_step, key, shape, lane, dkey);
  K::store(dv.head(place.sample, place.head, shape.size), dv.row_step, key, shape, lane, dvalue);
}

template <class K>
__global__ void __launch_bounds__(K::kThreads)
    grad_of_queries(Shape shape, RowsOf<const typename K::Element> q,
                    RowsOf<const typename K::Element> k, RowsOf<const typename K::Element> v,
                    RowsOf<const typename K::Element> dout, const typename K::W* lse,
                    const typename K::W* sums, RowsOf<typename K::Element> dq) {
  using W = typename K::W;
  extern __shared__ __align__(16) unsigned char memory[];
  W* queries = reinterpret_cast<W*>(memory);
  W* douts = queries + K::kTile;
  W* keys = douts + K::kTile;
  W* values = keys + K::kTile;
  W* dscores = values + K::kTile;

  const int heads = shape.kv_heads * shape.group;
  const Place place(heads, shape.samples);
  const int tiles = (shape.length + K::kRows - 1) / K::kRows;
  const int first = (tiles - 1 - place.tile) * K::kRows, kv_head = place.head / shape.group;
  const int row = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, query = first + row;
  K::load(queries, q.head(place.sample, place.head, shape.size), q.row_step, first, shape);
  K::load(douts, dout.head(place.sample, place.head, shape.size), dout.row_step, first, shape);
  const int64_t at =
      (static_cast<int64_t>(place.sample) * heads + place.head) * shape.length + query;
  const bool there = query < shape.length;
  const W row_lse = there ? lse[at] : W(0), row_sum = there ? sums[at] : W(0);

  W dquery[K::kColumns] = {};
  const int end = shape.causal ? min(shape.length, first + K::kRows) : shape.length;
  for (int key0 = 0; key0 < end; key0 += K::kRows) {
    __syncthreads();
    K::load(keys, k.head(place.sample, kv_head, shape.size), k.row_step, key0, shape);
    K::load(values, v.head(place.sample, kv_head, shape.size), v.row_step, key0, shape);
    __syncthreads();
    W scores[K::kPartners], dweights[K::kPartners];
    K::dots(queries + row * K::kStride, keys, lane, shape.size, scores);
    K::dots(douts + row * K::kStride, values, lane, shape.size, dweights);
#pragma unroll
    for (int j = 0; j < K::kPartners; ++j) {
      const int i = lane + j * kLanes, key = key0 + i;
      const bool seen = there && key < shape.length && (!shape.causal || key <= query);
      const Weight<W> w(scores[j], dweights[j], row_lse, row_sum, seen, W(shape.scale));
      dscores[row * K::kScoreStride + i] = w.dscore;
    }
    __syncwarp();
    K::add_rows(dscores + row * K::kScoreStride, keys, lane, dquery);
  }
  K::store(dq.head(place.sample, place.head, shape.size), dq.row_step, query, shape, lane, dquery);
}

}  // namespace

Bytes attention_grad_plain_workspace(const AttentionShape& s) {
  return (s.samples * s.kv_heads * s.group * s.length) * size_of(s.wide());
}

PlainLaunch prepare_attention_grad_plain(const AttentionShape& attention, Rows q, Rows k, Rows v,
                                         Rows out, const void* lse, Rows dout, Rows dq, Rows dk,
                                         Rows dv, void* workspace, cudaStream_t stream) {
  const Shape shape = device_shape(attention);
  return with_kernels(attention, [&]<class K>(K) -> PlainLaunch {
    using T = typename K::Element;
    using W = typename K::W;
    allow(grad_of_keys<K>, K::kBackwardBytes);
    allow(grad_of_queries<K>, K::kBackwardBytes);
    constexpr int kSumThreads = 256;
    const int64_t num_rows =
        attention.samples * attention.kv_heads * attention.group * attention.length;
    const int sum_blocks = static_cast<int>((num_rows * 32 + kSumThreads - 1) / kSumThreads);
    const int key_blocks = num_tiles<K>(shape) * shape.kv_heads * shape.samples;
    const int query_blocks = key_blocks * shape.group;
    W* sums = static_cast<W*>(workspace);
    const W* kept = static_cast<const W*>(lse);
    return [=] {
      row_sums<T, W><<<sum_blocks, kSumThreads, 0, stream>>>(shape, rows<const T>(out),
                                                             rows<const T>(dout), sums);
      grad_of_keys<K><<<key_blocks, K::kThreads, K::kBackwardBytes, stream>>>(
          shape, rows<const T>(q), rows<const T>(k), rows<const T>(v), rows<const T>(dout), kept,
          sums, rows<T>(dk), rows<T>(dv));
      grad_of_queries<K><<<query_blocks, K::kThreads, K::kBackwardBytes, stream>>>(
          shape, rows<const T>(q), rows<const T>(k), rows<const T>(v), rows<const T>(dout), kept,
          sums, rows<T>(dq));
      check_launch();
    };
  });
}

}  // namespace adjoint

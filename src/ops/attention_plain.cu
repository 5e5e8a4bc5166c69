// Forward keeps a running maximum and sum per row (Milakov & Gimelshein, 2018), so that a tile of
// scores is seen once.
#include "ops/attention_tiles.cuh"

namespace adjoint {

using namespace attention_tiles;

namespace {

template <class K>
__global__ void __launch_bounds__(K::kThreads)
    attention_rows(Shape shape, RowsOf<const typename K::Element> q,
                   RowsOf<const typename K::Element> k, RowsOf<const typename K::Element> v,
                   RowsOf<typename K::Element> out, typename K::W* lse) {
  using W = typename K::W;
  extern __shared__ __align__(16) unsigned char memory[];
  W* queries = reinterpret_cast<W*>(memory);
  W* others = queries + K::kTile;  // keys, then their values
  W* weights = others + K::kTile;

  const int heads = shape.kv_heads * shape.group;
  const Place place(heads, shape.samples);
  const int tiles = (shape.length + K::kRows - 1) / K::kRows;
  const int first = (tiles - 1 - place.tile) * K::kRows;
  const int row = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, query = first + row;
  const auto* keys = k.head(place.sample, place.head / shape.group, shape.size);
  const auto* values = v.head(place.sample, place.head / shape.group, shape.size);
  K::load(queries, q.head(place.sample, place.head, shape.size), q.row_step, first, shape);

  W result[K::kColumns] = {};
  W largest = -INFINITY, sum = 0;
  const int end = shape.causal ? min(shape.length, first + K::kRows) : shape.length;
  for (int key0 = 0; key0 < end; key0 += K::kRows) {
    __syncthreads();
    K::load(others, keys, k.row_step, key0, shape);
    __syncthreads();
    W scores[K::kPartners];
    K::dots(queries + row * K::kStride, others, lane, shape.size, scores);
    // Key 0 is seen by all, so the maximum is finite from the first tile on.
    W above = largest;
#pragma unroll
    for (int j = 0; j < K::kPartners; ++j) {
      const int key = key0 + lane + j * kLanes;
      const bool seen = key < shape.length && (!shape.causal || key <= query);
      scores[j] = seen ? scores[j] * W(shape.scale) : W(-INFINITY);
      above = max(above, scores[j]);
    }
    above = largest_of_row(above);
    const W shrink = exponential(largest - above);
    W added = 0;
#pragma unroll
    for (int j = 0; j < K::kPartners; ++j) {
      const W weight = exponential(scores[j] - above);
      weights[row * K::kScoreStride + lane + j * kLanes] = weight;
      added += weight;
    }
    sum = sum * shrink + sum_of_row(added);
    largest = above;
#pragma unroll
    for (int c = 0; c < K::kColumns; ++c) result[c] *= shrink;
    __syncthreads();
    K::load(others, values, v.row_step, key0, shape);
    __syncthreads();
    K::add_rows(weights + row * K::kScoreStride, others, lane, result);
  }
#pragma unroll
  for (int c = 0; c < K::kColumns; ++c) result[c] /= sum;
  K::store(out.head(place.sample, place.head, shape.size), out.row_step, query, shape, lane,
           result);
  if (lane == 0 && query < shape.length)
    lse[(static_cast<int64_t>(place.sample) * heads + place.head) * shape.length + query] =
        largest + logarithm(sum);
}

}  // namespace

PlainLaunch prepare_attention_plain(const AttentionShape& attention, Rows q, Rows k, Rows v,
                                    Rows out, void* lse, cudaStream_t stream) {
  const Shape shape = device_shape(attention);
  return with_kernels(attention, [&]<class K>(K) -> PlainLaunch {
    using T = typename K::Element;
    allow(attention_rows<K>, K::kForwardBytes);
    const int blocks = num_tiles<K>(shape) * shape.kv_heads * shape.group * shape.samples;
    return [=] {
      attention_rows<K><<<blocks, K::kThreads, K::kForwardBytes, stream>>>(
          shape, rows<const T>(q), rows<const T>(k), rows<const T>(v), rows<T>(out),
          static_cast<typename K::W*>(lse));
      check_launch();
    };
  });
}

}  // namespace adjoint

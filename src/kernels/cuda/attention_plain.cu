// Forward keeps a running maximum and sum per row (Milakov & Gimelshein, 2018), so that a tile of
// scores is seen once. Keys travel while values are summed, and values while keys are scored.
#include "kernels/cuda/attention_tiles.cuh"

namespace adjoint {

using namespace attention_tiles;

namespace {

template <class K>
__global__ void __launch_bounds__(K::kThreads, K::kForwardBlocks)
    attention_rows(Shape shape, RowsOf<const typename K::Element> q,
                   RowsOf<const typename K::Element> k, RowsOf<const typename K::Element> v,
                   RowsOf<typename K::Element> out, typename K::W* lse) {
  using W = typename K::W;
  extern __shared__ __align__(16) unsigned char memory[];
  W* queries = reinterpret_cast<W*>(memory);
  W* keys = queries + K::kOwn;
  W* values = keys + K::kOther;
  W* weights = values + K::kOther;

  const typename K::Thread thread;
  const int heads = shape.kv_heads * shape.group;
  const Block block(heads, shape.samples);
  const int tiles = (shape.length + K::kRows - 1) / K::kRows;
  const int first = (tiles - 1 - block.tile) * K::kRows;
  const int end = shape.causal ? min(shape.length, first + K::kRows) : shape.length;
  const auto k_head = k.head(block.sample, block.head / shape.group, shape.size);
  const auto v_head = v.head(block.sample, block.head / shape.group, shape.size);
  K::load_own(queries, q.head(block.sample, block.head, shape.size), first, shape);
  K::load_other(keys, k_head, 0, shape);
  __pipeline_commit();
  K::load_other(values, v_head, 0, shape);
  __pipeline_commit();

  typename K::Result result = {};
  W largest[K::kHeight], sum[K::kHeight];  // the sum is of what the thread itself has scored
#pragma unroll
  for (int i = 0; i < K::kHeight; ++i) {
    largest[i] = -INFINITY;
    sum[i] = 0;
  }
  const W scale = W(shape.scale * kLog2E);
  const auto larger = [](W a, W b) { return max(a, b); };
  const auto plus = [](W a, W b) { return a + b; };
  for (int key0 = 0; key0 < end; key0 += K::kPartners) {
    const Sight sight(shape, first + thread.warp_row, K::kWarpRows, key0, K::kPartners);
    __pipeline_wait_prior(1);
    __syncthreads();  // keys have come
    if (sight.any) {
      typename K::Scores scores;
      K::dots(queries, keys, thread, shape.size, scores);
      if (!sight.all) {
        K::each_score(thread, [&](int i, int j, int row, int partner) {
          if (!shape.seen(first + row, key0 + partner)) scores[i][j] = -INFINITY;
        });
      }
#pragma unroll
      for (int i = 0; i < K::kHeight; ++i) {
        // Key 0 is seen by all, so the maximum is finite from the first tile on.
        W above = scores[i][0];
#pragma unroll
        for (const W score : scores[i]) above = max(above, score);
        above = max(largest[i], over_row(above, larger) * scale);
        const W shrink = power_of_two(largest[i] - above);
        largest[i] = above;
        sum[i] *= shrink;
#pragma unroll
        for (W& score : scores[i]) {
          score = power_of_two(score * scale - above);
          sum[i] += score;
        }
#pragma unroll
        for (W& x : result[i]) x *= shrink;
      }
      K::share(weights, thread, scores);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // values have come, and keys may go
    if (key0 + K::kPartners < end) K::load_other(keys, k_head, key0 + K::kPartners, shape);
    __pipeline_commit();
    if (sight.any) K::add_rows(weights, values, thread, result);
    __syncthreads();
    if (key0 + K::kPartners < end) K::load_other(values, v_head, key0 + K::kPartners, shape);
    __pipeline_commit();
  }

  const int64_t rows = (static_cast<int64_t>(block.sample) * heads + block.head) * shape.length;
#pragma unroll
  for (int i = 0; i < K::kHeight; ++i) {
    const W total = over_row(sum[i], plus);
    sum[i] = 1 / total;
    const int query = first + thread.row + i * kRowLanes;
    if (thread.column == 0 && query < shape.length)
      lse[rows + query] = (largest[i] + log_of_two(total)) * W(kLn2);
  }
  K::store(out.head(block.sample, block.head, shape.size), first, shape, thread, result,
           [&](int i) { return sum[i]; });
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
          shape, rows<const T>(q, shape), rows<const T>(k, shape), rows<const T>(v, shape),
          rows<T>(out, shape), static_cast<typename K::W*>(lse));
      check_launch();
    };
  });
}

}  // namespace adjoint

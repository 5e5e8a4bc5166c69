// Forward keeps a running maximum and sum per row (Milakov & Gimelshein, 2018), so that a tile of
// scores is seen once. Keys travel while values are summed, and values while keys are scored.
#include "kernels/cuda/attention_tiles.cuh"

namespace adjoint {

using namespace attention_tiles;

namespace {

template <class K, class O>
__global__ void __launch_bounds__(K::kThreads, K::kForwardBlocks)
    attention_rows(Shape shape, O options, RowsOf<const typename K::Element> q,
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
  int begin = 0;
  int end = shape.causal ? min(shape.length, first + K::kRows) : shape.length;
  if constexpr (O::kAny) {
    const KeyRange seen(options.window, shape.length, shape.causal, first, K::kRows, K::kPartners);
    begin = seen.begin;
    end = seen.end;
  }
  const auto k_head = k.head(block.sample, block.head / shape.group);
  const auto v_head = v.head(block.sample, block.head / shape.group);
  K::load_own(queries, q.head(block.sample, block.head), first, shape);
  K::load_other(keys, k_head, begin, shape);
  __pipeline_commit();
  K::load_other(values, v_head, begin, shape);
  __pipeline_commit();

  typename K::Result result = {};
  W largest[K::kHeight], sum[K::kHeight];  // the sum is of what the thread itself has scored
#pragma unroll
  for (int i = 0; i < K::kHeight; ++i) {
    largest[i] = -INFINITY;
    sum[i] = 0;
  }
  // With options the scores become logits, which are scaled already.
  const W scale = W(O::kAny ? kLog2E : shape.scale * kLog2E);
  const auto of_head = options_of<K>(options, shape, block.sample, block.head);
  if constexpr (O::kAny) {
    if (options.sinks) {
      const W sink =
          W(read_element<typename K::Element>(options.sinks, block.head * options.sinks_step));
#pragma unroll
      for (int i = 0; i < K::kHeight; ++i) {
        largest[i] = sink * scale;
        sum[i] = thread.column == 0 ? 1 : 0;
      }
    }
  }
  const auto larger = [](W a, W b) { return max(a, b); };
  const auto plus = [](W a, W b) { return a + b; };
  for (int key0 = begin; key0 < end; key0 += K::kPartners) {
    const Sight sight(shape, options, first + thread.warp_row, K::kWarpRows, key0, K::kPartners);
    __pipeline_wait_prior(1);
    __syncthreads();  // keys have come
    if (sight.any) {
      typename K::Scores scores;
      K::dots(queries, keys, thread, shape.size, scores);
      if constexpr (O::kAny) {
        K::each_score(thread, [&](int i, int j, int row, int partner) {
          const int query = first + row, key = key0 + partner;
          W slope;
          scores[i][j] = sight.all || of_head.sees(query, key)
                             ? of_head.logit(scores[i][j], query, key, slope)
                             : W(kHidden);
        });
      } else if (!sight.all) {
        K::each_score(thread, [&](int i, int j, int row, int partner) {
          if (!shape.seen(first + row, key0 + partner)) scores[i][j] = -INFINITY;
        });
      }
#pragma unroll
      for (int i = 0; i < K::kHeight; ++i) {
        // Key 0 is seen by all, so the maximum is finite from the first tile on; with options, what
        // is not seen is finite.
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
      if constexpr (O::kAny) {
        if (of_head.drop_below) {
          K::each_score(thread, [&](int i, int j, int row, int partner) {
            scores[i][j] *= of_head.factor(first + row, key0 + partner);
          });
        }
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
  K::store(out.head(block.sample, block.head), first, shape, thread, result,
           [&](int i) { return sum[i]; });
}

}  // namespace

PlainLaunch prepare_attention_plain(const AttentionPlaces& p, cudaStream_t stream) {
  const Shape shape = device_shape(p.shape);
  return with_kernels(p.shape, p.extras, [&]<class K, class O>(K, O options) -> PlainLaunch {
    using T = typename K::Element;
    allow(attention_rows<K, O>, K::kForwardBytes);
    const int blocks = num_tiles<K>(shape) * shape.kv_heads * shape.group * shape.samples;
    const auto q = rows<const T>(p.q, shape.size), k = rows<const T>(p.k, shape.size);
    const auto v = rows<const T>(p.v, shape.value_size);
    const auto out = rows<T>(p.out, shape.value_size);
    auto* lse = static_cast<typename K::W*>(p.lse);
    return [=] {
      attention_rows<K, O>
          <<<blocks, K::kThreads, K::kForwardBytes, stream>>>(shape, options, q, k, v, out, lse);
      check_launch();
    };
  });
}

}  // namespace adjoint

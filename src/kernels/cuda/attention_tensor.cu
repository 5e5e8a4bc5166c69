// Forward: a block's queries stay in shared memory while keys and values pass by, the next tile of
// both on its way while one is multiplied. Scores, weights and results never leave registers: what
// the first product leaves in a thread is what the second wants of it (Dao, 2023).
#include "kernels/cuda/attention_tensor.cuh"

namespace adjoint {

using namespace attention_tiles;

namespace {

template <class K>
__global__ void __launch_bounds__(kTensorThreads)
    attention_strips(Shape shape, SomeOptions options, RowsOf<const typename K::T> q,
                     RowsOf<const typename K::T> k, RowsOf<const typename K::T> v,
                     RowsOf<typename K::T> out, float* lse) {
  using T = typename K::T;
  extern __shared__ __align__(16) unsigned char memory[];
  T* queries = reinterpret_cast<T*>(memory);
  const Stages<T> keys{queries + K::kRows * K::kSize, K::kPartners * K::kSize};
  const Stages<T> values{keys.at(0) + 2 * K::kPartners * K::kSize, K::kPartners * K::kValue};

  const int heads = shape.kv_heads * shape.group, lane = threadIdx.x % 32;
  const Block block(heads, shape.samples);
  const int tiles = (shape.length + K::kRows - 1) / K::kRows;
  const int first = (tiles - 1 - block.tile) * K::kRows;
  const int own = threadIdx.x / 32 * 16 * K::kTall;  // the warp's first row of the block's
  const KeyRange seen(options.window, shape.length, shape.causal, first, K::kRows, K::kPartners);
  const auto k_head = k.head(block.sample, block.head / shape.group);
  const auto v_head = v.head(block.sample, block.head / shape.group);
  const auto fetch_partners = [&](int tile) {
    const int key = seen.begin + tile * K::kPartners;
    fetch_tile<K::kPartners, K::kSize, kTensorThreads>(keys.at(tile), k_head, key, shape.length);
    fetch_tile<K::kPartners, K::kValue, kTensorThreads>(values.at(tile), v_head, key, shape.length);
    end_fetches();
  };
  fetch_tile<K::kRows, K::kSize, kTensorThreads>(queries, q.head(block.sample, block.head), first,
                                                 shape.length);
  fetch_partners(0);

  const OptionsOf<T> of_head(options, shape.length, shape.causal, heads, block.sample, block.head);
  float largest[K::kTall][2], sum[K::kTall][2];
  const float sink = options.sinks
                         ? float(read_element<T>(options.sinks, block.head * options.sinks_step))
                         : -INFINITY;
#pragma unroll
  for (int t = 0; t < K::kTall; ++t)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[t][half] = sink * float(kLog2E);
      sum[t][half] = options.sinks && lane % 4 == 0 ? 1 : 0;  // of what the thread itself has
    }
  Sums<K::kTall, K::kValue> result = {};
  const int end = (seen.end - seen.begin + K::kPartners - 1) / K::kPartners;
  for (int tile = 0; tile < end; ++tile) {
    wait_for_fetches<0>();
    __syncthreads();  // this tile has come, and nobody reads the one before
    if (tile + 1 < end) fetch_partners(tile + 1);
    const int key0 = seen.begin + tile * K::kPartners;
    const Sight sight(shape, options, first + own, 16 * K::kTall, key0, K::kPartners);
    if (!sight.any) continue;
    Sums<K::kTall, K::kPartners> scores;
    dots<K::kSize, K::kTall, K::kPartners>(scores, queries, own, keys.at(tile));
    to_logits<false, K::kTall, K::kPartners, T>(of_head, sight.all, first + own, key0, scores,
                                                nullptr);
#pragma unroll
    for (int t = 0; t < K::kTall; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float above = scores[t][0][2 * half];
#pragma unroll
        for (const auto& four : scores[t])
          above = max(above, max(four[2 * half], four[2 * half + 1]));
        above = max(above, __shfl_xor_sync(0xffffffffu, above, 1));
        above = max(above, __shfl_xor_sync(0xffffffffu, above, 2));
        above = max(above, largest[t][half]);
        const float shrink = power_of_two(largest[t][half] - above);
        largest[t][half] = above;
        sum[t][half] *= shrink;
#pragma unroll
        for (auto& four : scores[t])
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            four[e] = power_of_two(four[e] - above);
            sum[t][half] += four[e];
          }
#pragma unroll
        for (auto& four : result[t]) {
          four[2 * half] *= shrink;
          four[2 * half + 1] *= shrink;
        }
      }
    if (of_head.drop_below) {
      each_sum<K::kTall, K::kPartners>(first + own, [&](int t, int n, int e, int row, int column) {
        scores[t][n][e] *= of_head.factor(row, key0 + column);
      });
    }
    add_rows<K::kValue, K::kTall, K::kPartners>(result, scores, values.at(tile));
  }

  const int64_t rows = (static_cast<int64_t>(block.sample) * heads + block.head) * shape.length;
#pragma unroll
  for (int t = 0; t < K::kTall; ++t)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[t][half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int query = first + own + 16 * t + lane / 4 + 8 * half;
      if (lane % 4 == 0 && query < shape.length) {
        lse[rows + query] = (largest[t][half] + log2f(total)) * float(kLn2);
      }
      sum[t][half] = 1 / total;
    }
  store<K::kTall, K::kValue>(out.head(block.sample, block.head), first + own, shape.length, result,
                             [&](int t, int half) { return sum[t][half]; });
}

}  // namespace

PlainLaunch prepare_attention_tensor(const AttentionPlaces& p, cudaStream_t stream) {
  const Shape shape = device_shape(p.shape);
  return with_tensor_tiles(p.shape, [&]<class K>(K) -> PlainLaunch {
    using T = typename K::T;
    if (K::kForwardBytes > shared_memory_of_block()) return prepare_attention_plain(p, stream);
    allow(attention_strips<K>, K::kForwardBytes);
    const SomeOptions options = device_options(p.shape, p.extras);
    const int tiles = (shape.length + K::kRows - 1) / K::kRows;
    const int blocks = tiles * shape.kv_heads * shape.group * shape.samples;
    const auto q = rows<const T>(p.q, shape.size), k = rows<const T>(p.k, shape.size);
    const auto v = rows<const T>(p.v, shape.value_size);
    const auto out = rows<T>(p.out, shape.value_size);
    float* lse = static_cast<float*>(p.lse);
    return [=] {
      attention_strips<K>
          <<<blocks, kTensorThreads, K::kForwardBytes, stream>>>(shape, options, q, k, v, out, lse);
      check_launch();
    };
  });
}

}  // namespace adjoint

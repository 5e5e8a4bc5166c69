// The gradient in two passes, as attention_grad_plain.cu has it and for the same reason: keys and
// values by blocks of keys, queries by blocks of queries. Where rows are keys, scores are computed
// turned, so that what a thread has of them is what the products with dout and q want.
#include "kernels/cuda/attention_tensor.cuh"

namespace adjoint {

using namespace attention_tiles;

namespace {

// Logits become weights by their log-sums (of base 2), and dout . value what the logit adds to the
// loss; then both are what the next products multiply: the weight after dropout, and the gradient
// of the unscaled product.
__device__ inline void weigh_back(float logit, float lse, float row_sum, float factor, float slope,
                                  float& weight, float& dscore) {
  const float p = power_of_two(logit - lse);
  dscore = p * (dscore * factor - row_sum) * slope;
  weight = p * factor;
}

// dk or dv or both, of kBackRows keys.
template <class K, bool kKeys, bool kValues>
__global__ void __launch_bounds__(kTensorThreads)
    grad_of_key_strips(Shape shape, SomeOptions options, RowsOf<const typename K::T> q,
                       RowsOf<const typename K::T> k, RowsOf<const typename K::T> v,
                       RowsOf<const typename K::T> dout, const float* lse, const float* sums,
                       RowsOf<typename K::T> dk, RowsOf<typename K::T> dv) {
  using T = typename K::T;
  constexpr int kRows = K::kBackRows, kPartners = K::kBackPartners;
  extern __shared__ __align__(16) unsigned char memory[];
  T* keys = reinterpret_cast<T*>(memory);
  T* values = keys + kRows * K::kSize;
  const Stages<T> queries{values + kRows * K::kValue, kPartners * K::kSize};
  const Stages<T> douts{queries.at(0) + 2 * kPartners * K::kSize, kPartners * K::kValue};

  const int heads = shape.kv_heads * shape.group, lane = threadIdx.x % 32;
  const Block block(shape.kv_heads, shape.samples);
  const int first = block.tile * kRows, own = threadIdx.x / 32 * 16;
  const QueryRange seeing(options.window, shape.length, shape.causal, first, kRows, kPartners);
  const int tiles = (seeing.end - seeing.begin + kPartners - 1) / kPartners;
  // The tiles of all heads of the group, one after another.
  const auto head_of = [&](int tile) { return block.head * shape.group + tile / tiles; };
  const auto query_of = [&](int tile) { return seeing.begin + tile % tiles * kPartners; };
  const auto fetch_partners = [&](int tile) {
    const int head = head_of(tile), query = query_of(tile);
    fetch_tile<kPartners, K::kSize, kTensorThreads>(queries.at(tile), q.head(block.sample, head),
                                                    query, shape.length);
    fetch_tile<kPartners, K::kValue, kTensorThreads>(douts.at(tile), dout.head(block.sample, head),
                                                     query, shape.length);
    end_fetches();
  };
  fetch_tile<kRows, K::kSize, kTensorThreads>(keys, k.head(block.sample, block.head), first,
                                              shape.length);
  fetch_tile<kRows, K::kValue, kTensorThreads>(values, v.head(block.sample, block.head), first,
                                               shape.length);
  fetch_partners(0);

  Sums<1, kKeys ? K::kSize : 8> dkey = {};
  Sums<1, kValues ? K::kValue : 8> dvalue = {};
  const int end = shape.group * tiles;
  for (int tile = 0; tile < end; ++tile) {
    wait_for_fetches<0>();
    __syncthreads();  // this tile has come, and nobody reads the one before
    if (tile + 1 < end) fetch_partners(tile + 1);
    const int query0 = query_of(tile), head = head_of(tile);
    const Sight sight(shape, options, query0, kPartners, first + own, 16);
    if (!sight.any) continue;
    const OptionsOf<T> of_head(options, shape.length, shape.causal, heads, block.sample, head);
    Sums<1, kPartners> scores, dscores = {}, slopes;
    dots<K::kSize, 1, kPartners>(scores, keys, own, queries.at(tile));
    if constexpr (kKeys) dots<K::kValue, 1, kPartners>(dscores, values, own, douts.at(tile));
    to_logits<true, 1, kPartners, T>(of_head, sight.all, first + own, query0, scores, &slopes);
    const int64_t rows = (static_cast<int64_t>(block.sample) * heads + head) * shape.length;
#pragma unroll
    for (int n = 0; n < kPartners / 8; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int query = query0 + 8 * n + lane % 4 * 2 + side;
        const bool there = query < shape.length;
        const float row_lse = there ? lse[rows + query] * float(kLog2E) : INFINITY;
        const float row_sum = there ? sums[rows + query] : 0;
#pragma unroll
        for (int e = side; e < 4; e += 2) {
          const int key = first + own + lane / 4 + e / 2 * 8;
          const float factor = of_head.drop_below ? of_head.factor(query, key) : 1;
          const float slope = of_head.cap > 0 ? slopes[0][n][e] : 1;
          weigh_back(scores[0][n][e], row_lse, row_sum, factor, slope, scores[0][n][e],
                     dscores[0][n][e]);
        }
      }
    if constexpr (kValues) add_rows<K::kValue, 1, kPartners>(dvalue, scores, douts.at(tile));
    if constexpr (kKeys) add_rows<K::kSize, 1, kPartners>(dkey, dscores, queries.at(tile));
  }
  if constexpr (kKeys) {
    store<1, K::kSize>(dk.head(block.sample, block.head), first + own, shape.length, dkey,
                       [&](int, int) { return float(shape.scale); });
  }
  if constexpr (kValues) {
    store<1, K::kValue>(dv.head(block.sample, block.head), first + own, shape.length, dvalue,
                        [](int, int) { return 1.0f; });
  }
}

template <class K>
__global__ void __launch_bounds__(kTensorThreads)
    grad_of_query_strips(Shape shape, SomeOptions options, RowsOf<const typename K::T> q,
                         RowsOf<const typename K::T> k, RowsOf<const typename K::T> v,
                         RowsOf<const typename K::T> dout, const float* lse, const float* sums,
                         RowsOf<typename K::T> dq) {
  using T = typename K::T;
  constexpr int kRows = K::kBackRows, kPartners = K::kBackPartners;
  extern __shared__ __align__(16) unsigned char memory[];
  T* queries = reinterpret_cast<T*>(memory);
  T* douts = queries + kRows * K::kSize;
  const Stages<T> keys{douts + kRows * K::kValue, kPartners * K::kSize};
  const Stages<T> values{keys.at(0) + 2 * kPartners * K::kSize, kPartners * K::kValue};

  const int heads = shape.kv_heads * shape.group, lane = threadIdx.x % 32;
  const Block block(heads, shape.samples);
  const int tiles = (shape.length + kRows - 1) / kRows;
  const int first = (tiles - 1 - block.tile) * kRows, own = threadIdx.x / 32 * 16;
  const KeyRange seen(options.window, shape.length, shape.causal, first, kRows, kPartners);
  const auto k_head = k.head(block.sample, block.head / shape.group);
  const auto v_head = v.head(block.sample, block.head / shape.group);
  const auto fetch_partners = [&](int tile) {
    const int key = seen.begin + tile * kPartners;
    fetch_tile<kPartners, K::kSize, kTensorThreads>(keys.at(tile), k_head, key, shape.length);
    fetch_tile<kPartners, K::kValue, kTensorThreads>(values.at(tile), v_head, key, shape.length);
    end_fetches();
  };
  fetch_tile<kRows, K::kSize, kTensorThreads>(queries, q.head(block.sample, block.head), first,
                                              shape.length);
  fetch_tile<kRows, K::kValue, kTensorThreads>(douts, dout.head(block.sample, block.head), first,
                                               shape.length);
  fetch_partners(0);

  const int64_t rows = (static_cast<int64_t>(block.sample) * heads + block.head) * shape.length;
  float row_lse[2], row_sum[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + own + lane / 4 + 8 * half;
    const bool there = query < shape.length;
    row_lse[half] = there ? lse[rows + query] * float(kLog2E) : INFINITY;
    row_sum[half] = there ? sums[rows + query] : 0;
  }
  const OptionsOf<T> of_head(options, shape.length, shape.causal, heads, block.sample, block.head);
  Sums<1, K::kSize> dquery = {};
  const int end = (seen.end - seen.begin + kPartners - 1) / kPartners;
  for (int tile = 0; tile < end; ++tile) {
    wait_for_fetches<0>();
    __syncthreads();  // this tile has come, and nobody reads the one before
    if (tile + 1 < end) fetch_partners(tile + 1);
    const int key0 = seen.begin + tile * kPartners;
    const Sight sight(shape, options, first + own, 16, key0, kPartners);
    if (!sight.any) continue;
    Sums<1, kPartners> scores, dscores, slopes;
    dots<K::kSize, 1, kPartners>(scores, queries, own, keys.at(tile));
    dots<K::kValue, 1, kPartners>(dscores, douts, own, values.at(tile));
    to_logits<false, 1, kPartners, T>(of_head, sight.all, first + own, key0, scores, &slopes);
    each_sum<1, kPartners>(first + own, [&](int t, int n, int e, int query, int column) {
      const float factor = of_head.drop_below ? of_head.factor(query, key0 + column) : 1;
      const float slope = of_head.cap > 0 ? slopes[t][n][e] : 1;
      weigh_back(scores[t][n][e], row_lse[e / 2], row_sum[e / 2], factor, slope, scores[t][n][e],
                 dscores[t][n][e]);
    });
    add_rows<K::kSize, 1, kPartners>(dquery, dscores, keys.at(tile));
  }
  store<1, K::kSize>(dq.head(block.sample, block.head), first + own, shape.length, dquery,
                     [&](int, int) { return float(shape.scale); });
}

}  // namespace

PlainLaunch prepare_attention_grad_tensor(const AttentionGradPlaces& p, void* workspace,
                                          cudaStream_t stream) {
  const Shape shape = device_shape(p.shape);
  const Bytes room = attention_grad_plain_workspace(p.shape);
  char* end_of_sums =
      static_cast<char*>(workspace) + (room - grad_of_tables_workspace(p.shape)).count;
  const PlainLaunch sum = prepare_row_sums(p, workspace, stream);
  const PlainLaunch tables = prepare_grad_of_tables(p, workspace, end_of_sums, stream);
  return with_tensor_tiles(p.shape, [&]<class K>(K) -> PlainLaunch {
    using T = typename K::T;
    if (K::kBackwardBytes > shared_memory_of_block()) {
      return prepare_attention_grad_plain(p, workspace, stream);
    }
    const SomeOptions options = device_options(p.shape, p.extras);
    const int tiles = (shape.length + K::kBackRows - 1) / K::kBackRows;
    const int key_blocks = tiles * shape.kv_heads * shape.samples;
    const int query_blocks = key_blocks * shape.group;
    const float* sums = static_cast<const float*>(workspace);
    const float* lse = static_cast<const float*>(p.lse);
    const auto q = rows<const T>(p.q, shape.size), k = rows<const T>(p.k, shape.size);
    const auto v = rows<const T>(p.v, shape.value_size);
    const auto dout = rows<const T>(p.dout, shape.value_size);
    const auto dq = rows<T>(p.dq, shape.size), dk = rows<T>(p.dk, shape.size);
    const auto dv = rows<T>(p.dv, shape.value_size);
    allow(grad_of_query_strips<K>, K::kBackwardBytes);
    PlainLaunch of_keys;
    if constexpr (K::kTogether) {
      allow(grad_of_key_strips<K, true, true>, K::kBackwardBytes);
      of_keys = [=] {
        grad_of_key_strips<K, true, true>
            <<<key_blocks, kTensorThreads, K::kBackwardBytes, stream>>>(shape, options, q, k, v,
                                                                        dout, lse, sums, dk, dv);
      };
    } else {
      allow(grad_of_key_strips<K, true, false>, K::kBackwardBytes);
      allow(grad_of_key_strips<K, false, true>, K::kBackwardBytes);
      of_keys = [=] {
        grad_of_key_strips<K, true, false>
            <<<key_blocks, kTensorThreads, K::kBackwardBytes, stream>>>(shape, options, q, k, v,
                                                                        dout, lse, sums, dk, dv);
        grad_of_key_strips<K, false, true>
            <<<key_blocks, kTensorThreads, K::kBackwardBytes, stream>>>(shape, options, q, k, v,
                                                                        dout, lse, sums, dk, dv);
      };
    }
    return [=] {
      sum();
      of_keys();
      grad_of_query_strips<K><<<query_blocks, kTensorThreads, K::kBackwardBytes, stream>>>(
          shape, options, q, k, v, dout, lse, sums, dq);
      check_launch();
      if (tables) tables();
    };
  });
}

}  // namespace adjoint

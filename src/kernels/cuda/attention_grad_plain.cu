// The backward recomputes the scores from the kept log-sum (Dao et al., 2022), once for dk and dv
// by tiles of keys and once for dq by tiles of queries: no two blocks add to the same row. That is
// seven products where one pass would need five, but one pass would add up dq among its blocks: in
// any order, or in turn, each waiting for the one before. A tile of partners is fetched as soon as
// its last product is done, while the next product runs. The gradient of a bias, which is by
// distance, is a third pass: a block takes all tiles of one diagonal, and sums along theirs.
#include "kernels/cuda/attention_tiles.cuh"

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
  const T* a = out.head(sample, head).data + query * out.row_step;
  const T* b = dout.head(sample, head).data + query * dout.row_step;
  W sum = 0;
  for (int i = lane; i < shape.value_size; i += 32) sum += widen(a[i]) * widen(b[i]);
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) sums[row] = sum;
}

// A score becomes its weight, and the product dout . value what the score adds to the loss, but for
// the scale, which whole rows get at the end. Scale and log-sum are of powers of two.
template <class W>
__device__ void weigh(W scale, W lse, W row_sum, W& score, W& dscore) {
  score = power_of_two(score * scale - lse);
  dscore = score * (dscore - row_sum);
}

// The same with options: `score` becomes what the value is weighted with, after dropout, and
// `dscore` is that of the logit.
template <class H, class W>
__device__ void weigh(const H& of_head, bool seen, int query, int key, W lse, W row_sum, W& score,
                      W& dscore, W& cap_slope) {
  if (!seen) {
    score = dscore = cap_slope = 0;
    return;
  }
  const W logit = of_head.logit(score, query, key, cap_slope);
  const W weight = power_of_two(logit * W(kLog2E) - lse);
  const W factor = of_head.factor(query, key);
  score = weight * factor;
  dscore = weight * (dscore * factor - row_sum);
}

template <class K, class O>
__global__ void __launch_bounds__(K::kThreads, K::kBackwardBlocks)
    grad_of_keys(Shape shape, O options, RowsOf<const typename K::Element> q,
                 RowsOf<const typename K::Element> k, RowsOf<const typename K::Element> v,
                 RowsOf<const typename K::Element> dout, const typename K::W* lse,
                 const typename K::W* sums, RowsOf<typename K::Element> dk,
                 RowsOf<typename K::Element> dv) {
  using W = typename K::W;
  extern __shared__ __align__(16) unsigned char memory[];
  W* keys = reinterpret_cast<W*>(memory);
  W* values = keys + K::kOwn;
  W* queries = values + K::kOwn;
  W* douts = queries + K::kOther;
  W* weights = douts + K::kOther;  // then what the scores add to the loss
  W* tile_lse = weights + K::kScores;
  W* tile_sums = tile_lse + K::kPartners;

  const typename K::Thread thread;
  const Block block(shape.kv_heads, shape.samples);
  const int first = block.tile * K::kRows;
  // The tiles of all heads of the group, one after another.
  int begin = shape.causal ? first : 0, last = shape.length;
  if constexpr (O::kAny) {
    const QueryRange seeing(options.window, shape.length, shape.causal, first, K::kRows,
                            K::kPartners);
    begin = seeing.begin;
    last = seeing.end;
  }
  const int tiles = (last - begin + K::kPartners - 1) / K::kPartners;
  const auto head_of = [&](int tile) { return block.head * shape.group + tile / tiles; };
  const auto query_of = [&](int tile) { return begin + tile % tiles * K::kPartners; };
  const auto load_douts = [&](int tile) {
    K::load_other(douts, dout.head(block.sample, head_of(tile)), query_of(tile), shape);
  };
  const auto load_queries = [&](int tile) {
    const int head = head_of(tile), query = query_of(tile) + threadIdx.x;
    K::load_other(queries, q.head(block.sample, head), query_of(tile), shape);
    if (threadIdx.x >= K::kPartners) return;
    const int64_t heads = static_cast<int64_t>(block.sample) * shape.kv_heads * shape.group;
    const int64_t at = (heads + head) * shape.length + query;
    put<1>(tile_lse + threadIdx.x, lse + at, query < shape.length);
    put<1>(tile_sums + threadIdx.x, sums + at, query < shape.length);
  };
  K::load_own(keys, k.head(block.sample, block.head), first, shape);
  K::load_own(values, v.head(block.sample, block.head), first, shape);
  load_douts(0);
  __pipeline_commit();
  load_queries(0);
  __pipeline_commit();

  const W scale = W(shape.scale * kLog2E);
  typename K::Result dkey = {}, dvalue = {};
  const int end = shape.group * tiles;
  for (int tile = 0; tile < end; ++tile) {
    const int query0 = query_of(tile);
    const Sight sight(shape, options, query0, K::kPartners, first + thread.warp_row, K::kWarpRows);
    typename K::Scores scores, dscores;
    __pipeline_wait_prior(1);
    __syncthreads();  // douts have come
    if (sight.any) {
      // Registers are full: these wait in the thread's own places among the weights.
      K::dots(values, douts, thread, shape.value_size, dscores);
      K::share(weights, thread, dscores);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // queries have come
    if (sight.any) {
      K::dots(keys, queries, thread, shape.size, scores);
      const auto of_head = options_of<K>(options, shape, block.sample, head_of(tile));
      K::each_score(thread, [&](int i, int j, int row, int partner) {
        dscores[i][j] = weights[row * K::kScoreStride + partner];
        const int query = query0 + partner, key = first + row;
        const W row_lse = tile_lse[partner] * W(kLog2E);
        if constexpr (O::kAny) {
          W cap_slope;
          weigh(of_head, sight.all || of_head.sees(query, key), query, key, row_lse,
                tile_sums[partner], scores[i][j], dscores[i][j], cap_slope);
          dscores[i][j] *= cap_slope;
        } else {
          weigh(scale, row_lse, tile_sums[partner], scores[i][j], dscores[i][j]);
          if (!sight.all && !shape.seen(query, key)) scores[i][j] = dscores[i][j] = 0;
        }
      });
      K::share(weights, thread, scores);
      __syncwarp();
      K::add_rows(weights, douts, thread, dvalue);
    }
    __syncthreads();
    if (tile + 1 < end) load_douts(tile + 1);
    __pipeline_commit();
    if (sight.any) {
      K::share(weights, thread, dscores);
      __syncwarp();
      K::add_rows(weights, queries, thread, dkey);
    }
    __syncthreads();
    if (tile + 1 < end) load_queries(tile + 1);
    __pipeline_commit();
  }
  K::store(dk.head(block.sample, block.head), first, shape, thread, dkey,
           [&](int) { return W(shape.scale); });
  K::store(dv.head(block.sample, block.head), first, shape, thread, dvalue,
           [](int) { return W(1); });
}

template <class K, class O>
__global__ void __launch_bounds__(K::kThreads, K::kBackwardBlocks)
    grad_of_queries(Shape shape, O options, RowsOf<const typename K::Element> q,
                    RowsOf<const typename K::Element> k, RowsOf<const typename K::Element> v,
                    RowsOf<const typename K::Element> dout, const typename K::W* lse,
                    const typename K::W* sums, RowsOf<typename K::Element> dq) {
  using W = typename K::W;
  extern __shared__ __align__(16) unsigned char memory[];
  W* queries = reinterpret_cast<W*>(memory);
  W* douts = queries + K::kOwn;
  W* keys = douts + K::kOwn;
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
  K::load_own(douts, dout.head(block.sample, block.head), first, shape);
  K::load_other(values, v_head, begin, shape);
  __pipeline_commit();
  K::load_other(keys, k_head, begin, shape);
  __pipeline_commit();

  W row_lse[K::kHeight], row_sum[K::kHeight];
  const int64_t rows = (static_cast<int64_t>(block.sample) * heads + block.head) * shape.length;
#pragma unroll
  for (int i = 0; i < K::kHeight; ++i) {
    const int query = first + thread.row + i * kRowLanes;
    row_lse[i] = query < shape.length ? lse[rows + query] * W(kLog2E) : W(0);
    row_sum[i] = query < shape.length ? sums[rows + query] : W(0);
  }

  const W scale = W(shape.scale * kLog2E);
  typename K::Result dquery = {};
  const auto of_head = options_of<K>(options, shape, block.sample, block.head);
  for (int key0 = begin; key0 < end; key0 += K::kPartners) {
    const Sight sight(shape, options, first + thread.warp_row, K::kWarpRows, key0, K::kPartners);
    typename K::Scores scores, dscores;
    __pipeline_wait_prior(1);
    __syncthreads();  // values have come
    if (sight.any) K::dots(douts, values, thread, shape.value_size, dscores);
    __pipeline_wait_prior(0);
    __syncthreads();  // keys have come, and values may go
    if (key0 + K::kPartners < end) K::load_other(values, v_head, key0 + K::kPartners, shape);
    __pipeline_commit();
    if (sight.any) {
      K::dots(queries, keys, thread, shape.size, scores);
      K::each_score(thread, [&](int i, int j, int row, int partner) {
        const int query = first + row, key = key0 + partner;
        if constexpr (O::kAny) {
          W cap_slope;
          weigh(of_head, sight.all || of_head.sees(query, key), query, key, row_lse[i], row_sum[i],
                scores[i][j], dscores[i][j], cap_slope);
          dscores[i][j] *= cap_slope;
        } else {
          weigh(scale, row_lse[i], row_sum[i], scores[i][j], dscores[i][j]);
          if (!sight.all && !shape.seen(query, key)) dscores[i][j] = 0;
        }
      });
      K::share(weights, thread, dscores);
      __syncwarp();
      K::add_rows(weights, keys, thread, dquery);
    }
    __syncthreads();
    if (key0 + K::kPartners < end) K::load_other(keys, k_head, key0 + K::kPartners, shape);
    __pipeline_commit();
  }
  K::store(dq.head(block.sample, block.head), first, shape, thread, dquery,
           [&](int) { return W(shape.scale); });
}

// Tiles of kRows queries and kPartners keys whose first ones have the distance `diagonal` *
// kPartners: a block adds up what all of a head add to the bias, by distance. Element c of the sums
// is that of the distance diagonal * kPartners - kPartners + 1 + c.
template <class K>
__global__ void __launch_bounds__(K::kThreads)
    grad_of_bias(Shape shape, SomeOptions options, RowsOf<const typename K::Element> q,
                 RowsOf<const typename K::Element> k, RowsOf<const typename K::Element> v,
                 RowsOf<const typename K::Element> dout, const typename K::W* lse,
                 const typename K::W* sums, typename K::W* by_diagonal) {
  using W = typename K::W;
  constexpr int kDistances = K::kRows + K::kPartners - 1, kPerTile = K::kRows / K::kPartners;
  constexpr int kOwned = (kDistances + K::kThreads - 1) / K::kThreads;
  extern __shared__ __align__(16) unsigned char memory[];
  W* queries = reinterpret_cast<W*>(memory);
  W* douts = queries + K::kOwn;
  W* keys = douts + K::kOwn;
  W* values = keys + K::kOther;
  W* weights = values + K::kOther;

  const typename K::Thread thread;
  const int heads = shape.kv_heads * shape.group;
  const int head = blockIdx.x % heads,
            diagonal = static_cast<int>(blockIdx.x / heads) - kPerTile + 1;
  const int tiles = (shape.length + K::kRows - 1) / K::kRows;
  W own[kOwned] = {};
  for (int sample = 0; sample < shape.samples; ++sample) {
    const auto of_head = options_of<K>(options, shape, sample, head);
    const int64_t rows = (static_cast<int64_t>(sample) * heads + head) * shape.length;
    for (int tile = max(0, (diagonal + kPerTile - 1) / kPerTile); tile < tiles; ++tile) {
      const int first = tile * K::kRows, key0 = first - diagonal * K::kPartners;
      if (key0 >= shape.length) continue;
      __syncthreads();  // nobody reads the tiles before any more
      K::load_own(queries, q.head(sample, head), first, shape);
      K::load_own(douts, dout.head(sample, head), first, shape);
      K::load_other(keys, k.head(sample, head / shape.group), key0, shape);
      K::load_other(values, v.head(sample, head / shape.group), key0, shape);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
      typename K::Scores scores, dscores;
      K::dots(queries, keys, thread, shape.size, scores);
      K::dots(douts, values, thread, shape.value_size, dscores);
      K::each_score(thread, [&](int i, int j, int row, int partner) {
        const int query = first + row, key = key0 + partner;
        const bool seen = of_head.sees(query, key);
        W cap_slope;
        weigh(of_head, seen, query, key, seen ? lse[rows + query] * W(kLog2E) : W(0),
              seen ? sums[rows + query] : W(0), scores[i][j], dscores[i][j], cap_slope);
      });
      K::share(weights, thread, dscores);
      __syncthreads();
#pragma unroll
      for (int o = 0; o < kOwned; ++o) {
        const int c = threadIdx.x + o * K::kThreads;
        for (int partner = 0; partner < K::kPartners && c < kDistances; ++partner) {
          const int row = c - (K::kPartners - 1) + partner;
          if (row >= 0 && row < K::kRows) own[o] += weights[row * K::kScoreStride + partner];
        }
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kOwned; ++o) {
    const int c = threadIdx.x + o * K::kThreads;
    if (c < kDistances) by_diagonal[static_cast<int64_t>(blockIdx.x) * kDistances + c] = own[o];
  }
}

// Each distance is on several diagonals of tiles, and all from the last entry on are that entry's.
// A block per head.
template <class K>
__global__ void sum_of_diagonals(Shape shape, int entries, int diagonals,
                                 const typename K::W* by_diagonal, typename K::W* dbias,
                                 int64_t head_step, int64_t step) {
  using W = typename K::W;
  constexpr int kDistances = K::kRows + K::kPartners - 1, kPerTile = K::kRows / K::kPartners;
  __shared__ W far[K::kThreads];
  const int head = blockIdx.x, heads = shape.kv_heads * shape.group;
  const auto at_distance = [&](int distance) {
    W sum = 0;
    for (int i = 0; i < diagonals; ++i) {
      const int c = distance - (i - kPerTile + 1) * K::kPartners + K::kPartners - 1;
      if (c < 0) break;
      if (c < kDistances) {
        sum += by_diagonal[(static_cast<int64_t>(i) * heads + head) * kDistances + c];
      }
    }
    return sum;
  };
  W rest = 0;
  for (int distance = threadIdx.x; distance < shape.length; distance += K::kThreads) {
    const W sum = at_distance(distance);
    if (distance < entries - 1) {
      dbias[head * head_step + distance * step] = sum;
    } else {
      rest += sum;
    }
  }
  for (int entry = shape.length + threadIdx.x; entry < entries - 1; entry += K::kThreads) {
    dbias[head * head_step + entry * step] = 0;
  }
  far[threadIdx.x] = rest;
  __syncthreads();
  for (int half = K::kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) far[threadIdx.x] += far[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) dbias[head * head_step + (entries - 1) * step] = far[0];
}

constexpr int kSinkThreads = 256;

// dsinks[head] = - sum of exp(sink - lse) * (dout . out); a block per head.
template <class T, class W>
__global__ void grad_of_sinks(Shape shape, SomeOptions options, const W* lse, const W* sums,
                              W* dsinks, int64_t step) {
  __shared__ W parts[kSinkThreads];
  const int head = blockIdx.x, heads = shape.kv_heads * shape.group;
  const W sink = W(read_element<T>(options.sinks, head * options.sinks_step));
  W sum = 0;
  const int64_t count = static_cast<int64_t>(shape.samples) * shape.length;
  for (int64_t i = threadIdx.x; i < count; i += kSinkThreads) {
    const int64_t at = (i / shape.length * heads + head) * shape.length + i % shape.length;
    sum -= power_of_two((sink - lse[at]) * W(kLog2E)) * sums[at];
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kSinkThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) dsinks[head * step] = parts[0];
}

template <class K>
int num_diagonals(const Shape& shape) {
  // From the tile of keys before a tile of queries ends to the first key against the last query.
  return (num_tiles<K>(shape) * K::kRows) / K::kPartners;
}

template <class T, class W>
PlainLaunch row_sums_launch(const AttentionGradPlaces& p, W* sums, cudaStream_t stream) {
  constexpr int kSumThreads = 256;
  const Shape shape = device_shape(p.shape);
  const int64_t num_rows = p.shape.samples * p.shape.kv_heads * p.shape.group * p.shape.length;
  const int blocks = static_cast<int>((num_rows * 32 + kSumThreads - 1) / kSumThreads);
  const auto out = rows<const T>(p.out, shape.value_size);
  const auto dout = rows<const T>(p.dout, shape.value_size);
  return [=] {
    row_sums<T, W><<<blocks, kSumThreads, 0, stream>>>(shape, out, dout, sums);
    check_launch();
  };
}

template <class T, class W>
PlainLaunch grad_of_sinks_launch(const AttentionGradPlaces& p, const W* sums, cudaStream_t stream) {
  const Shape shape = device_shape(p.shape);
  const SomeOptions options = device_options(p.shape, p.extras);
  const W* lse = static_cast<const W*>(p.lse);
  W* dsinks = static_cast<W*>(p.dsinks);
  const int64_t step = p.dsinks_step;
  return [=] {
    grad_of_sinks<T, W><<<shape.kv_heads * shape.group, kSinkThreads, 0, stream>>>(
        shape, options, lse, sums, dsinks, step);
    check_launch();
  };
}

template <class K>
PlainLaunch grad_of_bias_launch(const AttentionGradPlaces& p, const typename K::W* sums,
                                void* workspace, cudaStream_t stream) {
  using T = typename K::Element;
  using W = typename K::W;
  const Shape shape = device_shape(p.shape);
  const SomeOptions options = device_options(p.shape, p.extras);
  allow(grad_of_bias<K>, K::kBackwardBytes);
  const int heads = shape.kv_heads * shape.group, diagonals = num_diagonals<K>(shape);
  const auto q = rows<const T>(p.q, shape.size), k = rows<const T>(p.k, shape.size);
  const auto v = rows<const T>(p.v, shape.value_size);
  const auto dout = rows<const T>(p.dout, shape.value_size);
  const W* lse = static_cast<const W*>(p.lse);
  W* by_diagonal = static_cast<W*>(workspace);
  W* dbias = static_cast<W*>(p.dbias);
  const int64_t head_step = p.dbias_head, step = p.dbias_step;
  return [=] {
    grad_of_bias<K><<<heads * diagonals, K::kThreads, K::kBackwardBytes, stream>>>(
        shape, options, q, k, v, dout, lse, sums, by_diagonal);
    sum_of_diagonals<K><<<heads, K::kThreads, 0, stream>>>(shape, options.entries, diagonals,
                                                           by_diagonal, dbias, head_step, step);
    check_launch();
  };
}

}  // namespace

PlainLaunch prepare_row_sums(const AttentionGradPlaces& p, void* sums, cudaStream_t stream) {
  return with_kernels(p.shape, p.extras, [&]<class K, class O>(K, O) -> PlainLaunch {
    using W = typename K::W;
    return row_sums_launch<typename K::Element, W>(p, static_cast<W*>(sums), stream);
  });
}

PlainLaunch prepare_grad_of_tables(const AttentionGradPlaces& p, const void* row_sums,
                                   void* workspace, cudaStream_t stream) {
  if (!p.dbias && !p.dsinks) return nullptr;
  return with_kernels(p.shape, p.extras, [&]<class K, class O>(K, O) -> PlainLaunch {
    using W = typename K::W;
    const W* sums = static_cast<const W*>(row_sums);
    PlainLaunch bias, sinks;
    if constexpr (O::kAny) {
      if (p.dbias) bias = grad_of_bias_launch<K>(p, sums, workspace, stream);
      if (p.dsinks) sinks = grad_of_sinks_launch<typename K::Element, W>(p, sums, stream);
    }
    return [=] {
      if (bias) bias();
      if (sinks) sinks();
    };
  });
}

PlainLaunch prepare_attention_grad_plain(const AttentionGradPlaces& p, void* workspace,
                                         cudaStream_t stream) {
  const Shape shape = device_shape(p.shape);
  const Bytes room = attention_grad_plain_workspace(p.shape);
  char* end_of_sums =
      static_cast<char*>(workspace) + (room - grad_of_tables_workspace(p.shape)).count;
  const PlainLaunch sum = prepare_row_sums(p, workspace, stream);
  const PlainLaunch tables = prepare_grad_of_tables(p, workspace, end_of_sums, stream);
  return with_kernels(p.shape, p.extras, [&]<class K, class O>(K, O options) -> PlainLaunch {
    using T = typename K::Element;
    using W = typename K::W;
    allow(grad_of_keys<K, O>, K::kBackwardBytes);
    allow(grad_of_queries<K, O>, K::kBackwardBytes);
    const int key_blocks = num_tiles<K>(shape) * shape.kv_heads * shape.samples;
    const int query_blocks = key_blocks * shape.group;
    const W* sums = static_cast<const W*>(workspace);
    const W* kept = static_cast<const W*>(p.lse);
    const auto q = rows<const T>(p.q, shape.size), k = rows<const T>(p.k, shape.size);
    const auto v = rows<const T>(p.v, shape.value_size);
    const auto dout = rows<const T>(p.dout, shape.value_size);
    const auto dq = rows<T>(p.dq, shape.size), dk = rows<T>(p.dk, shape.size);
    const auto dv = rows<T>(p.dv, shape.value_size);
    return [=] {
      sum();
      grad_of_keys<K, O><<<key_blocks, K::kThreads, K::kBackwardBytes, stream>>>(
          shape, options, q, k, v, dout, kept, sums, dk, dv);
      grad_of_queries<K, O><<<query_blocks, K::kThreads, K::kBackwardBytes, stream>>>(
          shape, options, q, k, v, dout, kept, sums, dq);
      check_launch();
      if (tables) tables();
    };
  });
}

}  // namespace adjoint

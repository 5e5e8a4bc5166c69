// The backward recomputes the scores from the kept log-sum (Dao et al., 2022), once for dk and dv
// by tiles of keys and once for dq by tiles of queries: no two blocks add to the same row. That is
// seven products where one pass would need five, but one pass would add up dq among its blocks: in
// any order, or in turn, each waiting for the one before. A tile of partners is fetched as soon as
// its last product is done, while the next product runs.
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
  const T* a = out.head(sample, head, shape.size).data + query * out.row_step;
  const T* b = dout.head(sample, head, shape.size).data + query * dout.row_step;
  W sum = 0;
  for (int i = lane; i < shape.size; i += 32) sum += widen(a[i]) * widen(b[i]);
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

template <class K>
__global__ void __launch_bounds__(K::kThreads, K::kBackwardBlocks)
    grad_of_keys(Shape shape, RowsOf<const typename K::Element> q,
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
  const int begin = shape.causal ? first : 0;
  const int tiles = (shape.length - begin + K::kPartners - 1) / K::kPartners;
  const auto head_of = [&](int tile) { return block.head * shape.group + tile / tiles; };
  const auto query_of = [&](int tile) { return begin + tile % tiles * K::kPartners; };
  const auto load_douts = [&](int tile) {
    K::load_other(douts, dout.head(block.sample, head_of(tile), shape.size), query_of(tile), shape);
  };
  const auto load_queries = [&](int tile) {
    const int head = head_of(tile), query = query_of(tile) + threadIdx.x;
    K::load_other(queries, q.head(block.sample, head, shape.size), query_of(tile), shape);
    if (threadIdx.x >= K::kPartners) return;
    const int64_t heads = static_cast<int64_t>(block.sample) * shape.kv_heads * shape.group;
    const int64_t at = (heads + head) * shape.length + query;
    put<1>(tile_lse + threadIdx.x, lse + at, query < shape.length);
    put<1>(tile_sums + threadIdx.x, sums + at, query < shape.length);
  };
  K::load_own(keys, k.head(block.sample, block.head, shape.size), first, shape);
  K::load_own(values, v.head(block.sample, block.head, shape.size), first, shape);
  load_douts(0);
  __pipeline_commit();
  load_queries(0);
  __pipeline_commit();

  const W scale = W(shape.scale * kLog2E);
  typename K::Result dkey = {}, dvalue = {};
  const int end = shape.group * tiles;
  for (int tile = 0; tile < end; ++tile) {
    const int query0 = query_of(tile);
    const Sight sight(shape, query0, K::kPartners, first + thread.warp_row, K::kWarpRows);
    typename K::Scores scores, dscores;
    __pipeline_wait_prior(1);
    __syncthreads();  // douts have come
    if (sight.any) {
      // Registers are full: these wait in the thread's own places among the weights.
      K::dots(values, douts, thread, shape.size, dscores);
      K::share(weights, thread, dscores);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // queries have come
    if (sight.any) {
      K::dots(keys, queries, thread, shape.size, scores);
      K::each_score(thread, [&](int i, int j, int row, int partner) {
        dscores[i][j] = weights[row * K::kScoreStride + partner];
        weigh(scale, tile_lse[partner] * W(kLog2E), tile_sums[partner], scores[i][j],
              dscores[i][j]);
        if (!sight.all && !shape.seen(query0 + partner, first + row))
          scores[i][j] = dscores[i][j] = 0;
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
  K::store(dk.head(block.sample, block.head, shape.size), first, shape, thread, dkey,
           [&](int) { return W(shape.scale); });
  K::store(dv.head(block.sample, block.head, shape.size), first, shape, thread, dvalue,
           [](int) { return W(1); });
}

template <class K>
__global__ void __launch_bounds__(K::kThreads, K::kBackwardBlocks)
    grad_of_queries(Shape shape, RowsOf<const typename K::Element> q,
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
  const int end = shape.causal ? min(shape.length, first + K::kRows) : shape.length;
  const auto k_head = k.head(block.sample, block.head / shape.group, shape.size);
  const auto v_head = v.head(block.sample, block.head / shape.group, shape.size);
  K::load_own(queries, q.head(block.sample, block.head, shape.size), first, shape);
  K::load_own(douts, dout.head(block.sample, block.head, shape.size), first, shape);
  K::load_other(values, v_head, 0, shape);
  __pipeline_commit();
  K::load_other(keys, k_head, 0, shape);
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
  for (int key0 = 0; key0 < end; key0 += K::kPartners) {
    const Sight sight(shape, first + thread.warp_row, K::kWarpRows, key0, K::kPartners);
    typename K::Scores scores, dscores;
    __pipeline_wait_prior(1);
    __syncthreads();  // values have come
    if (sight.any) K::dots(douts, values, thread, shape.size, dscores);
    __pipeline_wait_prior(0);
    __syncthreads();  // keys have come, and values may go
    if (key0 + K::kPartners < end) K::load_other(values, v_head, key0 + K::kPartners, shape);
    __pipeline_commit();
    if (sight.any) {
      K::dots(queries, keys, thread, shape.size, scores);
      K::each_score(thread, [&](int i, int j, int row, int partner) {
        weigh(scale, row_lse[i], row_sum[i], scores[i][j], dscores[i][j]);
        if (!sight.all && !shape.seen(first + row, key0 + partner)) dscores[i][j] = 0;
      });
      K::share(weights, thread, dscores);
      __syncwarp();
      K::add_rows(weights, keys, thread, dquery);
    }
    __syncthreads();
    if (key0 + K::kPartners < end) K::load_other(keys, k_head, key0 + K::kPartners, shape);
    __pipeline_commit();
  }
  K::store(dq.head(block.sample, block.head, shape.size), first, shape, thread, dquery,
           [&](int) { return W(shape.scale); });
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
    const auto read = [=](Rows r) { return rows<const T>(r, shape); };
    const auto write = [=](Rows r) { return rows<T>(r, shape); };
    return [=] {
      row_sums<T, W><<<sum_blocks, kSumThreads, 0, stream>>>(shape, read(out), read(dout), sums);
      grad_of_keys<K><<<key_blocks, K::kThreads, K::kBackwardBytes, stream>>>(
          shape, read(q), read(k), read(v), read(dout), kept, sums, write(dk), write(dv));
      grad_of_queries<K><<<query_blocks, K::kThreads, K::kBackwardBytes, stream>>>(
          shape, read(q), read(k), read(v), read(dout), kept, sums, write(dq));
      check_launch();
    };
  });
}

}  // namespace adjoint

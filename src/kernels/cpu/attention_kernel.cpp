// Per head: keys and values are packed once (transposed into panels where a product wants columns
// of keys), then queries go in blocks of kQueries rows against blocks of kKeys keys. A block's
// scores stay in the first-level cache and blocks above the diagonal are never computed. Forward
// keeps a running maximum and sum per row (Milakov & Gimelshein, 2018); backward recomputes the
// scores from the kept log-sum (Dao et al., 2022). Blocks depend on the shape alone, so the bits
// depend on neither threads nor batch.
#include "kernels/cpu/attention_kernel.h"

#include <algorithm>
#include <cmath>

#include "device/parallel.h"
#include "kernels/cpu/attention_rows.h"

namespace adjoint {

namespace {

using Triangle = SmallProduct::Triangle;

int64_t padded(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

template <class T>
T* head(Rows rows, int64_t sample, int64_t head, int64_t size) {
  return static_cast<T*>(rows.data) + sample * rows.sample_step + head * size;
}

// Distributes units among workers. Each worker has a workspace of its own, whichever thread runs
// it.
template <class F>
void for_units(int64_t units, int workers, const F& f) {
  parallel_for(workers, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t w = begin; w < end; ++w) f(units * w / workers, units * (w + 1) / workers, w);
  });
}

// How many of the keys from `key` on the query `first` sees; each later query sees one more.
// Without a mask it is more than there are keys, so that every query sees all.
int64_t seen_by_first(const AttentionShape& s, int64_t first, int64_t key) {
  return s.causal ? first + 1 - key : kKeys;
}

// The three products of a block of scores [rows, keys], whose row r sees its first `visible` + r
// keys. Scores: [rows, size] by the keys' columns.
SmallProduct columns_of_keys(const AttentionShape& s, int64_t rows, int64_t keys, int64_t visible) {
  return {.m = rows,
          .n = padded(keys),
          .k = s.size,
          .a_row = padded(s.size),
          .a_k = 1,
          .b_row = kPanel,
          .b_panel = kPanel * s.size,
          .c_row = kKeys,
          .triangle = Triangle::kResult,
          .visible = visible};
}
// Weights by [keys, size], added to [rows, size].
SmallProduct sums_over_keys(const AttentionShape& s, int64_t rows, int64_t keys, int64_t visible) {
  return {.m = rows,
          .n = padded(s.size),
          .k = keys,
          .a_row = kKeys,
          .a_k = 1,
          .b_row = padded(s.size),
          .b_panel = kPanel,
          .c_row = padded(s.size),
          .accumulate = true,
          .triangle = Triangle::kLeft,
          .visible = visible};
}
// Weights, transposed, by [rows, size], added to [keys, size].
SmallProduct sums_over_queries(const AttentionShape& s, int64_t rows, int64_t keys,
                               int64_t visible) {
  return {.m = keys,
          .n = padded(s.size),
          .k = rows,
          .a_row = 1,
          .a_k = kKeys,
          .b_row = padded(s.size),
          .b_panel = kPanel,
          .c_row = padded(s.size),
          .accumulate = true,
          .triangle = Triangle::kLeftTransposed,
          .visible = visible};
}

template <class W>
struct ForwardSpace {
  W *keys_t, *values, *queries, *result, *scores;
  static int64_t count(const AttentionShape& s) {
    const int64_t wide = padded(s.size);
    return padded(s.length) * s.size + s.length * wide + 2 * kQueries * wide + kQueries * kKeys;
  }
  ForwardSpace(const AttentionShape& s, void* at) {
    const int64_t wide = padded(s.size);
    keys_t = static_cast<W*>(at);
    values = keys_t + padded(s.length) * s.size;
    queries = values + s.length * wide;
    result = queries + kQueries * wide;
    scores = result + kQueries * wide;
  }
};

// One block of queries against all keys that it sees, into result and lse.
template <class W>
void forward_block(const AttentionShape& s, const ForwardSpace<W>& at, int64_t first, int64_t rows,
                   W* lse) {
  const int64_t wide = padded(s.size), seen = s.causal ? first + rows : s.length;
  const W scale = static_cast<W>(s.scale());
  Running<W> running[kQueries];
  std::fill(at.result, at.result + rows * wide, W{0});
  for (int64_t key = 0; key < seen; key += kKeys) {
    const int64_t keys = std::min(kKeys, seen - key), visible = seen_by_first(s, first, key);
    small_product(columns_of_keys(s, rows, keys, visible), at.queries, at.keys_t + key * s.size,
                  at.scores);
    weigh_block(at.scores, rows, visible, keys, scale, running, at.result, wide);
    small_product(sums_over_keys(s, rows, keys, visible), at.scores, at.values + key * wide,
                  at.result);
  }
  for (int64_t r = 0; r < rows; ++r) {
    multiply(at.result + r * wide, wide, 1 / running[r].sum);
    lse[r] = running[r].highest + std::log(running[r].sum);
  }
}

template <class T>
void forward(const AttentionShape& s, int workers, Rows q, Rows k, Rows v, Rows out, void* lse_out,
             void* workspace) {
  using W = typename Wide<T>::type;
  const int64_t n = s.length, d = s.size, wide = padded(d);
  const int64_t per_thread = forward_bytes_per_thread(s).count;
  // If there are fewer heads of keys than threads, heads of queries are distributed instead.
  const int64_t kv_units = s.samples * s.kv_heads, parts = kv_units < workers ? s.group : 1;
  for_units(kv_units * parts, workers, [&](int64_t begin, int64_t end, int64_t worker) {
    const ForwardSpace<W> at(s, static_cast<char*>(workspace) + worker * per_thread);
    for (int64_t each = begin; each < end; ++each) {
      const int64_t unit = each / parts, part = each % parts;
      const int64_t sample = unit / s.kv_heads, kv = unit % s.kv_heads;
      pack(at.values, wide, head<T>(k, sample, kv, d), k.row_step, n, d);
      transpose(at.keys_t, at.values, wide, n, d);
      pack(at.values, wide, head<T>(v, sample, kv, d), v.row_step, n, d);
      for (int64_t g = s.group * part / parts; g < s.group * (part + 1) / parts; ++g) {
        const int64_t h = kv * s.group + g;
        W* lse = static_cast<W*>(lse_out) + (unit * s.group + g) * n;
        for (int64_t first = 0; first < n; first += kQueries) {
          const int64_t rows = std::min(kQueries, n - first);
          pack(at.queries, wide, head<T>(q, sample, h, d) + first * q.row_step, q.row_step, rows,
               d);
          forward_block(s, at, first, rows, lse + first);
          unpack(head<T>(out, sample, h, d) + first * out.row_step, out.row_step, at.result, wide,
                 rows, d);
        }
      }
    }
  });
}

template <class W>
struct BackwardSpace {
  W *keys, *keys_t, *values_t, *dkeys, *dvalues;
  W *queries, *douts, *outs, *dqueries, *scores, *dscores;
  static int64_t count(const AttentionShape& s) {
    const int64_t wide = padded(s.size);
    return 3 * s.length * wide + 2 * padded(s.length) * s.size + 4 * kQueries * wide +
           2 * kQueries * kKeys;
  }
  BackwardSpace(const AttentionShape& s, void* at) {
    const int64_t wide = padded(s.size), block = kQueries * wide;
    keys = static_cast<W*>(at);
    keys_t = keys + s.length * wide;
    values_t = keys_t + padded(s.length) * s.size;
    dkeys = values_t + padded(s.length) * s.size;
    dvalues = dkeys + s.length * wide;
    queries = dvalues + s.length * wide;
    douts = queries + block;
    outs = douts + block;
    dqueries = outs + block;
    scores = dqueries + block;
    dscores = scores + kQueries * kKeys;
  }
};

// One block of queries: its own gradient, and its contribution to those of keys and values.
template <class W>
void backward_block(const AttentionShape& s, const BackwardSpace<W>& at, int64_t first,
                    int64_t rows, const W* lse) {
  const int64_t wide = padded(s.size), seen = s.causal ? first + rows : s.length;
  const W scale = static_cast<W>(s.scale());
  W delta[kQueries];
  for (int64_t r = 0; r < rows; ++r) {
    delta[r] = dot(at.douts + r * wide, at.outs + r * wide, s.size);
  }
  std::fill(at.dqueries, at.dqueries + rows * wide, W{0});
  for (int64_t key = 0; key < seen; key += kKeys) {
    const int64_t keys = std::min(kKeys, seen - key), visible = seen_by_first(s, first, key);
    const SmallProduct columns = columns_of_keys(s, rows, keys, visible);
    small_product(columns, at.queries, at.keys_t + key * s.size, at.scores);
    small_product(columns, at.douts, at.values_t + key * s.size, at.dscores);
    weigh_block_back(at.scores, at.dscores, rows, visible, keys, scale, lse, delta);
    small_product(sums_over_keys(s, rows, keys, visible), at.dscores, at.keys + key * wide,
                  at.dqueries);
    const SmallProduct rows_of_keys = sums_over_queries(s, rows, keys, visible);
    small_product(rows_of_keys, at.scores, at.douts, at.dvalues + key * wide);
    small_product(rows_of_keys, at.dscores, at.queries, at.dkeys + key * wide);
  }
}

template <class T>
void backward(const AttentionShape& s, int workers, Rows q, Rows k, Rows v, Rows out,
              const void* lse_in, Rows dout, Rows dq, Rows dk, Rows dv, void* workspace) {
  using W = typename Wide<T>::type;
  const int64_t n = s.length, d = s.size, wide = padded(d);
  const int64_t per_thread = backward_bytes_per_thread(s).count;
  for_units(s.samples * s.kv_heads, workers, [&](int64_t begin, int64_t end, int64_t worker) {
    const BackwardSpace<W> at(s, static_cast<char*>(workspace) + worker * per_thread);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t sample = unit / s.kv_heads, kv = unit % s.kv_heads;
      pack(at.keys, wide, head<T>(v, sample, kv, d), v.row_step, n, d);
      transpose(at.values_t, at.keys, wide, n, d);
      pack(at.keys, wide, head<T>(k, sample, kv, d), k.row_step, n, d);
      transpose(at.keys_t, at.keys, wide, n, d);
      std::fill(at.dkeys, at.dkeys + 2 * n * wide, W{0});
      for (int64_t g = 0; g < s.group; ++g) {
        const int64_t h = kv * s.group + g;
        const W* lse = static_cast<const W*>(lse_in) + (unit * s.group + g) * n;
        for (int64_t first = 0; first < n; first += kQueries) {
          const int64_t rows = std::min(kQueries, n - first);
          const auto block = [&](W* to, Rows from) {
            pack(to, wide, head<T>(from, sample, h, d) + first * from.row_step, from.row_step, rows,
                 d);
          };
          block(at.queries, q);
          block(at.douts, dout);
          block(at.outs, out);
          backward_block(s, at, first, rows, lse + first);
          unpack(head<T>(dq, sample, h, d) + first * dq.row_step, dq.row_step, at.dqueries, wide,
                 rows, d);
        }
      }
      unpack(head<T>(dk, sample, kv, d), dk.row_step, at.dkeys, wide, n, d);
      unpack(head<T>(dv, sample, kv, d), dv.row_step, at.dvalues, wide, n, d);
    }
  });
}

}  // namespace

Bytes forward_bytes_per_thread(const AttentionShape& shape) {
  return round_up(ForwardSpace<float>::count(shape) * size_of(shape.wide()), {64});
}

Bytes backward_bytes_per_thread(const AttentionShape& shape) {
  return round_up(BackwardSpace<float>::count(shape) * size_of(shape.wide()), {64});
}

int attention_workers(int threads, Bytes per_thread, Bytes cap) {
  return static_cast<int>(std::clamp<int64_t>(cap.count / per_thread.count, 1, threads));
}

void attention_forward(const AttentionShape& shape, int workers, Rows q, Rows k, Rows v, Rows out,
                       void* lse, void* workspace) {
  with_float_type(shape.dtype,
                  [&]<class T>() { forward<T>(shape, workers, q, k, v, out, lse, workspace); });
}

void attention_backward(const AttentionShape& shape, int workers, Rows q, Rows k, Rows v, Rows out,
                        const void* lse, Rows dout, Rows dq, Rows dk, Rows dv, void* workspace) {
  with_float_type(shape.dtype, [&]<class T>() {
    backward<T>(shape, workers, q, k, v, out, lse, dout, dq, dk, dv, workspace);
  });
}

}  // namespace adjoint

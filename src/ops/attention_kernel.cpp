// Per head: keys and values are packed once (keys transposed, so that scores are products with unit
// stride), then queries go in blocks of kBlock rows. A block's scores stay in cache; tiles above
// the diagonal are never computed. Backward computes the scores again from the kept log-sum (Dao et
// al., 2022).
#include "ops/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/parallel.h"
#include "ops/elements.h"
#include "ops/small_product.h"
#include "ops/vector_math.h"

namespace adjoint {

namespace {

constexpr int64_t kBlock = 48;  // query rows, a multiple of small_product's tiles
// x becomes exp(scale * x - shift); returns the sum. `shift` is the row's largest scaled score in
// the forward pass and its log-sum in the backward pass.
ADJOINT_SIMD float exponentials(float* x, int64_t n, float scale, float shift) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int k = 0; k < 16; ++k) {
      x[i + k] = fast_exp(scale * x[i + k] - shift);
      lanes[k] += x[i + k];
    }
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += x[i] = fast_exp(scale * x[i] - shift);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}
double exponentials(double* x, int64_t n, double scale, double shift) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(scale * x[i] - shift);
  return sum;
}

ADJOINT_SIMD float largest(const float* x, int64_t n) {
  float all = -INFINITY;
  for (int64_t i = 0; i < n; ++i) all = all < x[i] ? x[i] : all;
  return all;
}
double largest(const double* x, int64_t n) { return *std::max_element(x, x + n); }

// ds = p * (dp - delta) * scale, into dp.
ADJOINT_SIMD void score_gradients(float* dp, const float* p, int64_t n, float delta, float scale) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) dp[i] = p[i] * (dp[i] - delta) * scale;
}
void score_gradients(double* dp, const double* p, int64_t n, double delta, double scale) {
  for (int64_t i = 0; i < n; ++i) dp[i] = p[i] * (dp[i] - delta) * scale;
}

// One head's rows in the wide type: dense [length, size], or transposed [size, length].
template <class T, class W>
void pack(W* to, const T* from, int64_t row_step, int64_t length, int64_t size) {
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t d = 0; d < size; ++d) to[i * size + d] = static_cast<W>(from[i * row_step + d]);
  }
}
template <class T, class W>
void pack_transposed(W* to, const T* from, int64_t row_step, int64_t length, int64_t size) {
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t d = 0; d < size; ++d) to[d * length + i] = static_cast<W>(from[i * row_step + d]);
  }
}
template <class T, class W>
void unpack(T* to, int64_t row_step, const W* from, int64_t length, int64_t size) {
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t d = 0; d < size; ++d) to[i * row_step + d] = static_cast<T>(from[i * size + d]);
  }
}

template <class T>
T* head(Rows rows, int64_t sample, int64_t head, int64_t size) {
  return static_cast<T*>(rows.data) + sample * rows.sample_step + head * size;
}

// Shares units out among workers, each of which has a workspace of its own whoever runs it.
template <class F>
void for_units(int64_t units, int workers, const F& f) {
  parallel_for(workers, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t w = begin; w < end; ++w) f(units * w / workers, units * (w + 1) / workers, w);
  });
}

template <class T>
void forward(const AttentionShape& s, int workers, Rows q, Rows k, Rows v, Rows out, void* lse_out,
             void* workspace) {
  using W = typename Wide<T>::type;
  const int64_t n = s.length, d = s.size, per_thread = s.forward_bytes_per_thread().count;
  const W scale = static_cast<W>(s.scale());
  for_units(s.samples * s.kv_heads, workers, [&](int64_t begin, int64_t end, int64_t worker) {
    W* keys = reinterpret_cast<W*>(static_cast<char*>(workspace) + worker * per_thread);
    W* values = keys + d * n;
    W* queries = values + n * d;
    W* result = queries + kBlock * d;
    W* scores = result + kBlock * d;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t sample = unit / s.kv_heads, kv = unit % s.kv_heads;
      pack_transposed(keys, head<T>(k, sample, kv, d), k.row_step, n, d);
      pack(values, head<T>(v, sample, kv, d), v.row_step, n, d);
      for (int64_t g = 0; g < s.group; ++g) {
        const int64_t h = kv * s.group + g;
        W* lse = static_cast<W*>(lse_out) + (unit * s.group + g) * n;
        for (int64_t first = 0; first < n; first += kBlock) {
          const int64_t rows = std::min(kBlock, n - first);
          const int64_t seen = s.causal ? first + rows : n;
          pack(queries, head<T>(q, sample, h, d) + first * q.row_step, q.row_step, rows, d);
          small_product(
              {.m = rows, .n = seen, .k = d, .a_row = d, .a_k = 1, .b_row = n, .c_row = n}, queries,
              keys, scores);
          for (int64_t r = 0; r < rows; ++r) {
            W* row = scores + r * n;
            const int64_t own = s.causal ? first + r + 1 : n;
            const W highest = scale * largest(row, own);
            const W sum = exponentials(row, own, scale, highest);
            std::fill(row + own, row + seen, W{0});
            lse[first + r] = highest + std::log(sum);
            const W inverse = 1 / sum;
            for (int64_t j = 0; j < own; ++j) row[j] *= inverse;
          }
          small_product(
              {.m = rows, .n = d, .k = seen, .a_row = n, .a_k = 1, .b_row = d, .c_row = d}, scores,
              values, result);
          unpack(head<T>(out, sample, h, d) + first * out.row_step, out.row_step, result, rows, d);
        }
      }
    }
  });
}

template <class T>
void backward(const AttentionShape& s, int workers, Rows q, Rows k, Rows v, Rows out,
              const void* lse_in, Rows dout, Rows dq, Rows dk, Rows dv, void* workspace) {
  using W = typename Wide<T>::type;
  const int64_t n = s.length, d = s.size, per_thread = s.backward_bytes_per_thread().count;
  const W scale = static_cast<W>(s.scale());
  for_units(s.samples * s.kv_heads, workers, [&](int64_t begin, int64_t end, int64_t worker) {
    W* keys = reinterpret_cast<W*>(static_cast<char*>(workspace) + worker * per_thread);
    W* keys_t = keys + n * d;
    W* values_t = keys_t + n * d;
    W* dkeys = values_t + n * d;
    W* dvalues = dkeys + n * d;
    W* queries = dvalues + n * d;
    W* douts = queries + kBlock * d;
    W* dqueries = douts + kBlock * d;
    W* scores = dqueries + kBlock * d;
    W* dscores = scores + kBlock * n;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t sample = unit / s.kv_heads, kv = unit % s.kv_heads;
      const T* key_rows = head<T>(k, sample, kv, d);
      pack(keys, key_rows, k.row_step, n, d);
      pack_transposed(keys_t, key_rows, k.row_step, n, d);
      pack_transposed(values_t, head<T>(v, sample, kv, d), v.row_step, n, d);
      std::fill(dkeys, dkeys + 2 * n * d, W{0});
      for (int64_t g = 0; g < s.group; ++g) {
        const int64_t h = kv * s.group + g;
        const W* lse = static_cast<const W*>(lse_in) + (unit * s.group + g) * n;
        for (int64_t first = 0; first < n; first += kBlock) {
          const int64_t rows = std::min(kBlock, n - first);
          const int64_t seen = s.causal ? first + rows : n;
          const T* out_rows = head<T>(out, sample, h, d) + first * out.row_step;
          pack(queries, head<T>(q, sample, h, d) + first * q.row_step, q.row_step, rows, d);
          pack(douts, head<T>(dout, sample, h, d) + first * dout.row_step, dout.row_step, rows, d);
          small_product(
              {.m = rows, .n = seen, .k = d, .a_row = d, .a_k = 1, .b_row = n, .c_row = n}, queries,
              keys_t, scores);
          small_product(
              {.m = rows, .n = seen, .k = d, .a_row = d, .a_k = 1, .b_row = n, .c_row = n}, douts,
              values_t, dscores);
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t own = s.causal ? first + r + 1 : n;
            W delta = 0;
            for (int64_t i = 0; i < d; ++i) {
              delta += douts[r * d + i] * static_cast<W>(out_rows[r * out.row_step + i]);
            }
            exponentials(scores + r * n, own, scale, lse[first + r]);
            score_gradients(dscores + r * n, scores + r * n, own, delta, scale);
            std::fill(scores + r * n + own, scores + r * n + seen, W{0});
            std::fill(dscores + r * n + own, dscores + r * n + seen, W{0});
          }
          small_product(
              {.m = rows, .n = d, .k = seen, .a_row = n, .a_k = 1, .b_row = d, .c_row = d}, dscores,
              keys, dqueries);
          small_product({.m = seen,
                         .n = d,
                         .k = rows,
                         .a_row = 1,
                         .a_k = n,
                         .b_row = d,
                         .c_row = d,
                         .accumulate = true},
                        scores, douts, dvalues);
          small_product({.m = seen,
                         .n = d,
                         .k = rows,
                         .a_row = 1,
                         .a_k = n,
                         .b_row = d,
                         .c_row = d,
                         .accumulate = true},
                        dscores, queries, dkeys);
          unpack(head<T>(dq, sample, h, d) + first * dq.row_step, dq.row_step, dqueries, rows, d);
        }
      }
      unpack(head<T>(dk, sample, kv, d), dk.row_step, dkeys, n, d);
      unpack(head<T>(dv, sample, kv, d), dv.row_step, dvalues, n, d);
    }
  });
}

}  // namespace

double AttentionShape::scale() const { return 1 / std::sqrt(static_cast<double>(size)); }

Bytes AttentionShape::forward_bytes_per_thread() const {
  const int64_t count = 2 * length * size + 2 * kBlock * size + kBlock * length;
  return round_up(count * size_of(wide()), {64});
}

Bytes AttentionShape::backward_bytes_per_thread() const {
  const int64_t count = 5 * length * size + 3 * kBlock * size + 2 * kBlock * length;
  return round_up(count * size_of(wide()), {64});
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

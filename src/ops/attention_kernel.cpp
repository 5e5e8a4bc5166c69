// Per head: keys and values are packed once (transposed into panels where a product wants columns
// of keys), then queries go in blocks of kQueries rows against blocks of kKeys keys. A block's
// scores stay in the first-level cache and blocks above the diagonal are never computed. Forward
// keeps a running maximum and sum per row (Milakov & Gimelshein, 2018); backward computes the
// scores again from the kept log-sum (Dao et al., 2022). Blocks depend on the shape alone, so the
// bits depend on neither threads nor batch.
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

// Both are multiples of every row tile of small_product (4, 6, 12), kKeys of kPanel, too.
constexpr int64_t kQueries = 48, kKeys = 96;

using Triangle = SmallProduct::Triangle;

int64_t padded(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

// A row's part of the softmax: what was seen before, updated.
template <class W>
struct Running {
  W highest = -INFINITY, sum = 0;
};

constexpr int kLanes = 16;  // of a row's maxima and sums, whatever the vector width is

// exp(x) for x that is not much above zero: what is below -87 gives 1e-38. One power of two is
// enough then, and rounding to an integer leaves it, biased, in the lowest bits.
ADJOINT_INLINE float exp_of_negative(float x) {
  constexpr float kMagic = 12582912.0f + 127.0f;  // 1.5 * 2^23, and the bias of an exponent
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = clamped * 1.44269504f + kMagic;
  const float n = shifted - kMagic;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * std::bit_cast<float>(std::bit_cast<int32_t>(shifted) << 23);
}
ADJOINT_INLINE double exp_of_negative(double x) { return std::exp(x); }

// x becomes exp(scale * x - shift); returns the sum. `shift` is the row's largest scaled score in
// the forward pass and its log-sum in the backward pass.
template <class W>
ADJOINT_INLINE W exponentials(W* x, int64_t n, W scale, W shift) {
  W lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      x[i + k] = exp_of_negative(scale * x[i + k] - shift);
      lanes[k] += x[i + k];
    }
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += x[i] = exp_of_negative(scale * x[i] - shift);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

template <class W>
ADJOINT_INLINE W largest(const W* x, int64_t n) {
  W lanes[kLanes];
  for (W& lane : lanes) lane = -INFINITY;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] = lanes[k] < x[i + k] ? x[i + k] : lanes[k];
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] = lanes[k] < x[i] ? x[i] : lanes[k];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) {
      lanes[k] = lanes[k] < lanes[k + half] ? lanes[k + half] : lanes[k];
    }
  }
  return lanes[0];
}

// The first `own` scores of a row become weights, the others nothing. Returns what the row's result
// so far must be multiplied by.
template <class W>
ADJOINT_INLINE W weigh(W* row, int64_t own, int64_t keys, W scale, Running<W>& running) {
  for (int64_t i = own; i < keys; ++i) row[i] = 0;
  if (own == 0) return 1;
  const W here = scale * largest(row, own);
  const W highest = running.highest < here ? here : running.highest;
  const W shrink = running.highest == highest ? W{1} : exp_of_negative(running.highest - highest);
  running.sum = running.sum * shrink + exponentials(row, own, scale, highest);
  running.highest = highest;
  return shrink;
}

// The same for a block of rows, of which row r sees min(keys, first + r) of the keys.
template <class W>
ADJOINT_INLINE void weigh_rows(W* scores, int64_t rows, int64_t first, int64_t keys, W scale,
                               Running<W>* running, W* result, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t own = std::clamp<int64_t>(first + r, 0, keys);
    const W shrink = weigh(scores + r * kKeys, own, keys, scale, running[r]);
    if (shrink == 1) continue;
    for (int64_t i = 0; i < width; ++i) result[r * width + i] *= shrink;
  }
}

// Scores become weights, and the weights' gradients those of the scores:
// ds = p * (dp - delta) * scale.
template <class W>
ADJOINT_INLINE void weigh_back(W* scores, W* dscores, int64_t rows, int64_t first, int64_t keys,
                               W scale, const W* lse, const W* delta) {
  for (int64_t r = 0; r < rows; ++r) {
    W* __restrict p = scores + r * kKeys, * __restrict dp = dscores + r * kKeys;
    const int64_t own = std::clamp<int64_t>(first + r, 0, keys);
    exponentials(p, own, scale, lse[r]);
    for (int64_t i = 0; i < own; ++i) dp[i] = p[i] * (dp[i] - delta[r]) * scale;
    for (int64_t i = own; i < keys; ++i) p[i] = dp[i] = 0;
  }
}

ADJOINT_SIMD void multiply(float* x, int64_t n, float by) {
  for (int64_t i = 0; i < n; ++i) x[i] *= by;
}
void multiply(double* x, int64_t n, double by) {
  for (int64_t i = 0; i < n; ++i) x[i] *= by;
}

ADJOINT_SIMD float dot(const float* x, const float* y, int64_t n) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int k = 0; k < 16; ++k) lanes[k] += x[i + k] * y[i + k];
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += x[i] * y[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}
double dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// The two above, compiled for each instruction set.
ADJOINT_SIMD void weigh_block(float* scores, int64_t rows, int64_t first, int64_t keys, float scale,
                              Running<float>* running, float* result, int64_t width) {
  weigh_rows(scores, rows, first, keys, scale, running, result, width);
}
void weigh_block(double* scores, int64_t rows, int64_t first, int64_t keys, double scale,
                 Running<double>* running, double* result, int64_t width) {
  weigh_rows(scores, rows, first, keys, scale, running, result, width);
}
ADJOINT_SIMD void weigh_block_back(float* scores, float* dscores, int64_t rows, int64_t first,
                                   int64_t keys, float scale, const float* lse,
                                   const float* delta) {
  weigh_back(scores, dscores, rows, first, keys, scale, lse, delta);
}
void weigh_block_back(double* scores, double* dscores, int64_t rows, int64_t first, int64_t keys,
                      double scale, const double* lse, const double* delta) {
  weigh_back(scores, dscores, rows, first, keys, scale, lse, delta);
}

// Rows between memory and the wide type.
void load_row(double* to, const double* from, int64_t n) { std::memcpy(to, from, n * 8); }
void load_row(float* to, const float* from, int64_t n) { std::memcpy(to, from, n * 4); }
ADJOINT_SIMD void load_row(float* to, const BFloat16* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
ADJOINT_SIMD void load_row(float* to, const Float16* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
void store_row(double* to, const double* from, int64_t n) { std::memcpy(to, from, n * 8); }
void store_row(float* to, const float* from, int64_t n) { std::memcpy(to, from, n * 4); }
ADJOINT_SIMD void store_row(BFloat16* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<BFloat16>(from[i]);
}
ADJOINT_SIMD void store_row(Float16* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Float16>(from[i]);
}

// One head's rows, each `width` long: what is past `size` is zero.
template <class T, class W>
void pack(W* to, int64_t width, const T* from, int64_t row_step, int64_t length, int64_t size) {
  for (int64_t i = 0; i < length; ++i) {
    load_row(to + i * width, from + i * row_step, size);
    std::fill(to + i * width + size, to + (i + 1) * width, W{0});
  }
}
template <class T, class W>
void unpack(T* to, int64_t row_step, const W* from, int64_t width, int64_t length, int64_t size) {
  for (int64_t i = 0; i < length; ++i) store_row(to + i * row_step, from + i * width, size);
}

// Sixteen elements at a time: to[i, c] = from[c, i].
ADJOINT_INLINE void turn(float* to, const float* from, int64_t row) {
  typedef float Four __attribute__((vector_size(16), aligned(4)));
  typedef int Pick __attribute__((vector_size(16)));
  const auto at = [&](int64_t r) { return *reinterpret_cast<const Four*>(from + r * row); };
  const Four a = at(0), b = at(1), c = at(2), d = at(3);
  const Four ab_low = __builtin_shuffle(a, b, Pick{0, 4, 1, 5});
  const Four ab_high = __builtin_shuffle(a, b, Pick{2, 6, 3, 7});
  const Four cd_low = __builtin_shuffle(c, d, Pick{0, 4, 1, 5});
  const Four cd_high = __builtin_shuffle(c, d, Pick{2, 6, 3, 7});
  const auto put = [&](int64_t r, Four x) { *reinterpret_cast<Four*>(to + r * kPanel) = x; };
  put(0, __builtin_shuffle(ab_low, cd_low, Pick{0, 1, 4, 5}));
  put(1, __builtin_shuffle(ab_low, cd_low, Pick{2, 3, 6, 7}));
  put(2, __builtin_shuffle(ab_high, cd_high, Pick{0, 1, 4, 5}));
  put(3, __builtin_shuffle(ab_high, cd_high, Pick{2, 3, 6, 7}));
}
ADJOINT_INLINE void turn(double* to, const double* from, int64_t row) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t c = 0; c < 4; ++c) to[i * kPanel + c] = from[c * row + i];
  }
}

// rows[length, width] -> panels of kPanel rows, each [size, kPanel]; the last is filled with zeros.
template <class W>
void transpose(W* panels, const W* rows, int64_t width, int64_t length, int64_t size) {
  for (int64_t first = 0; first < length; first += kPanel) {
    W* panel = panels + first * size;
    for (int64_t c = 0; c < kPanel; c += 4) {
      const bool whole = first + c + 4 <= length;
      int64_t i = 0;
      for (; whole && i + 4 <= size; i += 4) {
        turn(panel + i * kPanel + c, rows + (first + c) * width + i, width);
      }
      for (; i < size; ++i) {
        for (int64_t k = c; k < c + 4; ++k) {
          panel[i * kPanel + k] = first + k < length ? rows[(first + k) * width + i] : W{0};
        }
      }
    }
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

// How many of the keys from `key` on the query `first` sees: each later one sees one more. Without
// a mask more than there are, so that each sees all.
int64_t seen_by_first(const AttentionShape& s, int64_t first, int64_t key) {
  return s.causal ? first + 1 - key : kKeys;
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
    small_product({.m = rows,
                   .n = padded(keys),
                   .k = s.size,
                   .a_row = wide,
                   .a_k = 1,
                   .b_row = kPanel,
                   .b_panel = kPanel * s.size,
                   .c_row = kKeys,
                   .triangle = Triangle::kResult,
                   .visible = visible},
                  at.queries, at.keys_t + key * s.size, at.scores);
    weigh_block(at.scores, rows, visible, keys, scale, running, at.result, wide);
    small_product({.m = rows,
                   .n = wide,
                   .k = keys,
                   .a_row = kKeys,
                   .a_k = 1,
                   .b_row = wide,
                   .b_panel = kPanel,
                   .c_row = wide,
                   .accumulate = true,
                   .triangle = Triangle::kLeft,
                   .visible = visible},
                  at.scores, at.values + key * wide, at.result);
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
  const int64_t per_thread = s.forward_bytes_per_thread().count;
  for_units(s.samples * s.kv_heads, workers, [&](int64_t begin, int64_t end, int64_t worker) {
    const ForwardSpace<W> at(s, static_cast<char*>(workspace) + worker * per_thread);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t sample = unit / s.kv_heads, kv = unit % s.kv_heads;
      pack(at.values, wide, head<T>(k, sample, kv, d), k.row_step, n, d);
      transpose(at.keys_t, at.values, wide, n, d);
      pack(at.values, wide, head<T>(v, sample, kv, d), v.row_step, n, d);
      for (int64_t g = 0; g < s.group; ++g) {
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

// One block of queries: its own gradient, and what it adds to those of keys and values.
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
    const SmallProduct columns_of_keys{.m = rows,
                                       .n = padded(keys),
                                       .k = s.size,
                                       .a_row = wide,
                                       .a_k = 1,
                                       .b_row = kPanel,
                                       .b_panel = kPanel * s.size,
                                       .c_row = kKeys,
                                       .triangle = Triangle::kResult,
                                       .visible = visible};
    small_product(columns_of_keys, at.queries, at.keys_t + key * s.size, at.scores);
    small_product(columns_of_keys, at.douts, at.values_t + key * s.size, at.dscores);
    weigh_block_back(at.scores, at.dscores, rows, visible, keys, scale, lse, delta);
    small_product({.m = rows,
                   .n = wide,
                   .k = keys,
                   .a_row = kKeys,
                   .a_k = 1,
                   .b_row = wide,
                   .b_panel = kPanel,
                   .c_row = wide,
                   .accumulate = true,
                   .triangle = Triangle::kLeft,
                   .visible = visible},
                  at.dscores, at.keys + key * wide, at.dqueries);
    const SmallProduct rows_of_keys{.m = keys,
                                    .n = wide,
                                    .k = rows,
                                    .a_row = 1,
                                    .a_k = kKeys,
                                    .b_row = wide,
                                    .b_panel = kPanel,
                                    .c_row = wide,
                                    .accumulate = true,
                                    .triangle = Triangle::kLeftTransposed,
                                    .visible = visible};
    small_product(rows_of_keys, at.scores, at.douts, at.dvalues + key * wide);
    small_product(rows_of_keys, at.dscores, at.queries, at.dkeys + key * wide);
  }
}

template <class T>
void backward(const AttentionShape& s, int workers, Rows q, Rows k, Rows v, Rows out,
              const void* lse_in, Rows dout, Rows dq, Rows dk, Rows dv, void* workspace) {
  using W = typename Wide<T>::type;
  const int64_t n = s.length, d = s.size, wide = padded(d);
  const int64_t per_thread = s.backward_bytes_per_thread().count;
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

double AttentionShape::scale() const { return 1 / std::sqrt(static_cast<double>(size)); }

Bytes AttentionShape::forward_bytes_per_thread() const {
  return round_up(ForwardSpace<float>::count(*this) * size_of(wide()), {64});
}

Bytes AttentionShape::backward_bytes_per_thread() const {
  return round_up(BackwardSpace<float>::count(*this) * size_of(wide()), {64});
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

#include "kernels/cpu/attention_rows.h"

#include <cmath>
#include <cstring>

#include "device/parallel.h"
#include "kernels/cpu/body_loops.h"
#include "kernels/cpu/vector_math.h"

namespace adjoint {

namespace {

using adjoint::softmax_exp;  // for floats; for doubles libm's is used

constexpr int kLanes = 16;  // of a row's maxima and sums, whatever the vector width is

ADJOINT_INLINE double softmax_exp(double x) { return std::exp(x); }

// x becomes exp(scale * x - shift); returns the sum. `shift` is the row's largest scaled score in
// the forward pass and its log-sum in the backward pass.
template <class W>
ADJOINT_INLINE W exponentials(W* x, int64_t n, W scale, W shift) {
  W lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      x[i + k] = softmax_exp(scale * x[i + k] - shift);
      lanes[k] += x[i + k];
    }
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += x[i] = softmax_exp(scale * x[i] - shift);
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

// The first `own` scores of a row become weights, the others 0. Returns the factor by which the
// row's result so far must be rescaled.
template <class W>
ADJOINT_INLINE W weigh(W* row, int64_t own, int64_t keys, W scale, Running<W>& running) {
  for (int64_t i = own; i < keys; ++i) row[i] = 0;
  if (own == 0) return 1;
  const W here = scale * largest(row, own);
  const W highest = running.highest < here ? here : running.highest;
  const W shrink = running.highest == highest ? W{1} : softmax_exp(running.highest - highest);
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

constexpr double kHidden = -1e30;  // the logit of a key that is not seen

ADJOINT_INLINE float tanh_of(float x) { return fast_tanh(x); }
ADJOINT_INLINE double tanh_of(double x) { return std::tanh(x); }

// The keys of a block that a query may see, but for segments.
struct KeySpan {
  int64_t begin, end;
};
template <class W>
ADJOINT_INLINE KeySpan seen_keys(const ScoreOptions<W>& o, const ScoreBlock& block, int64_t query) {
  int64_t begin = 0, end = block.keys;
  if (o.window) begin = query - o.window + 1 - block.key;
  if (o.causal) {
    end = query + 1 - block.key;
  } else if (o.window) {
    end = query + o.window - block.key;
  }
  begin = std::clamp<int64_t>(begin, 0, block.keys);
  return {begin, std::clamp<int64_t>(end, begin, block.keys)};
}

// Products of a query with keys become logits; the cap's slopes are kept where somebody wants them.
template <class W>
ADJOINT_INLINE void logits_of_row(W* __restrict x, const ScoreOptions<W>& o,
                                  const ScoreBlock& block, int64_t query, KeySpan seen,
                                  W* __restrict slopes) {
  for (int64_t i = seen.begin; i < seen.end; ++i) x[i] *= o.scale;
  if (o.cap > 0) {
    const W less = 1 / o.cap;
    for (int64_t i = seen.begin; i < seen.end; ++i) {
      const W t = tanh_of(x[i] * less);
      x[i] = o.cap * t;
      if (slopes) slopes[i] = 1 - t * t;
    }
  }
  if (o.added) {
    const W* added = o.added + (block.key - query);
    for (int64_t i = seen.begin; i < seen.end; ++i) x[i] += added[i];
  }
  if (o.segments) {
    const int32_t mine = o.segments[query];
    const int32_t* theirs = o.segments + block.key;
    for (int64_t i = seen.begin; i < seen.end; ++i) {
      x[i] = theirs[i] == mine ? x[i] : static_cast<W>(kHidden);
    }
  }
}

// What dropout multiplies the weights of a row with: 0, or 1 / (1 - rate).
template <class W>
ADJOINT_INLINE void draw_factors(W* factors, const ScoreOptions<W>& o, const ScoreBlock& block,
                                 int64_t query, KeySpan seen) {
  const int64_t first = query * o.length + block.key + seen.begin;
  float drawn[kKeys];
  uniform(drawn + seen.begin, o.random_key, o.random_step,
          o.first_random + static_cast<uint64_t>(first), seen.end - seen.begin);
  for (int64_t i = seen.begin; i < seen.end; ++i) {
    factors[i] = drawn[i] < o.drop_below ? W{0} : o.kept;
  }
}

template <class W>
ADJOINT_INLINE void weigh_rows_with(W* scores, const ScoreBlock& block, const ScoreOptions<W>& o,
                                    Running<W>* running, W* result, int64_t width) {
  for (int64_t r = 0; r < block.rows; ++r) {
    W* row = scores + r * kKeys;
    const KeySpan seen = seen_keys(o, block, block.query + r);
    for (int64_t i = 0; i < seen.begin; ++i) row[i] = 0;
    logits_of_row<W>(row, o, block, block.query + r, seen, nullptr);
    const int64_t count = seen.end - seen.begin;
    const W highest = count ? largest(row + seen.begin, count) : static_cast<W>(kHidden);
    if (highest <= static_cast<W>(kHidden)) {  // all of another segment, or outside of the window
      for (int64_t i = seen.begin; i < block.keys; ++i) row[i] = 0;
      continue;
    }
    const W shrink = weigh(row + seen.begin, count, block.keys - seen.begin, W{1}, running[r]);
    if (o.drop_below > 0) {
      W factors[kKeys];
      draw_factors(factors, o, block, block.query + r, seen);
      for (int64_t i = seen.begin; i < seen.end; ++i) row[i] *= factors[i];
    }
    if (shrink == 1) continue;
    for (int64_t i = 0; i < width; ++i) result[r * width + i] *= shrink;
  }
}

template <class W>
ADJOINT_INLINE void weigh_back_with(W* scores, W* dscores, W* slopes, const ScoreBlock& block,
                                    const ScoreOptions<W>& o, const W* lse, const W* delta,
                                    W* dadded) {
  for (int64_t r = 0; r < block.rows; ++r) {
    W* __restrict p = scores + r * kKeys, * __restrict dp = dscores + r * kKeys;
    W* __restrict slope = slopes + r * kKeys;
    const int64_t query = block.query + r;
    const KeySpan seen = seen_keys(o, block, query);
    logits_of_row<W>(p, o, block, query, seen, slope);
    exponentials(p + seen.begin, seen.end - seen.begin, W{1}, lse[r]);
    if (o.drop_below > 0) {
      W factors[kKeys];
      draw_factors(factors, o, block, query, seen);
      for (int64_t i = seen.begin; i < seen.end; ++i) {
        dp[i] = p[i] * (dp[i] * factors[i] - delta[r]);
        p[i] *= factors[i];
      }
    } else {
      for (int64_t i = seen.begin; i < seen.end; ++i) dp[i] = p[i] * (dp[i] - delta[r]);
    }
    if (dadded) {
      W* sums = dadded + (block.key - query);
      for (int64_t i = seen.begin; i < seen.end; ++i) sums[i] += dp[i];
    }
    for (int64_t i = seen.begin; i < seen.end; ++i) {
      dp[i] *= o.cap > 0 ? slope[i] * o.scale : o.scale;
    }
    for (int64_t i = 0; i < seen.begin; ++i) p[i] = dp[i] = 0;
    for (int64_t i = seen.end; i < block.keys; ++i) p[i] = dp[i] = 0;
  }
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

template <class W>
ADJOINT_INLINE void turn_panels(W* panels, const W* rows, int64_t width, int64_t length,
                                int64_t size) {
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

}  // namespace

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

ADJOINT_SIMD void weigh_block(float* scores, const ScoreBlock& block,
                              const ScoreOptions<float>& options, Running<float>* running,
                              float* result, int64_t width) {
  weigh_rows_with(scores, block, options, running, result, width);
}
void weigh_block(double* scores, const ScoreBlock& block, const ScoreOptions<double>& options,
                 Running<double>* running, double* result, int64_t width) {
  weigh_rows_with(scores, block, options, running, result, width);
}
ADJOINT_SIMD void weigh_block_back(float* scores, float* dscores, float* slopes,
                                   const ScoreBlock& block, const ScoreOptions<float>& options,
                                   const float* lse, const float* delta, float* dadded) {
  weigh_back_with(scores, dscores, slopes, block, options, lse, delta, dadded);
}
void weigh_block_back(double* scores, double* dscores, double* slopes, const ScoreBlock& block,
                      const ScoreOptions<double>& options, const double* lse, const double* delta,
                      double* dadded) {
  weigh_back_with(scores, dscores, slopes, block, options, lse, delta, dadded);
}

void load_row(double* to, const double* from, int64_t n) { std::memcpy(to, from, n * 8); }
void load_row(float* to, const float* from, int64_t n) { std::memcpy(to, from, n * 4); }
void load_row(float* to, const BFloat16* from, int64_t n) {
  gather_any(to, from, Dtype::kBF16, 0, 1, n);
}
void load_row(float* to, const Float16* from, int64_t n) {
  gather_any(to, from, Dtype::kF16, 0, 1, n);
}
void store_row(double* to, const double* from, int64_t n) { std::memcpy(to, from, n * 8); }
void store_row(float* to, const float* from, int64_t n) { std::memcpy(to, from, n * 4); }
void store_row(BFloat16* to, const float* from, int64_t n) {
  scatter_any(to, Dtype::kBF16, from, 0, 1, n);
}
void store_row(Float16* to, const float* from, int64_t n) {
  scatter_any(to, Dtype::kF16, from, 0, 1, n);
}

void transpose(float* panels, const float* rows, int64_t width, int64_t length, int64_t size) {
  turn_panels(panels, rows, width, length, size);
}
void transpose(double* panels, const double* rows, int64_t width, int64_t length, int64_t size) {
  turn_panels(panels, rows, width, length, size);
}

}  // namespace adjoint

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

#include "kernels/cpu/body_loops.h"

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "device/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

constexpr int kLanes = 16;  // of a row reduction, whatever the vector width is

#define UNARY(name, expression)                                 \
  ADJOINT_SIMD void name(float* y, const float* a, int64_t n) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {      \
      const float x = a[i];                                     \
      y[i] = expression;                                        \
    }                                                           \
  }
#define BINARY(name, expression)                                                       \
  ADJOINT_SIMD void name##_vv(float* out, const float* a, const float* b, int64_t n) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                             \
      const float x = a[i], y = b[i];                                                  \
      out[i] = expression;                                                             \
    }                                                                                  \
  }                                                                                    \
  ADJOINT_SIMD void name##_vs(float* out, const float* a, float y, int64_t n) {        \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                             \
      const float x = a[i];                                                            \
      out[i] = expression;                                                             \
    }                                                                                  \
  }                                                                                    \
  ADJOINT_SIMD void name##_sv(float* out, float x, const float* b, int64_t n) {        \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                             \
      const float y = b[i];                                                            \
      out[i] = expression;                                                             \
    }                                                                                  \
  }

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x* y)
BINARY(div, x / y)
BINARY(min, y < x ? y : x)
BINARY(max, x < y ? y : x)
BINARY(less, x < y ? 1.0f : 0.0f)
BINARY(equal, x == y ? 1.0f : 0.0f)
UNARY(neg, -x)
UNARY(exp, fast_exp(x))
UNARY(log, fast_log(x))
UNARY(sqrt, std::sqrt(x))
UNARY(tanh, fast_tanh(x))
UNARY(sigmoid, fast_sigmoid(x))
UNARY(erf, fast_erf(x))
UNARY(finite, x - x == 0.0f ? 1.0f : 0.0f)
UNARY(nearest_whole, std::nearbyint(x))
UNARY(round_bf16, float(BFloat16(x)))
UNARY(round_f16, float(Float16(x)))

// Angles that are too large for the polynomial are computed by libm, one by one.
#define ANGLE(name)                                                           \
  ADJOINT_SIMD void name(float* y, const float* a, int64_t n) {               \
    for (int64_t from = 0; from < n; from += kLanes) {                        \
      const int64_t count = n - from < kLanes ? n - from : kLanes;            \
      float x[kLanes] = {}, result[kLanes];                                   \
      for (int64_t i = 0; i < count; ++i) x[i] = a[from + i];                 \
      int large = 0;                                                          \
      for (int i = 0; i < kLanes; ++i) {                                      \
        result[i] = fast_##name(x[i]);                                        \
        large |= !(std::fabs(x[i]) <= kLargestAngle);                         \
      }                                                                       \
      for (int i = 0; large && i < kLanes; ++i) {                             \
        if (!(std::fabs(x[i]) <= kLargestAngle)) result[i] = std::name(x[i]); \
      }                                                                       \
      for (int64_t i = 0; i < count; ++i) y[from + i] = result[i];            \
    }                                                                         \
  }
ANGLE(sin)
ANGLE(cos)

}  // namespace

ADJOINT_SIMD void choose(float* y, const float* a, const float* b, const float* c, int64_t n) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) y[i] = a[i] != 0.0f ? b[i] : c[i];
}

ADJOINT_SIMD float reduce_sum(const float* a, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += a[i + k];
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += a[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

ADJOINT_SIMD float reduce_max(const float* a, int64_t n) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -INFINITY;
  const auto see = [](float& lane, float x) { lane = lane < x ? x : lane; };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) see(lanes[k], a[i + k]);
  }
  for (int k = 0; i < n; ++i, ++k) see(lanes[k], a[i]);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) see(lanes[k], lanes[k + half]);
  }
  return lanes[0];
}

ADJOINT_SIMD void accumulate(float* sum, const float* a, int64_t n) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) sum[i] += a[i];
}
ADJOINT_SIMD void accumulate(double* sum, const float* a, int64_t n) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) sum[i] += a[i];
}

namespace {
// The words of 16 blocks, each word's vector by itself: philox() of base/philox.h lane by lane.
ADJOINT_INLINE void uniform_blocks(float* y, const RandomStream& stream, uint64_t block) {
  uint32_t c[4][kLanes];
  for (int b = 0; b < kLanes; ++b) {
    c[0][b] = static_cast<uint32_t>(block + b);
    c[1][b] = static_cast<uint32_t>((block + b) >> 32);
    c[2][b] = static_cast<uint32_t>(stream.step);
    c[3][b] = static_cast<uint32_t>(stream.step >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(stream.key), k1 = static_cast<uint32_t>(stream.key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int b = 0; b < kLanes; ++b) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c[0][b], p1 = uint64_t{0xCD9E8D57} * c[2][b];
      c[0][b] = static_cast<uint32_t>(p1 >> 32) ^ c[1][b] ^ k0;
      c[1][b] = static_cast<uint32_t>(p1);
      c[2][b] = static_cast<uint32_t>(p0 >> 32) ^ c[3][b] ^ k1;
      c[3][b] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int b = 0; b < kLanes; ++b) {
    for (int k = 0; k < 4; ++k) y[4 * b + k] = static_cast<float>(c[k][b] >> 8) * 0x1p-24f;
  }
}
}  // namespace

ADJOINT_SIMD void uniform(float* y, uint64_t key, uint64_t step, uint64_t first, int64_t n) {
  const RandomStream stream{key, step};
  int64_t i = 0;
  for (; i < n && (first + i) % 4; ++i) y[i] = static_cast<float>(stream.uniform(first + i));
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) uniform_blocks(y + i, stream, (first + i) / 4);
  for (; i + 4 <= n; i += 4) {
    const PhiloxBlock words = stream.block((first + i) / 4);
    for (int k = 0; k < 4; ++k) y[i + k] = static_cast<float>(words[k] >> 8) * 0x1p-24f;
  }
  for (; i < n; ++i) y[i] = static_cast<float>(stream.uniform(first + i));
}

namespace {
template <class T>
ADJOINT_INLINE void gather(float* y, const T* from, int64_t stride, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(from[i * stride]);
  }
}
}  // namespace
ADJOINT_SIMD void gather_any(float* y, const void* from, Dtype dtype, int64_t offset,
                             int64_t stride, int64_t n) {
  switch (dtype) {
    case Dtype::kF32:
      return gather(y, static_cast<const float*>(from) + offset, stride, n);
    case Dtype::kBF16:
      return gather(y, static_cast<const BFloat16*>(from) + offset, stride, n);
    case Dtype::kF16:
      return gather(y, static_cast<const Float16*>(from) + offset, stride, n);
    case Dtype::kF64:
      return gather(y, static_cast<const double*>(from) + offset, stride, n);
    case Dtype::kI32:
      return gather(y, static_cast<const int32_t*>(from) + offset, stride, n);
    case Dtype::kI64:
      return gather(y, static_cast<const int64_t*>(from) + offset, stride, n);
    case Dtype::kI8:
      return gather(y, static_cast<const int8_t*>(from) + offset, stride, n);
    case Dtype::kU8:
      return gather(y, static_cast<const uint8_t*>(from) + offset, stride, n);
  }
}

namespace {
template <class T>
ADJOINT_INLINE void scatter(T* to, const float* y, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i * stride] = static_cast<T>(y[i]);
}
}  // namespace
ADJOINT_SIMD void scatter_any(void* to, Dtype dtype, const float* y, int64_t offset, int64_t stride,
                              int64_t n) {
  switch (dtype) {
    case Dtype::kF32:
      if (stride == 1) {
        std::memmove(static_cast<float*>(to) + offset, y, n * sizeof(float));
        return;
      }
      return scatter(static_cast<float*>(to) + offset, y, stride, n);
    case Dtype::kBF16:
      return scatter(static_cast<BFloat16*>(to) + offset, y, stride, n);
    case Dtype::kF16:
      return scatter(static_cast<Float16*>(to) + offset, y, stride, n);
    case Dtype::kF64:
      return scatter(static_cast<double*>(to) + offset, y, stride, n);
    case Dtype::kI32:
      return scatter(static_cast<int32_t*>(to) + offset, y, stride, n);
    case Dtype::kI64:
      return scatter(static_cast<int64_t*>(to) + offset, y, stride, n);
    case Dtype::kI8:
      return scatter(static_cast<int8_t*>(to) + offset, y, stride, n);
    case Dtype::kU8:
      return scatter(static_cast<uint8_t*>(to) + offset, y, stride, n);
  }
}

const BinaryLoops& binary_loops(ExprKind kind) {
  static const BinaryLoops loops[] = {{add_vv, add_vs, add_sv},    {sub_vv, sub_vs, sub_sv},
                                      {mul_vv, mul_vs, mul_sv},    {div_vv, div_vs, div_sv},
                                      {min_vv, min_vs, min_sv},    {max_vv, max_vs, max_sv},
                                      {less_vv, less_vs, less_sv}, {equal_vv, equal_vs, equal_sv}};
  return loops[static_cast<int>(kind) - static_cast<int>(ExprKind::kAdd)];
}

UnaryLoop unary_loop(const ExprNode& n) {
  switch (n.kind) {
    case ExprKind::kNeg:
      return neg;
    case ExprKind::kExp:
      return exp;
    case ExprKind::kLog:
      return log;
    case ExprKind::kSqrt:
      return sqrt;
    case ExprKind::kTanh:
      return tanh;
    case ExprKind::kSigmoid:
      return sigmoid;
    case ExprKind::kErf:
      return erf;
    case ExprKind::kSin:
      return sin;
    case ExprKind::kCos:
      return cos;
    case ExprKind::kFinite:
      return finite;
    case ExprKind::kWhole:
      return nearest_whole;
    case ExprKind::kRound:
      if (static_cast<Dtype>(n.index) == Dtype::kBF16) return round_bf16;
      if (static_cast<Dtype>(n.index) == Dtype::kF16) return round_f16;
      return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace adjoint

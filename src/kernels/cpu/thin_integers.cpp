#include "kernels/cpu/thin_integers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

#if defined(__x86_64__) && defined(__GNUC__) && !ADJOINT_NO_CLONES
#define ADJOINT_BYTE_PRODUCTS 1
#include <immintrin.h>
// GCC 12 takes its own intrinsics' undefined vectors for forgotten ones.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace adjoint {

void lay_out_integers(const float* row, const IntegerRows& rows, int64_t i, uint8_t* high,
                      uint8_t* low, float* x_scales) {
  const int64_t k = rows.groups * rows.group;
  float largest = 0;
  for (int64_t c = 0; c < k; ++c) largest = std::max(largest, std::abs(row[c]));
  // A row that is not finite stays so by its scale.
  const float scale = largest > 0 ? largest / 32767 : 1.0f;
  const float by = std::isfinite(largest) && largest > 0 ? 32767 / largest : 0.0f;
  x_scales[i] = scale;
  for (int64_t g = 0; g < rows.groups; ++g) {
    const int64_t at = i * rows.x_step + g * rows.padded_group;
    for (int64_t c = 0; c < rows.padded_group; ++c) {
      const float value = c < rows.group ? row[g * rows.group + c] * by : 0.0f;
      const auto whole = static_cast<int32_t>(std::lrint(value)) + 32768;
      high[at + c] = static_cast<uint8_t>(whole >> 8);
      low[at + c] = static_cast<uint8_t>(whole & 255);
    }
  }
}

#if ADJOINT_BYTE_PRODUCTS

bool has_byte_products() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vnni");
}

namespace {

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))

// R rows of codes at once. A product of bytes is of unsigned by signed ones, so beside the two
// bytes of x the codes themselves are summed: 256 * high - 32768 is 256 * (high - 128).
template <int R, int M>
VNNI void multiply_rows(const IntegerRows& p, const int8_t* codes, int64_t row, float* to) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512 total[R][M];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < M; ++i) total[r][i] = _mm512_setzero_ps();
  }
  const int8_t* from = codes + row * p.b_step;
  for (int64_t g = 0; g < p.groups; ++g) {
    __m512i plain[R], high[R][M], low[R][M];
    for (int r = 0; r < R; ++r) {
      plain[r] = _mm512_setzero_si512();
      for (int i = 0; i < M; ++i) high[r][i] = low[r][i] = _mm512_setzero_si512();
    }
    for (int64_t at = 0; at < p.group; at += 64) {
      const __mmask64 there =
          at + 64 <= p.group ? ~__mmask64{0} : (__mmask64{1} << (p.group - at)) - 1;
      __m512i x_high[M], x_low[M];
      for (int i = 0; i < M; ++i) {
        const int64_t place = i * p.x_step + g * p.padded_group + at;
        x_high[i] = _mm512_loadu_si512(p.high + place);
        x_low[i] = _mm512_loadu_si512(p.low + place);
      }
      for (int r = 0; r < R; ++r) {
        const int8_t* place = from + r * p.b_step + g * p.group + at;
        const __m512i w = _mm512_maskz_loadu_epi8(there, place);
        // What the next rows read: four streams are more than the processor foresees by itself.
        _mm_prefetch(reinterpret_cast<const char*>(place + R * p.b_step), _MM_HINT_T0);
        plain[r] = _mm512_dpbusd_epi32(plain[r], ones, w);
        for (int i = 0; i < M; ++i) {
          high[r][i] = _mm512_dpbusd_epi32(high[r][i], x_high[i], w);
          low[r][i] = _mm512_dpbusd_epi32(low[r][i], x_low[i], w);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      const __m512 scale = _mm512_set1_ps(p.scales[(row + r) * p.scales_step + g]);
      const __m512i shifted = _mm512_slli_epi32(plain[r], 7);
      for (int i = 0; i < M; ++i) {
        const __m512 upper = _mm512_cvtepi32_ps(_mm512_sub_epi32(high[r][i], shifted));
        const __m512 lower = _mm512_cvtepi32_ps(low[r][i]);
        const __m512 both = _mm512_fmadd_ps(upper, _mm512_set1_ps(256.0f), lower);
        total[r][i] = _mm512_fmadd_ps(both, scale, total[r][i]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < M; ++i) to[r * M + i] = _mm512_reduce_add_ps(total[r][i]) * p.x_scales[i];
  }
}

template <int M>
VNNI void multiply_for(const IntegerRows& p, const int8_t* codes, int64_t begin, int64_t end,
                       float* to) {
  constexpr int R = M == 1 ? 4 : M <= 4 ? 2 : 1;  // as many sums as registers hold
  int64_t row = begin;
  for (; row + R <= end; row += R) {
    multiply_rows<R, M>(p, codes, row, to + (row - begin) * M);
  }
  for (; row < end; ++row) multiply_rows<1, M>(p, codes, row, to + (row - begin) * M);
}

#undef VNNI

}  // namespace

void multiply_integers(const IntegerRows& rows, int64_t m, const int8_t* codes, int64_t begin,
                       int64_t end, float* to) {
  const auto kernel = m == 1   ? multiply_for<1>
                      : m == 2 ? multiply_for<2>
                      : m == 3 ? multiply_for<3>
                      : m == 4 ? multiply_for<4>
                               : multiply_for<8>;
  kernel(rows, codes, begin, end, to);
}

#else

bool has_byte_products() { return false; }
void multiply_integers(const IntegerRows&, int64_t, const int8_t*, int64_t, int64_t, float*) {
  CHECK(false, "asked for where there are such products");
}

#endif

}  // namespace adjoint

// Sixteen sums run side by side along a row and are added in one fixed order at its end: a result
// depends on its two rows alone, not on how many others there are, nor on threads. Several rows of
// the matrix go at once, so that each piece of x is loaded for all of them.
#include "kernels/cpu/thin_product.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "device/parallel.h"
#include "kernels/cpu/thin_integers.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Sixteen words of 32 bits. Each holds one element of the matrix, or two or four neighbours, and
// the elements that stand in one place of their word are multiplied together: no element is moved
// to another lane. x is laid out to fit, once.
constexpr int kLanes = 16;
using Lanes = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));
using Whole = int32_t __attribute__((vector_size(64)));

template <class T>
constexpr int kParts = 4 / sizeof(T);  // elements of a word
template <class T>
constexpr int64_t kBlock = kParts<T>* kLanes;  // elements of sixteen words

template <class T>
ADJOINT_INLINE void take_part(Lanes& to, const Words& words, int part) {
  if constexpr (kParts<T> == 1) {
    std::memcpy(&to, &words, sizeof to);
  } else if constexpr (kParts<T> == 2) {
    const Words bits = part == 0 ? words << 16 : words & 0xffff0000u;
    std::memcpy(&to, &bits, sizeof to);
  } else {
    Whole codes;
    std::memcpy(&codes, &words, sizeof codes);
    to = __builtin_convertvector(codes << (24 - 8 * part) >> 24, Lanes);
  }
}

ADJOINT_INLINE float added_up(const Lanes& lanes) {
  float half[8];
  for (int i = 0; i < 8; ++i) half[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) half[i] += half[i + 4];
  return (half[0] + half[2]) + (half[1] + half[3]);
}

// What rows of the matrix are multiplied with, and what their scales are: none, or one for every
// group of elements. A group of x is whole blocks, zeros at its end.
struct ThinRows {
  const float* x;
  int64_t x_step;
  int64_t groups, group;  // of a row of the matrix; elements of each
  int64_t b_step;
  const float* scales = nullptr;
  int64_t scales_step = 0;
};

template <class T>
int64_t padded_group(int64_t group) {
  return (group + kBlock<T> - 1) / kBlock<T> * kBlock<T>;
}

// sums[r * M + i] = row r of b by row i of x.
template <class T, int R, int M>
ADJOINT_INLINE void multiply_rows(const ThinRows& p, const T* b, int64_t row, float* sums) {
  Lanes total[R][M];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < M; ++i) total[r][i] = Lanes{};
  }
  const float* x = p.x;
  const auto add_block = [&](const Words* words, Lanes(&sum)[R][M]) __attribute__((always_inline)) {
    for (int part = 0; part < kParts<T>; ++part) {
      Lanes factor[M];
      for (int i = 0; i < M; ++i) {
        std::memcpy(&factor[i], x + i * p.x_step + part * kLanes, sizeof(Lanes));
      }
      for (int r = 0; r < R; ++r) {
        Lanes w;
        take_part<T>(w, words[r], part);
        for (int i = 0; i < M; ++i) sum[r][i] += w * factor[i];
      }
    }
    x += kBlock<T>;
  };
  for (int64_t g = 0; g < p.groups; ++g) {
    Lanes sum[R][M];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < M; ++i) sum[r][i] = Lanes{};
    }
    const T* from = b + g * p.group;
    int64_t at = 0;
    for (; at + kBlock<T> <= p.group; at += kBlock<T>) {
      Words words[R];
      for (int r = 0; r < R; ++r) {
        const T* place = from + r * p.b_step + at;
        std::memcpy(&words[r], place, sizeof(Words));
        // What the next rows read: several streams are more than the processor foresees by itself.
        __builtin_prefetch(place + R * p.b_step);
      }
      add_block(words, sum);
    }
    if (at < p.group) {
      Words words[R];
      for (int r = 0; r < R; ++r) {
        words[r] = Words{};
        std::memcpy(&words[r], from + r * p.b_step + at, (p.group - at) * sizeof(T));
      }
      add_block(words, sum);
    }
    for (int r = 0; r < R; ++r) {
      const float scale = p.scales ? p.scales[(row + r) * p.scales_step + g] : 1.0f;
      for (int i = 0; i < M; ++i) total[r][i] += p.scales ? sum[r][i] * scale : sum[r][i];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < M; ++i) sums[r * M + i] = added_up(total[r][i]);
  }
}

// Rows [begin, end) of b by all rows of x: to[(row - begin) * M + i].
template <class T, int M>
ADJOINT_INLINE void multiply_all(const ThinRows& p, const T* b, int64_t begin, int64_t end,
                                 float* to) {
  constexpr int R = M == 1 ? 4 : 2;  // as many sums as registers hold
  int64_t row = begin;
  for (; row + R <= end; row += R) {
    multiply_rows<T, R, M>(p, b + row * p.b_step, row, to + (row - begin) * M);
  }
  for (; row < end; ++row) {
    multiply_rows<T, 1, M>(p, b + row * p.b_step, row, to + (row - begin) * M);
  }
}

#define THIN(name, T, M)                                                                         \
  ADJOINT_SIMD void name(const ThinRows& p, const T* b, int64_t begin, int64_t end, float* to) { \
    multiply_all<T, M>(p, b, begin, end, to);                                                    \
  }
#define THIN_OF(name, T) \
  THIN(name##_1, T, 1)   \
  THIN(name##_2, T, 2)   \
  THIN(name##_3, T, 3)   \
  THIN(name##_4, T, 4)   \
  THIN(name##_8, T, 8)
THIN_OF(thin_f32, float)
THIN_OF(thin_bf16, BFloat16)
THIN_OF(thin_int8, int8_t)
#undef THIN_OF
#undef THIN

template <class T>
using ThinKernel = void (*)(const ThinRows&, const T*, int64_t, int64_t, float*);

// How many rows of x the kernel for m of them takes: the next number that there is one for.
int64_t taken_rows(int64_t m) { return m <= 4 ? m : kThinRows; }

#define CHOOSE(name) \
  m == 1 ? name##_1 : m == 2 ? name##_2 : m == 3 ? name##_3 : m == 4 ? name##_4 : name##_8
ThinKernel<float> kernel_for(const float*, int64_t m) { return CHOOSE(thin_f32); }
ThinKernel<BFloat16> kernel_for(const BFloat16*, int64_t m) { return CHOOSE(thin_bf16); }
ThinKernel<int8_t> kernel_for(const int8_t*, int64_t m) { return CHOOSE(thin_int8); }
#undef CHOOSE

constexpr int64_t kPieceRows = 64;        // of the matrix, whose sums wait on the stack
constexpr int64_t kWorthAThread = 16384;  // elements of the matrix

// A row of x as `groups` groups for a matrix of T.
template <class T>
Bytes bytes_of_x(int64_t m, int64_t groups, int64_t group) {
  return taken_rows(m) * groups * padded_group<T>(group) * size_of(Dtype::kF32);
}

template <class T>
void lay_out_x(const void* x, Dtype dtype, int64_t m, int64_t x_step, const ThinRows& rows,
               float* to) {
  const int64_t padded = padded_group<T>(rows.group);
  std::fill(to, to + taken_rows(m) * rows.x_step, 0.0f);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t g = 0; g < rows.groups; ++g) {
      float* group = to + i * rows.x_step + g * padded;
      for (int64_t c = 0; c < rows.group; ++c) {
        const int64_t block = c / kBlock<T>, within = c % kBlock<T>;
        const int64_t part = within % kParts<T>, lane = within / kParts<T>;
        group[block * kBlock<T> + part * kLanes + lane] =
            static_cast<float>(load_element(x, dtype, i * x_step + g * rows.group + c));
      }
    }
  }
}

// Calls kernel(begin, end, sums) for pieces of the matrix's rows, and store(row, i, sum) for all
// results.
template <class Kernel, class Store>
void multiply_in_pieces(const Kernel& kernel, int64_t m, int64_t n, int64_t k, const Store& store) {
  const int64_t taken = taken_rows(m);
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(k, 1));
  parallel_for(n, grain, [&](int64_t begin, int64_t end, int) {
    float sums[kPieceRows * kThinRows];
    for (int64_t row = begin; row < end; row += kPieceRows) {
      const int64_t rows = std::min(kPieceRows, end - row);
      kernel(row, row + rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < m; ++i) store(row + r, i, sums[r * taken + i]);
      }
    }
  });
}

// The same by kernels for a matrix of T.
template <class T, class Store>
void multiply_in_pieces(const ThinRows& p, const T* b, int64_t m, int64_t n, const Store& store) {
  const ThinKernel<T> kernel = kernel_for(b, m);
  multiply_in_pieces(
      [&](int64_t begin, int64_t end, float* sums) { kernel(p, b, begin, end, sums); }, m, n,
      p.groups * p.group, store);
}

}  // namespace

bool is_thin(const Product& p) {
  const bool known = p.dtype == Dtype::kF32 || p.dtype == Dtype::kBF16;
  return known && p.m <= kThinRows && p.n > 1 && p.outer.empty() && p.batch.empty() && p.b_k == 1 &&
         p.a_k == 1 && p.b_n >= p.k && p.k >= kLanes && is_float(p.out_dtype);
}

Bytes thin_workspace(const Product& p) {
  return p.dtype == Dtype::kF32 ? bytes_of_x<float>(p.m, 1, p.k)
                                : bytes_of_x<BFloat16>(p.m, 1, p.k);
}

namespace {

template <class T>
Launch prepare_for(const Product& p, const void* a, const void* b, const void* bias, void* c,
                   void* workspace) {
  auto* x = static_cast<float*>(workspace);
  const ThinRows rows{
      .x = x, .x_step = padded_group<T>(p.k), .groups = 1, .group = p.k, .b_step = p.b_n};
  return [=] {
    lay_out_x<T>(a, p.dtype, p.m, p.a_m, rows, x);
    multiply_in_pieces(rows, static_cast<const T*>(b), p.m, p.n,
                       [&](int64_t n, int64_t m, float sum) {
                         const int64_t at = m * p.c_m + n * p.c_n;
                         if (p.bias) sum += static_cast<float>(load_element(bias, p.out_dtype, n));
                         if (p.accumulate)
                           sum += static_cast<float>(load_element(c, p.out_dtype, at));
                         store_element(c, p.out_dtype, at, sum);
                       });
  };
}

int64_t scales_of(const CodeShape& s) { return s.one_scale ? 1 : s.rows * s.groups; }

}  // namespace

Launch prepare_thin(const Product& p, const void* a, const void* b, const void* bias, void* c,
                    void* workspace) {
  return p.dtype == Dtype::kF32 ? prepare_for<float>(p, a, b, bias, c, workspace)
                                : prepare_for<BFloat16>(p, a, b, bias, c, workspace);
}

Bytes thin_workspace(const ThinCodes& p) {
  const CodeShape& s = p.shape;
  // Behind x there is room for one more row of it.
  return bytes_of_x<int8_t>(p.m, s.groups, s.row / s.groups) +
         (s.row + scales_of(s)) * size_of(Dtype::kF32);
}

Launch prepare_thin(const ThinCodes& p, const void* x, const void* codes, const void* scales,
                    const void* bias, void* y, void* workspace) {
  const CodeShape& s = p.shape;
  const int64_t group = s.row / s.groups, n = s.rows;
  auto* wide = static_cast<float*>(workspace);
  auto* wide_scales = wide + bytes_of_x<int8_t>(p.m, s.groups, group).count / 4 + s.row;
  const bool f32 = p.scale_dtype == Dtype::kF32;
  const ThinRows rows{.x = wide,
                      .x_step = s.groups * padded_group<int8_t>(group),
                      .groups = s.groups,
                      .group = group,
                      .b_step = s.row,
                      .scales = f32 ? static_cast<const float*>(scales) : wide_scales,
                      .scales_step = s.one_scale ? 0 : s.groups};
  const bool whole = p.dtype != Dtype::kF32 && has_byte_products();
  return [=] {
    for (int64_t i = 0; !f32 && i < scales_of(p.shape); ++i) {
      wide_scales[i] = static_cast<float>(load_element(scales, p.scale_dtype, i));
    }
    const auto store = [&](int64_t row, int64_t i, float sum) {
      if (bias) sum += static_cast<float>(load_element(bias, p.dtype, row));
      store_element(y, p.dtype, i * p.y_step + row, sum);
    };
    const auto* matrix = static_cast<const int8_t*>(codes);
    if (!whole) {
      lay_out_x<int8_t>(x, p.dtype, p.m, p.x_step, rows, wide);
      multiply_in_pieces(rows, matrix, p.m, n, store);
      return;
    }
    // x as two bytes a number, and behind it a row of it as float32.
    float x_scales[kThinRows] = {};
    const int64_t taken = taken_rows(p.m);
    auto* high = reinterpret_cast<uint8_t*>(wide);
    uint8_t* low = high + taken * rows.x_step;
    const IntegerRows integers{.high = high,
                               .low = low,
                               .x_step = rows.x_step,
                               .x_scales = x_scales,
                               .groups = rows.groups,
                               .group = rows.group,
                               .padded_group = padded_group<int8_t>(rows.group),
                               .b_step = rows.b_step,
                               .scales = rows.scales,
                               .scales_step = rows.scales_step};
    std::fill(high, high + 2 * taken * rows.x_step, uint8_t{0});
    auto* row = reinterpret_cast<float*>(low + taken * rows.x_step);
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t c = 0; c < p.shape.row; ++c) {
        row[c] = static_cast<float>(load_element(x, p.dtype, i * p.x_step + c));
      }
      lay_out_integers(row, integers, i, high, low, x_scales);
    }
    multiply_in_pieces(
        [&](int64_t begin, int64_t end, float* sums) {
          multiply_integers(integers, taken, matrix, begin, end, sums);
        },
        p.m, n, rows.groups * rows.group, store);
  };
}

namespace {

// More rows than this have enough work for the products of training.
constexpr int64_t kMostChosen = 32;

template <class T>
void multiply_chosen(const ThinChosen& p, const std::function<const void*(int64_t)>& row_of,
                     const int32_t* starts, const T* matrices, float* x,
                     const std::function<void(int64_t, int64_t, std::span<const float>)>& give) {
  ThinRows rows{.x = x, .x_step = padded_group<T>(p.k), .groups = 1, .group = p.k, .b_step = p.k};
  // A kernel may take more rows than there are; behind the last lie zeros.
  for (int64_t i = 0; i < p.rows; ++i) {
    lay_out_x<T>(row_of(i), p.dtype, 1, 0, rows, x + i * rows.x_step);
  }
  std::fill(x + p.rows * rows.x_step, x + (p.rows + kThinRows) * rows.x_step, 0.0f);
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / p.k);
  parallel_for(p.n, grain, [&](int64_t begin, int64_t end, int) {
    float sums[kPieceRows * kThinRows], results[kPieceRows];
    for (int64_t e = 0; e < p.matrices; ++e) {
      for (int64_t first = starts[e], m; first < starts[e + 1]; first += m) {
        m = std::min<int64_t>(kThinRows, starts[e + 1] - first);
        ThinRows mine = rows;
        mine.x = x + first * rows.x_step;
        const T* matrix = matrices + e * p.n * p.k;
        const ThinKernel<T> kernel = kernel_for(matrix, m);
        for (int64_t column = begin; column < end; column += kPieceRows) {
          const int64_t count = std::min(kPieceRows, end - column);
          kernel(mine, matrix, column, column + count, sums);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t c = 0; c < count; ++c) results[c] = sums[c * taken_rows(m) + i];
            give(first + i, column, std::span(results).first(count));
          }
        }
      }
    }
  });
}

}  // namespace

bool is_thin(const ThinChosen& p) {
  return (p.dtype == Dtype::kF32 || p.dtype == Dtype::kBF16) && p.rows <= kMostChosen &&
         p.k >= kLanes;
}

Bytes thin_workspace(const ThinChosen& p) {
  const int64_t row =
      p.dtype == Dtype::kF32 ? padded_group<float>(p.k) : padded_group<BFloat16>(p.k);
  return (p.rows + kThinRows) * row * size_of(Dtype::kF32);
}

void multiply_thin(const ThinChosen& p, const std::function<const void*(int64_t)>& row_of,
                   const int32_t* starts, const void* matrices, void* workspace,
                   const std::function<void(int64_t, int64_t, std::span<const float>)>& give) {
  auto* x = static_cast<float*>(workspace);
  if (p.dtype == Dtype::kF32) {
    multiply_chosen(p, row_of, starts, static_cast<const float*>(matrices), x, give);
  } else {
    multiply_chosen(p, row_of, starts, static_cast<const BFloat16*>(matrices), x, give);
  }
}

}  // namespace adjoint

#include "kernels/cpu/expert_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/parallel.h"

namespace adjoint {

Bytes SortedRows::bytes(const ExpertRows& rows) {
  return round_up({(rows.count() + rows.experts + 1) * 4}, {64});
}

SortedRows::SortedRows(const ExpertRows& rows, void* at)
    : order(static_cast<int32_t*>(at)), starts(order + rows.count()) {}

// By counting. `starts` are first where the next row of an expert goes, one expert ahead.
void SortedRows::sort(const ExpertRows& rows, const int32_t* choice) const {
  const auto expert = [&](int64_t i) {
    return std::clamp<int64_t>(choice[i], 0, rows.experts - 1);
  };
  std::fill(starts, starts + rows.experts + 1, 0);
  for (int64_t i = 0; i < rows.count(); ++i) {
    if (expert(i) + 2 <= rows.experts) ++starts[expert(i) + 2];
  }
  for (int64_t e = 2; e <= rows.experts; ++e) starts[e] += starts[e - 1];
  for (int64_t i = 0; i < rows.count(); ++i) {
    order[starts[expert(i) + 1]++] = static_cast<int32_t>(i);
  }
}

PieceScratch piece_scratch(const std::function<Bytes(int64_t rows)>& wanted) {
  PieceScratch scratch;
  for (int which = 0; which < kPieceSizes; ++which) {
    scratch[which] = wanted(kLeastPiece << which);
    if (which > 0) scratch[which] = std::max(scratch[which], scratch[which - 1]);
  }
  return scratch;
}

int64_t largest_piece(int64_t rows, Bytes cap, const std::function<Bytes(int64_t)>& bytes) {
  int64_t piece = kLeastPiece;
  while (piece < kMostPiece && piece < rows && bytes(2 * piece) <= cap) piece *= 2;
  return piece;
}

Dtype product_dtype(Dtype dtype) {
  const auto is_native = [](Dtype narrow) {
    const Product asked{.batch = {},
                        .m = 64,
                        .n = 64,
                        .k = 64,
                        .a_batch = {},
                        .b_batch = {},
                        .c_batch = {},
                        .a_m = 64,
                        .a_k = 1,
                        .b_k = 64,
                        .b_n = 1,
                        .c_m = 64,
                        .c_n = 1,
                        .dtype = narrow};
    return matmul_workspace(asked).has_value();
  };
  static const bool bf16 = is_native(Dtype::kBF16), f16 = is_native(Dtype::kF16);
  const bool native = dtype == Dtype::kBF16 ? bf16 : dtype == Dtype::kF16 ? f16 : true;
  return native ? dtype : Dtype::kF32;
}

namespace {

ADJOINT_SIMD void convert_row(int64_t n, const BFloat16* from, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}
ADJOINT_SIMD void convert_row(int64_t n, const Float16* from, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}
ADJOINT_SIMD void convert_row(int64_t n, const float* from, BFloat16* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = BFloat16(from[i]);
}
ADJOINT_SIMD void convert_row(int64_t n, const float* from, Float16* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = Float16(from[i]);
}

}  // namespace

void convert_rows(int64_t rows, int64_t width, Dtype from_dtype,
                  const std::function<const void*(int64_t)>& from, Dtype to_dtype,
                  const std::function<void*(int64_t)>& to) {
  const int64_t size = size_of(to_dtype).count;
  const int64_t worth_a_thread = std::max<int64_t>(1, 16384 / (width + 1));
  parallel_for(rows, worth_a_thread, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const void* source = from(r);
      void* target = to(r);
      if (!source) {
        std::memset(target, 0, width * size);
      } else if (from_dtype == to_dtype) {
        std::memcpy(target, source, width * size);
      } else {
        with_float_type(from_dtype, [&]<class From>() {
          with_float_type(to_dtype, [&]<class To>() {
            if constexpr (std::is_same_v<From, float> != std::is_same_v<To, float> &&
                          !std::is_same_v<From, double> && !std::is_same_v<To, double>) {
              convert_row(width, static_cast<const From*>(source), static_cast<To*>(target));
            } else {
              CHECK(false, "rows are widened to float32 or narrowed from it");
            }
          });
        });
      }
    }
  });
}

}  // namespace adjoint

#include "comm/reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "device/parallel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

constexpr int64_t kBlock = 2048;  // elements whose accumulators stay in the first cache

// What terms of type T are added in. Integers wrap, as they do on every machine: unsigned.
template <class T>
struct Accumulator {
  using type = typename Wide<T>::type;
};
template <class T>
requires std::is_integral_v<T>
struct Accumulator<T> {
  using type = std::make_unsigned_t<T>;
};

struct Add {
  template <class A, class T>
  ADJOINT_INLINE static A join(A sum, T term) {
    return static_cast<A>(sum + static_cast<A>(term));
  }
};

struct Max {
  template <class A, class T>
  ADJOINT_INLINE static A join(A most, T term) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<A>(std::max(static_cast<T>(most), term));
    } else {
      const A next = static_cast<A>(term);
      return next > most || next != next ? next : most;  // a NaN stays: nothing exceeds it
    }
  }
};

template <class Join, class T>
ADJOINT_INLINE void reduce(std::span<const std::byte* const> terms, int64_t count, std::byte* to) {
  using A = typename Accumulator<T>::type;
  A sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    for (size_t k = 0; k < terms.size(); ++k) {
      const T* term = reinterpret_cast<const T*>(terms[k]) + begin;
      if (k == 0) {
        for (int64_t i = 0; i < size; ++i) sums[i] = static_cast<A>(term[i]);
      } else {
        for (int64_t i = 0; i < size; ++i) sums[i] = Join::join(sums[i], term[i]);
      }
    }
    T* result = reinterpret_cast<T*>(to) + begin;
    for (int64_t i = 0; i < size; ++i) result[i] = static_cast<T>(sums[i]);
  }
}

// One function per dtype, so that each is compiled for several processors.
#define REDUCE_IN_DTYPE(name, type)                                                \
  ADJOINT_SIMD void name##_sum(std::span<const std::byte* const> terms, int64_t n, \
                               std::byte* to) {                                    \
    reduce<Add, type>(terms, n, to);                                               \
  }                                                                                \
  ADJOINT_SIMD void name##_max(std::span<const std::byte* const> terms, int64_t n, \
                               std::byte* to) {                                    \
    reduce<Max, type>(terms, n, to);                                               \
  }
REDUCE_IN_DTYPE(f64, double)
REDUCE_IN_DTYPE(f32, float)
REDUCE_IN_DTYPE(bf16, BFloat16)
REDUCE_IN_DTYPE(f16, Float16)
REDUCE_IN_DTYPE(i64, int64_t)
REDUCE_IN_DTYPE(i32, int32_t)
REDUCE_IN_DTYPE(i8, int8_t)
REDUCE_IN_DTYPE(u8, uint8_t)
#undef REDUCE_IN_DTYPE

using Reduce = void (*)(std::span<const std::byte* const>, int64_t, std::byte*);

Reduce reduce_of(Reduction reduction, Dtype dtype) {
  const bool sum = reduction == Reduction::kSum;
  switch (dtype) {
    case Dtype::kF64:
      return sum ? f64_sum : f64_max;
    case Dtype::kF32:
      return sum ? f32_sum : f32_max;
    case Dtype::kBF16:
      return sum ? bf16_sum : bf16_max;
    case Dtype::kF16:
      return sum ? f16_sum : f16_max;
    case Dtype::kI64:
      return sum ? i64_sum : i64_max;
    case Dtype::kI32:
      return sum ? i32_sum : i32_max;
    case Dtype::kI8:
      return sum ? i8_sum : i8_max;
    case Dtype::kU8:
      return sum ? u8_sum : u8_max;
  }
  CHECK(false, "every dtype is reduced");
  return nullptr;
}

}  // namespace

std::string_view name(Reduction reduction) { return reduction == Reduction::kSum ? "sum" : "max"; }

void reduce_in_order(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                     int64_t count, std::byte* to) {
  CHECK(!terms.empty(), "a sum has terms");
  if (count == 0) return;
  if (terms.size() == 1) {  // the bits of the one term, also where it is a NaN
    std::memmove(to, terms[0], count * size_of(dtype).count);
    return;
  }
  reduce_of(reduction, dtype)(terms, count, to);
}

}  // namespace adjoint

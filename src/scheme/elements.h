// Elements of any dtype, one at a time or by the type of the kernel.
#pragma once
#include "base/error.h"
#include "base/half.h"
#include "scheme/type.h"

namespace adjoint {

inline double load_element(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::kF64:
      return static_cast<const double*>(data)[i];
    case Dtype::kF32:
      return static_cast<const float*>(data)[i];
    case Dtype::kBF16:
      return static_cast<const BFloat16*>(data)[i];
    case Dtype::kF16:
      return static_cast<const Float16*>(data)[i];
    case Dtype::kI64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case Dtype::kI32:
      return static_cast<const int32_t*>(data)[i];
    case Dtype::kI8:
      return static_cast<const int8_t*>(data)[i];
    case Dtype::kU8:
      return static_cast<const uint8_t*>(data)[i];
  }
  return 0;
}

inline void store_element(void* data, Dtype dtype, int64_t i, double value) {
  switch (dtype) {
    case Dtype::kF64:
      static_cast<double*>(data)[i] = value;
      return;
    case Dtype::kF32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case Dtype::kBF16:
      static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value));
      return;
    case Dtype::kF16:
      static_cast<Float16*>(data)[i] = Float16(static_cast<float>(value));
      return;
    case Dtype::kI64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    case Dtype::kI32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      return;
    case Dtype::kI8:
      static_cast<int8_t*>(data)[i] = static_cast<int8_t>(value);
      return;
    case Dtype::kU8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
      return;
  }
}

inline double round_element(double value, Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return static_cast<float>(value);
    case Dtype::kBF16:
      return BFloat16(static_cast<float>(value));
    case Dtype::kF16:
      return Float16(static_cast<float>(value));
    default:
      return value;
  }
}

// Calls f.template operator()<T>() with the C++ type of a floating dtype.
template <class F>
decltype(auto) with_float_type(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::kF64:
      return f.template operator()<double>();
    case Dtype::kF32:
      return f.template operator()<float>();
    case Dtype::kBF16:
      return f.template operator()<BFloat16>();
    case Dtype::kF16:
      return f.template operator()<Float16>();
    default:
      break;
  }
  CHECK(false, "a floating dtype");
  std::abort();
}

// What a kernel of element type T sums in.
template <class T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

}  // namespace adjoint

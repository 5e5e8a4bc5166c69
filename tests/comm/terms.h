// Numbers of every dtype, different on every rank, and their sum by one plain loop.
#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "comm/communicator.h"
#include "scheme/elements.h"

namespace adjoint {

inline const std::vector<Dtype>& all_dtypes() {
  static const std::vector<Dtype> dtypes = {Dtype::kF64, Dtype::kF32, Dtype::kBF16, Dtype::kF16,
                                            Dtype::kI64, Dtype::kI32, Dtype::kI8,   Dtype::kU8};
  return dtypes;
}

// Magnitudes differ widely, so that another order of a sum gives other bits.
inline std::vector<std::byte> numbers_of(int rank, Dtype dtype, int64_t count) {
  std::vector<std::byte> data(count * size_of(dtype).count);
  const RandomStream stream{.key = 19, .step = static_cast<uint64_t>(rank)};
  for (int64_t i = 0; i < count; ++i) {
    const double exponent = is_float(dtype) ? std::ldexp(1.0, i % 9 - 4) : 50;
    const double x = (stream.uniform(i) * 2 - (dtype == Dtype::kU8 ? 0 : 1)) * exponent;
    store_element(data.data(), dtype, i, x);
  }
  return data;
}

template <class T, class A>
void add_plainly(const std::vector<std::vector<std::byte>>& terms, std::vector<std::byte>& to) {
  for (size_t i = 0; i < to.size() / sizeof(T); ++i) {
    T term;
    std::memcpy(&term, terms[0].data() + i * sizeof(T), sizeof(T));
    A sum = static_cast<A>(term);
    for (size_t k = 1; k < terms.size(); ++k) {
      std::memcpy(&term, terms[k].data() + i * sizeof(T), sizeof(T));
      sum = static_cast<A>(sum + static_cast<A>(term));
    }
    term = static_cast<T>(sum);
    std::memcpy(to.data() + i * sizeof(T), &term, sizeof(T));
  }
}

// Rank 0's first, then rank 1's, ...
inline std::vector<std::byte> plain_sum(const std::vector<std::vector<std::byte>>& terms,
                                        Dtype dtype) {
  std::vector<std::byte> to(terms[0].size());
  switch (dtype) {
    case Dtype::kF64:
      add_plainly<double, double>(terms, to);
      break;
    case Dtype::kF32:
      add_plainly<float, float>(terms, to);
      break;
    case Dtype::kBF16:
      add_plainly<BFloat16, float>(terms, to);
      break;
    case Dtype::kF16:
      add_plainly<Float16, float>(terms, to);
      break;
    case Dtype::kI64:
      add_plainly<int64_t, uint64_t>(terms, to);
      break;
    case Dtype::kI32:
      add_plainly<int32_t, uint32_t>(terms, to);
      break;
    case Dtype::kI8:
      add_plainly<int8_t, uint8_t>(terms, to);
      break;
    case Dtype::kU8:
      add_plainly<uint8_t, uint8_t>(terms, to);
      break;
  }
  return to;
}

inline std::vector<std::byte> sum_of_ranks(int ranks, Dtype dtype, int64_t count) {
  std::vector<std::vector<std::byte>> terms;
  for (int rank = 0; rank < ranks; ++rank) terms.push_back(numbers_of(rank, dtype, count));
  return plain_sum(terms, dtype);
}

}  // namespace adjoint

// Where numbers of rows lie, one for each row, such as log-sums: side by side, but for padding.
#pragma once
#include "scheme/type.h"

#ifdef __CUDACC__
#define ADJOINT_BOTH __host__ __device__
#else
#define ADJOINT_BOTH
#endif

namespace adjoint {

struct RowNumbers {
  RowNumbers() = default;
  explicit RowNumbers(const Type& type)
      : row(type.rank() ? type.dim(-1) : 1), step(type.rank() ? type.axes.back().physical() : 1) {}
  int64_t row = 1, step = 1;

  ADJOINT_BOTH int64_t at(int64_t r) const { return row == step ? r : r / row * step + r % row; }
};

}  // namespace adjoint

#undef ADJOINT_BOTH

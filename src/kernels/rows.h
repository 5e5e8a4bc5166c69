// Rows of projections, as attention reads and writes them.
#pragma once
#include <cstdint>

namespace adjoint {

// Where a projection's rows are: element (sample, position, head, i) is at
// data[sample * sample_step + position * row_step + head * size + i].
struct Rows {
  void* data = nullptr;
  int64_t sample_step = 0, row_step = 0;
};

}  // namespace adjoint

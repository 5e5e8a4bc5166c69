// Rows of samples, from a row on that is data: copied out, or copied in.
#include <algorithm>
#include <cstring>

#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// [samples, rows, width], in bytes; of an object with two axes the width is 1.
struct RowPlaces {
  int64_t sample_step, row_step, step;
  RowPlaces(const Strides& strides, int64_t element)
      : sample_step(strides[0] * element),
        row_step(strides[1] * element),
        step(strides.size() > 2 ? strides[2] * element : element) {}
};

void copy_row(char* to, const RowPlaces& to_places, const char* from, const RowPlaces& from_places,
              int64_t width, int64_t element) {
  if (to_places.step == element && from_places.step == element) {
    std::memcpy(to, from, width * element);
    return;
  }
  for (int64_t c = 0; c < width; ++c) {
    std::memcpy(to + c * to_places.step, from + c * from_places.step, element);
  }
}

Launch take_rows(const KernelCall& k, const Pointers& at) {
  const Type &x = k.call.inputs[0], &y = k.outputs[0];
  const int64_t element = size_of(x.dtype).count, width = x.rank() > 2 ? x.dim(2) : 1;
  const int64_t samples = x.dim(0), rows = x.dim(1), size = y.dim(1);
  const RowPlaces from_places(k.in_strides[0], element), to_places(k.out_strides[0], element);
  const auto* from = static_cast<const char*>(at.in[0]);
  const auto* first = static_cast<const int32_t*>(at.in[1]);
  const int64_t first_step = k.in_strides[1][0];
  auto* to = static_cast<char*>(at.out[0]);
  return [=] {
    parallel_for(samples * size, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t each = begin; each < end; ++each) {
        const int64_t sample = each / size, i = each % size;
        const int64_t row = std::clamp<int64_t>(first[sample * first_step] + i, 0, rows - 1);
        copy_row(to + sample * to_places.sample_step + i * to_places.row_step, to_places,
                 from + sample * from_places.sample_step + row * from_places.row_step, from_places,
                 width, element);
      }
    });
  };
}

Launch put_rows(const KernelCall& k, const Pointers& at) {
  const Type &x = k.call.inputs[0], &few = k.call.inputs[1];
  const int64_t element = size_of(x.dtype).count, width = x.rank() > 2 ? x.dim(2) : 1;
  const int64_t samples = x.dim(0), rows = x.dim(1), size = few.dim(1);
  const int64_t before = k.call.integer("from", 0);
  const bool ring = k.call.integer("ring", 0) != 0;
  const RowPlaces x_places(k.in_strides[0], element), few_places(k.in_strides[1], element);
  const RowPlaces to_places(k.out_strides[0], element);
  const auto *old = static_cast<const char*>(at.in[0]), *from = static_cast<const char*>(at.in[1]);
  const auto* first = static_cast<const int32_t*>(at.in[2]);
  const int64_t first_step = k.in_strides[2][0];
  auto* to = static_cast<char*>(at.out[0]);
  return [=] {
    if (old != to) {
      parallel_for(samples * rows, 64, [&](int64_t begin, int64_t end, int) {
        for (int64_t each = begin; each < end; ++each) {
          const int64_t sample = each / rows, row = each % rows;
          copy_row(to + sample * to_places.sample_step + row * to_places.row_step, to_places,
                   old + sample * x_places.sample_step + row * x_places.row_step, x_places, width,
                   element);
        }
      });
    }
    parallel_for(samples * size, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t each = begin; each < end; ++each) {
        const int64_t sample = each / size, i = each % size;
        int64_t row = before + first[sample * first_step] + i;
        if (row < 0 || (row >= rows && !ring)) continue;
        if (ring) row %= rows;
        copy_row(to + sample * to_places.sample_step + row * to_places.row_step, to_places,
                 from + sample * few_places.sample_step + i * few_places.row_step, few_places,
                 width, element);
      }
    });
  };
}

}  // namespace

extern const Kernel cpu_rows_at = {
    .op = "rows_at",
    .prepare = take_rows,
};
extern const Kernel cpu_put_rows = {
    .op = "put_rows",
    .prepare = put_rows,
};

}  // namespace adjoint

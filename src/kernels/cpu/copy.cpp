#include "kernels/cpu/copy.h"

#include <algorithm>
#include <cstring>

#include "device/parallel.h"

namespace adjoint {

namespace {

// Both have one shape. Trailing axes that are contiguous in both are copied as one run.
Launch copy_runs(const Type& type, const Strides& from_strides, const void* from,
                 const Strides& to_strides, void* to) {
  int outer = type.rank();
  int64_t run = 1;
  while (outer > 0 && (type.dim(outer - 1) == 1 ||
                       (from_strides[outer - 1] == run && to_strides[outer - 1] == run))) {
    run *= type.dim(--outer);
  }
  const int64_t size = size_of(type.dtype).count, runs = type.num_elements() / run;
  constexpr int64_t kLongest = 1 << 16;  // elements that one thread takes at once
  const int64_t pieces = (run + kLongest - 1) / kLongest;
  return [=] {
    parallel_for(runs * pieces, std::max<int64_t>(1, 16384 / run),
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t k = begin; k < end; ++k) {
                     int64_t rest = k / pieces, a = 0, b = 0;
                     for (int i = outer; i-- > 0;) {
                       a += rest % type.dim(i) * from_strides[i];
                       b += rest % type.dim(i) * to_strides[i];
                       rest /= type.dim(i);
                     }
                     const int64_t first = k % pieces * kLongest;
                     std::memcpy(static_cast<char*>(to) + size * (b + first),
                                 static_cast<const char*>(from) + size * (a + first),
                                 size * std::min(kLongest, run - first));
                   }
                 });
  };
}

}  // namespace

Launch prepare_copy(const Type& from_type, const Strides& from_strides, const void* from,
                    const Type& to_type, const Strides& to_strides, void* to) {
  if (same_shape(from_type, to_type)) {
    return copy_runs(from_type, from_strides, from, to_strides, to);
  }
  const int64_t size = size_of(from_type.dtype).count, count = from_type.num_elements();
  const auto offset = [](const Type& type, const Strides& strides, int64_t k) {
    int64_t at = 0;
    for (int a = type.rank(); a-- > 0;) {
      at += k % type.dim(a) * strides[a];
      k /= type.dim(a);
    }
    return at;
  };
  return [=] {
    parallel_for(count, 16384, [&](int64_t begin, int64_t end, int) {
      for (int64_t k = begin; k < end; ++k) {
        std::memcpy(static_cast<char*>(to) + size * offset(to_type, to_strides, k),
                    static_cast<const char*>(from) + size * offset(from_type, from_strides, k),
                    size);
      }
    });
  };
}

Launch prepare_reshape(const KernelCall& call, const Pointers& at) {
  return prepare_copy(call.call.inputs[0], call.in_strides[0], at.in[0], call.outputs[0],
                      call.out_strides[0], at.out[0]);
}

}  // namespace adjoint

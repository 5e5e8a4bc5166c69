// Codes become numbers row by row, a table of the group's levels at a time.
#include "device/parallel.h"
#include "kernels/kernel.h"
#include "ops/quantize.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

template <class T>
void expand(const CodeShape& s, const void* codes, const void* scales, Dtype scale_dtype, void* out,
            int64_t begin, int64_t end) {
  using W = typename Wide<T>::type;
  const int64_t group = s.row / s.groups;
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t g = 0; g < s.groups; ++g) {
      const auto scale = static_cast<W>(load_element(scales, scale_dtype, s.scale_at(r, g)));
      const int64_t first = r * s.row + g * group;
      T* y = static_cast<T*>(out) + first;
      if (s.packed) {
        W level[16];
        for (int i = 0; i < 16; ++i) level[i] = scale * static_cast<W>(levels(s.kind)[i]);
        const auto* x = static_cast<const uint8_t*>(codes) + first / 2;
        for (int64_t k = 0; k < group / 2; ++k) {
          y[2 * k] = static_cast<T>(level[x[k] & 15]);
          y[2 * k + 1] = static_cast<T>(level[x[k] >> 4]);
        }
      } else {
        const auto* x = static_cast<const int8_t*>(codes) + first;
        for (int64_t k = 0; k < group; ++k) y[k] = static_cast<T>(scale * static_cast<W>(x[k]));
      }
    }
  }
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const CodeShape s = code_shape(k.call);
  const Dtype scale_dtype = k.call.inputs[1].dtype;
  return with_float_type(k.outputs[0].dtype, [&]<class T>() -> Launch {
    return [=] {
      parallel_for(s.rows, 16, [&](int64_t begin, int64_t end, int) {
        expand<T>(s, at.in[0], at.in[1], scale_dtype, at.out[0], begin, end);
      });
    };
  });
}

}  // namespace

extern const Kernel cpu_dequantize = {
    .op = "dequantize",
    .prepare = cpu,
};

}  // namespace adjoint

#include "kernels/kernel.h"
#include "ops/quantize.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// One element at a time.
Launch reference(const KernelCall& k, const Pointers& at) {
  const CodeShape s = code_shape(k.call);
  const Dtype codes = k.call.inputs[0].dtype, scales = k.call.inputs[1].dtype;
  const Dtype out = k.outputs[0].dtype;
  return [=] {
    for (int64_t i = 0; i < s.rows * s.row; ++i) {
      const auto byte = static_cast<int64_t>(load_element(at.in[0], codes, s.packed ? i / 2 : i));
      const double level = s.packed ? levels(s.kind)[i % 2 ? byte / 16 : byte % 16] : byte;
      const int64_t group = i % s.row / (s.row / s.groups);
      const double scale = load_element(at.in[1], scales, s.scale_at(i / s.row, group));
      store_element(at.out[0], out, i, level * scale);
    }
  };
}

}  // namespace

extern const Kernel reference_dequantize = {
    .op = "dequantize",
    .prepare = reference,
};

}  // namespace adjoint

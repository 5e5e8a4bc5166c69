#include "ops/block_codes.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Of every level the distance is taken.
Launch encode_one_by_one(const KernelCall& k, const Pointers& at) {
  const DynamicLevels& levels = dynamic_levels(k.outputs[0].dtype == Dtype::kI8);
  const Dtype in = k.call.inputs[0].dtype, codes = k.outputs[0].dtype, scales = k.outputs[1].dtype;
  const CodeBlocks blocks(k.outputs[0]);
  return [=, &levels] {
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t first = blocks.first(b), last = first + blocks.size(b);
      double largest = 0;
      for (int64_t i = first; i < last; ++i) {
        largest = std::max(largest, std::abs(load_element(at.in[0], in, i)));
      }
      store_element(at.out[1], scales, b, largest);
      for (int64_t i = first; i < last; ++i) {
        const double x = load_element(at.in[0], in, i), y = std::abs(x) / largest;
        int best = x == 0 || largest == 0 ? 0 : 1;
        for (int c = 2; best > 0 && c < levels.count; ++c) {
          if (std::abs(levels.level[c] - y) < std::abs(levels.level[best] - y)) best = c;
        }
        store_element(at.out[0], codes, i, x < 0 ? -best : best);
      }
    }
  };
}

Launch decode_one_by_one(const KernelCall& k, const Pointers& at) {
  const Dtype codes = k.call.inputs[0].dtype, scales = k.call.inputs[1].dtype;
  const DynamicLevels& levels = dynamic_levels(codes == Dtype::kI8);
  const Dtype out = k.outputs[0].dtype;
  const int64_t elements = k.outputs[0].num_elements();
  const int64_t row = k.outputs[0].dim(-1), per_row = k.call.inputs[1].dim(-1);
  return [=, &levels] {
    for (int64_t i = 0; i < elements; ++i) {
      const auto code = static_cast<int>(load_element(at.in[0], codes, i));
      const double size = levels.level[std::abs(code)];
      const double scale = load_element(at.in[1], scales, i / row * per_row + i % row / kCodeBlock);
      store_element(at.out[0], out, i, (code < 0 ? -size : size) * scale);
    }
  };
}

}  // namespace

extern const Kernel reference_block_decode = {
    .op = "block_decode",
    .prepare = decode_one_by_one,
};

extern const Kernel reference_block_encode = {
    .op = "block_encode",
    .prepare = encode_one_by_one,
};

}  // namespace adjoint

// Blocks are encoded and decoded one by one.
#include "ops/block_codes.h"

#include <algorithm>
#include <cmath>

#include "device/parallel.h"
#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

constexpr int64_t kBlocksAtOnce = 16;  // of one thread: some microseconds

template <class T, class S>
void encode_blocks(const DynamicLevels& levels, const CodeBlocks& blocks, const T* x,
                   uint8_t* codes, S* scales, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const int64_t first = blocks.first(b), last = first + blocks.size(b);
    S largest = 0;
    for (int64_t i = first; i < last; ++i) {
      largest = std::max(largest, std::abs(static_cast<S>(x[i])));
    }
    scales[b] = largest;
    for (int64_t i = first; i < last; ++i) {
      codes[i] = static_cast<uint8_t>(block_code(levels, static_cast<S>(x[i]), largest));
    }
  }
}

Launch encode(const KernelCall& k, const Pointers& at) {
  const DynamicLevels& levels = dynamic_levels(k.outputs[0].dtype == Dtype::kI8);
  const CodeBlocks blocks(k.outputs[0]);
  return with_float_type(k.call.inputs[0].dtype, [&]<class T>() -> Launch {
    using S = typename Wide<T>::type;
    return [=, &levels] {
      parallel_for(blocks.count, kBlocksAtOnce, [&](int64_t begin, int64_t end, int) {
        encode_blocks(levels, blocks, static_cast<const T*>(at.in[0]),
                      static_cast<uint8_t*>(at.out[0]), static_cast<S*>(at.out[1]), begin, end);
      });
    };
  });
}

Launch decode(const KernelCall& k, const Pointers& at) {
  const bool is_signed = k.call.inputs[0].dtype == Dtype::kI8;
  const DynamicLevels& levels = dynamic_levels(is_signed);
  const CodeBlocks blocks(k.outputs[0]);
  return with_float_type(k.outputs[0].dtype, [&]<class T>() -> Launch {
    using W = typename Wide<T>::type;
    return [=, &levels] {
      parallel_for(blocks.count, kBlocksAtOnce, [&](int64_t begin, int64_t end, int) {
        const auto* codes = static_cast<const uint8_t*>(at.in[0]);
        auto* x = static_cast<T*>(at.out[0]);
        for (int64_t b = begin; b < end; ++b) {
          const W scale = static_cast<W>(static_cast<const T*>(at.in[1])[b]);
          const int64_t first = blocks.first(b), last = first + blocks.size(b);
          for (int64_t i = first; i < last; ++i) {
            const int code = is_signed ? static_cast<int8_t>(codes[i]) : codes[i];
            const W size = static_cast<W>(levels.level[std::abs(code)]) * scale;
            x[i] = static_cast<T>(code < 0 ? -size : size);
          }
        }
      });
    };
  });
}

}  // namespace

extern const Kernel cpu_block_decode = {
    .op = "block_decode",
    .prepare = decode,
};

extern const Kernel cpu_block_encode = {
    .op = "block_encode",
    .prepare = encode,
};

}  // namespace adjoint

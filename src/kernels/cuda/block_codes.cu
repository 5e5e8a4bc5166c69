// A block of codes is encoded by a block of as many threads: the largest of their numbers first,
// then each looks for its level. The bits are the CPU's: both compare the same quotient with the
// same borders.
#include <algorithm>

#include "kernels/cuda/block_codes.h"
#include "kernels/cuda/elements.cuh"
#include "ops/block_codes.h"

namespace adjoint {

namespace {

constexpr int kThreads = kCodeBlock;

// Blocks per row, and how long a row is.
struct Rows {
  int64_t row, blocks;

  __device__ int64_t column() const { return blockIdx.x % blocks * kThreads + threadIdx.x; }
  __device__ int64_t at(int64_t column) const { return blockIdx.x / blocks * row + column; }
};

struct Table {
  int count;
  float of[256];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    encode(Table borders, Rows rows, const T* x, uint8_t* codes, typename Wide<T>::type* scales) {
  using W = typename Wide<T>::type;
  __shared__ float border[kThreads];
  __shared__ W largest[kThreads / 32];
  border[threadIdx.x] = borders.of[threadIdx.x];
  const int64_t column = rows.column(), i = rows.at(column);
  const W own = column < rows.row ? widen(x[i]) : W{0};
  const W size = own < 0 ? -own : own;
  W most = size > 0 ? size : W{0};  // what is no number is not the largest
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const W other = __shfl_xor_sync(~0u, most, lanes);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) {
    most = largest[warp] > most ? largest[warp] : most;
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = most;
  if (column >= rows.row) return;
  int low = 0;
  if (own != 0 && most > 0) {
    const W y = size / most;
    int high = borders.count - 1;
    low = 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (y > static_cast<W>(border[middle])) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (own < 0 && borders.count == 128) low = -low;
  }
  codes[i] = static_cast<uint8_t>(low);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    decode(Table levels, Rows rows, const uint8_t* codes, const T* scales, T* x) {
  using W = typename Wide<T>::type;
  __shared__ float level[kThreads];
  level[threadIdx.x] = levels.of[threadIdx.x];
  __syncthreads();
  const int64_t column = rows.column(), i = rows.at(column);
  if (column >= rows.row) return;
  const int code = levels.count == 128 ? static_cast<int8_t>(codes[i]) : codes[i];
  const W size = static_cast<W>(level[code < 0 ? -code : code]) * widen(scales[blockIdx.x]);
  x[i] = narrow<T>(code < 0 ? -size : size);
}

Table table_of(bool is_signed, bool borders) {
  const DynamicLevels& levels = dynamic_levels(is_signed);
  Table table{.count = levels.count, .of = {}};
  const auto& from = borders ? levels.border : levels.level;
  std::copy(from.begin(), from.end(), table.of);
  return table;
}

}  // namespace

Launch block_encode_cuda(const KernelCall& k, const Pointers& at) {
  const CodeBlocks all(k.outputs[0]);
  if (all.count == 0) return [] {};
  const Rows rows{all.row, all.per_row};
  const Table borders = table_of(k.outputs[0].dtype == Dtype::kI8, /*borders=*/true);
  const auto blocks = static_cast<unsigned>(all.count);
  return with_device_type(k.call.inputs[0].dtype, [&]<class T>() -> Launch {
    const auto* x = static_cast<const T*>(at.in[0]);
    auto* codes = static_cast<uint8_t*>(at.out[0]);
    auto* scales = static_cast<typename Wide<T>::type*>(at.out[1]);
    return [=, stream = as_stream(at.stream)] {
      encode<T><<<blocks, kThreads, 0, stream>>>(borders, rows, x, codes, scales);
      check_launch("block_encode");
    };
  });
}

Launch block_decode_cuda(const KernelCall& k, const Pointers& at) {
  const CodeBlocks all(k.outputs[0]);
  if (all.count == 0) return [] {};
  const Rows rows{all.row, all.per_row};
  const Table levels = table_of(k.call.inputs[0].dtype == Dtype::kI8, /*borders=*/false);
  const auto blocks = static_cast<unsigned>(all.count);
  return with_device_type(k.outputs[0].dtype, [&]<class T>() -> Launch {
    const auto* codes = static_cast<const uint8_t*>(at.in[0]);
    const auto* scales = static_cast<const T*>(at.in[1]);
    auto* x = static_cast<T*>(at.out[0]);
    return [=, stream = as_stream(at.stream)] {
      decode<T><<<blocks, kThreads, 0, stream>>>(levels, rows, codes, scales, x);
      check_launch("block_decode");
    };
  });
}

}  // namespace adjoint

// One reading of the logits and one writing, 16 bytes at a time. Every element is read by the
// thread that writes it, so the result may take the logits' place.
#include "ops/cross_entropy.cuh"
#include "ops/cuda_kernels.h"

namespace adjoint {

namespace {

// A row from its first 16-byte boundary on: single elements, packs, single elements.
template <class T>
struct RowParts {
  int packs, first, past;  // packs are elements [first, past)

  __device__ RowParts(const T* row, int size, bool packed) {
    const auto over = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    first = packed ? ::min(size, (kPackSize<T> - over) % kPackSize<T>) : size;
    packs = (size - first) / kPackSize<T>;
    past = first + packs * kPackSize<T>;
  }
};

// The gradient of one row's logits. Near certainty p - 1 must be taken before p is rounded.
template <class W>
struct RowGradient {
  W lse, scale;
  int target;

  __device__ W hit(W logit) const { return scale * ::expm1(logit - lse); }
  __device__ W missed(W logit) const { return scale * exp_of(logit - lse); }
};

template <class T, class W = typename Wide<T>::type>
__device__ void write_row(const RowGradient<W>& gradient, const T* x, T* y, int size, bool packed) {
  const RowParts<T> parts(x, size, packed);
  const int step = blockDim.x;
  const auto one = [&](int i) {
    const W logit = widen(x[i]);
    y[i] = narrow<T>(i == gradient.target ? gradient.hit(logit) : gradient.missed(logit));
  };
  for (int i = threadIdx.x; i < parts.first; i += step) one(i);
  const auto* from = reinterpret_cast<const Pack<T>*>(x + parts.first);
  auto* to = reinterpret_cast<Pack<T>*>(y + parts.first);
  for (int i = threadIdx.x; i < parts.packs; i += kPacksAtOnce * step) {
    Pack<T> loaded[kPacksAtOnce];
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      if (i + p * step < parts.packs) loaded[p] = from[i + p * step];
    }
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      if (i + p * step >= parts.packs) break;
      const int column = parts.first + (i + p * step) * kPackSize<T>;
      W x_of[kPackSize<T>], y_of[kPackSize<T>];
      loaded[p].widen_to(x_of);
#pragma unroll
      for (int k = 0; k < kPackSize<T>; ++k) y_of[k] = gradient.missed(x_of[k]);
      if (gradient.target >= column && gradient.target < column + kPackSize<T>) {
#pragma unroll
        for (int k = 0; k < kPackSize<T>; ++k) {
          if (column + k == gradient.target) y_of[k] = gradient.hit(x_of[k]);
        }
      }
      to[i + p * step] = Pack<T>::narrowed(y_of);
    }
  }
  for (int i = parts.past + threadIdx.x; i < size; i += step) one(i);
}

template <class T>
__device__ void clear_row(T* y, int size) {
  const RowParts<T> parts(y, size, true);
  for (int i = threadIdx.x; i < parts.first; i += blockDim.x) y[i] = narrow<T>(0);
  auto* to = reinterpret_cast<Pack<T>*>(y + parts.first);
  for (int i = threadIdx.x; i < parts.packs; i += blockDim.x) to[i] = {make_uint4(0, 0, 0, 0)};
  for (int i = parts.past + threadIdx.x; i < size; i += blockDim.x) y[i] = narrow<T>(0);
}

struct Floats {
  const void* data;
  Dtype dtype;
};

template <class T>
__global__ void __launch_bounds__(kMostRowThreads, kRowsInFlight)
    row_gradients(LogitRows rows, const T* logits, const int32_t* targets, Floats lse, Floats dsum,
                  T* out) {
  using W = typename Wide<T>::type;
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const auto size = static_cast<int>(rows.classes);
  T* y = out + r * rows.step;
  if (targets[r] == rows.ignore) return clear_row(y, size);
  const T* x = logits + r * rows.step;
  const RowGradient<W> gradient{.lse = load_float<W>(lse.data, lse.dtype, r),
                                .scale = load_float<W>(dsum.data, dsum.dtype, 0),
                                .target = static_cast<int>(clamp_id(targets[r], size))};
  // Both begin at the same place of 16 bytes, or neither is taken by packs.
  const bool packed = reinterpret_cast<uintptr_t>(x) % 16 == reinterpret_cast<uintptr_t>(y) % 16;
  write_row(gradient, x, y, size, packed);
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const LogitRows rows(k);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Floats lse{at.in[2], k.call.inputs[2].dtype}, dsum{at.in[3], k.call.inputs[3].dtype};
  auto* out = static_cast<T*>(at.out[0]);
  const Tiles tiles = row_blocks(rows, kPackSize<T>);
  const cudaStream_t stream = as_stream(at.stream);
  if (rows.count == 0) return [] {};
  return [=] {
    row_gradients<T><<<tiles.grid, tiles.block, 0, stream>>>(rows, logits, targets, lse, dsum, out);
    check_launch("cross_entropy_grad");
  };
}

}  // namespace

Launch cross_entropy_grad_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint

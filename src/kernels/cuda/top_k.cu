// A warp for each row. Each turn takes the first of those that come after the one before, in the
// order that top_k.cpp states; a row of scores is short and stays in the cache.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"

namespace adjoint {

namespace {

constexpr int kRowsABlock = 8;

template <class W>
struct Candidate {
  W score = 0;
  int at = -1;  // none

  // Larger first, NaN after every number, then by index; anything comes before none.
  __device__ bool comes_before(const Candidate& other) const {
    if (other.at < 0 || at < 0) return at >= 0;
    if (score > other.score) return true;
    if (other.score > score) return false;
    if (isnan(score) != isnan(other.score)) return isnan(other.score);
    return at < other.at;
  }
};

struct Rows {
  int64_t count, step;
  int size, chosen;
};

template <class T>
__global__ void choose(Rows rows, const T* scores, int32_t* choice) {
  using W = typename Wide<T>::type;
  const int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (r >= rows.count) return;
  const T* row = scores + r * rows.step;
  Candidate<W> previous;
  for (int j = 0; j < rows.chosen; ++j) {
    Candidate<W> best;
    for (int i = threadIdx.x; i < rows.size; i += 32) {
      const Candidate<W> here{widen(row[i]), i};
      if ((j == 0 || previous.comes_before(here)) && here.comes_before(best)) best = here;
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const Candidate<W> other{__shfl_xor_sync(~0u, best.score, lanes),
                               __shfl_xor_sync(~0u, best.at, lanes)};
      if (other.comes_before(best)) best = other;
    }
    previous = best;
    if (threadIdx.x == 0) choice[r * rows.chosen + j] = best.at;
  }
}

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  const Type& type = call.call.inputs[0];
  CHECK(call.in_strides[0] == dense_strides(type), "scores are dense");
  const int64_t size = type.dim(-1), count = type.num_elements() / size;
  if (size > INT32_MAX) throw MachineError("top_k: CUDA takes no more than 2^31 scores a row");
  if (count == 0) return [] {};
  const Rows rows{count, type.axes.back().physical(), static_cast<int>(size),
                  static_cast<int>(call.call.integer("k"))};
  const auto* scores = static_cast<const T*>(at.in[0]);
  auto* choice = static_cast<int32_t*>(at.out[0]);
  const auto blocks = static_cast<unsigned>(ceil_div(count, kRowsABlock));
  return [=, stream = as_stream(at.stream)] {
    choose<<<blocks, dim3(32, kRowsABlock), 0, stream>>>(rows, scores, choice);
    check_launch("top_k");
  };
}

}  // namespace

Launch top_k_cuda(const KernelCall& call, const Pointers& at) {
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint

// Rows are sorted by their experts, and each tile of an expert's matrix sums over its rows in their
// order, which may be cut into groups whose sums are added after. Tiles of experts without rows are
// written, too: zeros, or the addend.
#include <algorithm>

#include "kernels/cuda/expert_plain.cuh"
#include "kernels/cuda/expert_row_sums.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/sm90a/expert_tiles.h"
#include "kernels/dense_operands.h"
#include "ops/expert_linear.h"

namespace adjoint {

namespace {

using namespace experts;

template <class T>
Launch prepare_sums(const RowSums& s, const T* a, const T* b, const void* addend, void* out,
                    int64_t groups, float* parts, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    const bool packed = groups && is_aligned(a, 16) && is_aligned(b, 16);
    if (packed && tiles::fits_device(s.sorted.experts)) {
      const bool in_pairs = s.out == Dtype::kF32 && s.q % 2 == 0 && s.to_step % 2 == 0 &&
                            s.addend_step % 2 == 0 && is_aligned(addend, 8) && is_aligned(out, 8);
      const tiles::RowSumTiles<T> work{s,    a, b, addend, out, in_pairs, static_cast<int>(groups),
                                       parts};
      const int64_t units = ceil_div(s.p, tiles::kRows) * ceil_div(s.q, tiles::kColumns);
      const Launch multiply = tiles::launch_tiles<T>(work, s.sorted, groups * units, stream);
      const dim3 all(static_cast<unsigned>(s.sorted.experts * units),
                     tiles::kRows / tiles::kPartRows);
      const size_t counts = 4 * (s.sorted.experts + 1);
      return [=] {
        multiply();
        tiles::add_parts<<<all, tiles::kThreads, counts, stream>>>(work);
      };
    }
  }
  const int64_t most = s.sorted.experts * ceil_div(s.p, plain::kTile) * ceil_div(s.q, plain::kTile);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most, 1 << 16));
  return [=] { plain::row_sums<<<blocks, plain::kThreads, 0, stream>>>(s, a, b, addend, out); };
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const ExpertGradShape s = expert_grad_shape(k.call);
  if (s.p > INT32_MAX || s.q > INT32_MAX) {
    throw MachineError("expert_linear_grad: CUDA takes no more than 2^31 elements a row");
  }
  if (s.p == 0 || s.q == 0) return [] {};
  const Strides to = k.out_strides[0], addend = s.addend ? k.in_strides[3] : to;
  CHECK(to == dense_strides(k.outputs[0]), "the gradient of the weight is dense");
  const ExpertLayout layout = expert_grad_layout(k);
  const RowSums sums{.sorted = sorted_at(s, layout, at.workspace),
                     .p = static_cast<int>(s.p),
                     .q = static_cast<int>(s.q),
                     .a_each = s.a_each,
                     .b_each = s.b_each,
                     .a_step = k.call.inputs[0].axes.back().physical(),
                     .b_step = k.call.inputs[1].axes.back().physical(),
                     .to_expert = to[0],
                     .to_step = to[1],
                     .addend_expert = addend[0],
                     .addend_step = addend[1],
                     .out = k.outputs[0].dtype};
  const auto* choice = static_cast<const int32_t*>(at.in[2]);
  const cudaStream_t stream = as_stream(at.stream);
  const Launch multiply = prepare_sums<T>(
      sums, static_cast<const T*>(at.in[0]), static_cast<const T*>(at.in[1]),
      s.addend ? at.in[3] : nullptr, at.out[0], expert_grad_groups(k),
      reinterpret_cast<float*>(static_cast<char*>(at.workspace) + layout.results.count), stream);
  return [=] {
    launch_sort(sums.sorted, choice, stream);
    multiply();
    check_launch("expert_linear_grad");
  };
}

}  // namespace

Launch expert_linear_grad_cuda(const KernelCall& call, const Pointers& at) {
  check_operands_are_dense(call);
  return with_device_type(call.call.inputs[0].dtype,
                          [&]<class T>() { return prepare<T>(call, at); });
}

}  // namespace adjoint

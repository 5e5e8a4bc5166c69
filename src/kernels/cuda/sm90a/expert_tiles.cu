#include <algorithm>

#include "kernels/cuda/expert_products.cuh"
#include "kernels/cuda/expert_row_sums.cuh"
#include "kernels/cuda/expert_wgmma.cuh"
#include "kernels/cuda/sm90a/expert_tiles.h"

namespace adjoint::experts::tiles {

bool wgmma_fits_device(int64_t experts) {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0 &&
         static_cast<int64_t>(wgmma_shared_bytes(experts)) <=
             device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

template <class T, class Work>
Launch launch_by_wgmma(const Work& work, const Sorted& sorted, int64_t most_units,
                       cudaStream_t stream) {
  const auto kernel = multiply_tiles_by_wgmma<T, Work>;
  const size_t bytes = wgmma_shared_bytes(sorted.experts);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             "expert_linear");
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(multiprocessors(), most_units));
  return [=] { kernel<<<blocks, kCopiers + kMultipliers, bytes, stream>>>(work, sorted); };
}

#define ADJOINT_BY_WGMMA(T, ...) \
  template Launch launch_by_wgmma<T>(const __VA_ARGS__&, const Sorted&, int64_t, cudaStream_t)
ADJOINT_BY_WGMMA(__nv_bfloat16, Products<__nv_bfloat16, false>);
ADJOINT_BY_WGMMA(__nv_bfloat16, Products<__nv_bfloat16, true>);
ADJOINT_BY_WGMMA(__nv_bfloat16, RowSumTiles<__nv_bfloat16>);
ADJOINT_BY_WGMMA(__half, Products<__half, false>);
ADJOINT_BY_WGMMA(__half, Products<__half, true>);
ADJOINT_BY_WGMMA(__half, RowSumTiles<__half>);
#undef ADJOINT_BY_WGMMA

}  // namespace adjoint::experts::tiles

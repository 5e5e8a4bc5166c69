// The tiles of experts by the instructions of GPUs of compute capability 9.0, compiled for them
// alone: a generic build knows of no wgmma.
#pragma once
#include "kernels/cuda/expert_mma.cuh"

namespace adjoint::experts::tiles {

bool wgmma_fits_device(int64_t experts);
template <class T, class Work>
Launch launch_by_wgmma(const Work& work, const Sorted& sorted, int64_t most_units,
                       cudaStream_t stream);

template <class T, class Work>
Launch launch_tiles(const Work& work, const Sorted& sorted, int64_t most_units,
                    cudaStream_t stream) {
  if (wgmma_fits_device(sorted.experts)) {
    return launch_by_wgmma<T>(work, sorted, most_units, stream);
  }
  return launch_by_mma<T>(work, sorted, most_units, stream);
}

}  // namespace adjoint::experts::tiles

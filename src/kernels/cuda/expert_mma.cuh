// The tiles of experts by mma.sync, which every GPU of compute capability 8.0 or more has.
#pragma once
#include "kernels/cuda/expert_tiles.cuh"

namespace adjoint::experts::tiles {

template <bool kTransposed>
__device__ void load_matrices(uint32_t (&m)[4], uint32_t from) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(from)
                 : "memory");
  }
}
template <class T>
__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// One step: 64 terms of a tile that is in shared memory.
template <class T, bool kTermsAlongA, bool kTermsAlongB>
__device__ void multiply_step(uint32_t stage, SumsOf<4, 8>& sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int down = warp / 4, across = warp % 4;  // which 64 rows, which 64 columns
  const uint32_t in_a = stage + down * kBlock, in_b = stage + kStageA + across * kBlock;
  const int of_eight = lane % 8;  // all lines that a lane addresses are this, modulo 8
  const auto at = [&](uint32_t block, int line, int chunk) {
    return block + line * kLine + ((chunk ^ of_eight) * kChunk);
  };
  // The matrices of the next 16 terms are on their way while these are multiplied.
  uint32_t a[2][4][4], b[2][4][4];
  const auto load = [&](int k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_matrices<!kTermsAlongA>(
          a[k % 2][i], kTermsAlongA
                           ? at(in_a, 16 * i + lane % 16, 2 * k + lane / 16)
                           : at(in_a, 16 * k + of_eight + lane / 16 * 8, 2 * i + lane / 8 % 2));
      load_matrices<!kTermsAlongB>(
          b[k % 2][i], kTermsAlongB
                           ? at(in_b, 16 * i + of_eight + lane / 16 * 8, 2 * k + lane / 8 % 2)
                           : at(in_b, 16 * k + lane % 16, 2 * i + lane / 16));
    }
  };
  load(0);
#pragma unroll
  for (int k = 0; k < kTerms / 16; ++k) {
    if (k + 1 < kTerms / 16) load(k + 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t(&pair)[4] = b[k % 2][j / 2];
        multiply_add<T>(sums[i][j], a[k % 2][i], pair[j % 2 * 2], pair[j % 2 * 2 + 1]);
      }
    }
  }
}

// By mma.sync, every warp has 64 x 64 results, and all warps copy, too.
constexpr int kStages = 3;
template <class T, class Work>
__global__ void __launch_bounds__(kThreads, 1)
    multiply_tiles(const __grid_constant__ Work work, const __grid_constant__ Sorted sorted) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  int* before = reinterpret_cast<int*>(shared_memory + kStages * kStageBytes);
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory));
  count_tiles(sorted, Work::kHeight, before);
  const int64_t units = work.units(before);
  Ahead<Work, kThreads / 8> ahead(work, before, units);
  int to = 0, stage = 0;
  const auto copy = [&] {
    if (ahead.has_step()) ahead.copy_step(shared + to * kStageBytes);
    close_copies();  // an empty group counts, too
    to = to + 1 == kStages ? 0 : to + 1;
  };
  for (int i = 0; i + 1 < kStages; ++i) copy();
  for (Cursor at = work.enter(before, blockIdx.x); at.unit < units;) {
    const Tile tile = work.tile(before, at);
    SumsOf<4, 8> sums = {};
    for (int step = 0; step < tile.steps; ++step) {
      wait_for_copies<kStages - 2>();
      __syncthreads();  // this step is there for all, and nobody reads the one before it any more
      copy();
      multiply_step<T, Work::kTermsAlongA, Work::kTermsAlongB>(shared + stage * kStageBytes, sums);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    work.write(tile, sums, threadIdx.x / 128 * 64, threadIdx.x / 32 % 4 * 64);
    at = work.after(before, at, tile);
  }
}

template <class T, class Work>
Launch launch_by_mma(const Work& work, const Sorted& sorted, int64_t most_units,
                     cudaStream_t stream) {
  const auto kernel = multiply_tiles<T, Work>;
  const size_t bytes = shared_bytes(kStages, sorted.experts);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             "expert_linear");
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(multiprocessors(), most_units));
  return [=] { kernel<<<blocks, kThreads, bytes, stream>>>(work, sorted); };
}

// Whether a block of this kernel fits the GPU, whose processors may be older than this kernel is
// made for.
inline bool fits_device(int64_t experts) {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) >= 8 &&
         static_cast<int64_t>(shared_bytes(kStages, experts)) <=
             device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

}  // namespace adjoint::experts::tiles

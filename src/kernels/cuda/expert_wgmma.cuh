// The tiles of experts by wgmma, which has twice the rate of mma.sync and reads both operands where
// they lie in shared memory, transposed or not. It is an instruction of one generation of GPUs,
// compute capability 9.0 (H100, H200), and only files compiled for sm_90a may include this.
#pragma once
#include "kernels/cuda/expert_tiles.cuh"

namespace adjoint::experts::tiles {

// clang-format off
#define ADJOINT_SUMS_OF_8(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define ADJOINT_SUMS_OF_32(j) ADJOINT_SUMS_OF_8(j), ADJOINT_SUMS_OF_8(j + 1), ADJOINT_SUMS_OF_8(j + 2), ADJOINT_SUMS_OF_8(j + 3)
#define ADJOINT_SUMS_OF_128(j) ADJOINT_SUMS_OF_32(j), ADJOINT_SUMS_OF_32(j + 4), ADJOINT_SUMS_OF_32(j + 8), ADJOINT_SUMS_OF_32(j + 12)
#define ADJOINT_SUM_NAMES \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
  "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
  "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, " \
  "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127 "
// clang-format on

// 64 x 256 += 64 x 16 by 16 x 256, by four warps.
template <class T, bool kTermsAlongA, bool kTermsAlongB>
__device__ void multiply_add_group(SumsOf<1, 32>& sums, uint64_t a, uint64_t b) {
  float(&c)[32][4] = sums[0];
#define ADJOINT_WGMMA(type)                                                               \
  asm volatile(                                                                           \
      "{ .reg .pred add; setp.eq.u32 add, 0, 0;\n"                                        \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" ADJOINT_SUM_NAMES \
      "}, %128, %129, add, 1, 1, %130, %131; }\n"                                         \
      : ADJOINT_SUMS_OF_128(0), ADJOINT_SUMS_OF_128(16)                                   \
      : "l"(a), "l"(b), "n"(kTermsAlongA ? 0 : 1), "n"(kTermsAlongB ? 0 : 1))
  if constexpr (std::is_same_v<T, __half>) {
    ADJOINT_WGMMA("f16");
  } else {
    ADJOINT_WGMMA("bf16");
  }
#undef ADJOINT_WGMMA
}
#undef ADJOINT_SUM_NAMES
#undef ADJOINT_SUMS_OF_128
#undef ADJOINT_SUMS_OF_32
#undef ADJOINT_SUMS_OF_8

// How an operand lies: lines of 128 bytes, swizzled, 8 of them to a kilobyte. Where terms run along
// lines, the stride is from 8 results to the next 8; else it is from 8 terms to the next 8, and the
// leading offset is from 64 results to the next 64.
__device__ inline uint64_t operand_at(uint32_t address) {
  constexpr uint64_t kSwizzleOf128 = 1, kLeading = kBlock / 16, kStride = 8 * kLine / 16;
  return kSwizzleOf128 << 62 | kStride << 32 | kLeading << 16 | (address & 0x3ffff) >> 4;
}

// ---- barriers between those who copy and those who multiply ----

__device__ inline void make_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals)
               : "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("{ .reg .b64 phase; mbarrier.arrive.shared::cta.b64 phase, [%0]; }\n" ::"r"(barrier)
               : "memory");
}
// Arrives when the copies that this thread has begun are there.
__device__ inline void arrive_with_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}
__device__ inline void wait_for(uint32_t barrier, int parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

template <int kOpen>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kOpen) : "memory");
}
template <class T, bool kTermsAlongA, bool kTermsAlongB>
__device__ void begin_step(uint32_t in_a, uint32_t in_b, SumsOf<1, 32>& sums) {
  constexpr int kStepA = kTermsAlongA ? 32 : 16 * kLine, kStepB = kTermsAlongB ? 32 : 16 * kLine;
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
  for (int k = 0; k < kTerms / 16; ++k) {
    multiply_add_group<T, kTermsAlongA, kTermsAlongB>(sums, operand_at(in_a + k * kStepA),
                                                      operand_at(in_b + k * kStepB));
  }
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// ---- the kernel ----

// The first kCopiers copy, the others multiply: two groups of four warps with 64 x 256 results
// each. They meet at barriers alone, so copies go on while results are written, and a group may be
// some steps ahead of the other.
constexpr int kWgmmaStages = 4, kCopiers = 128, kMultipliers = 256;
constexpr int kBarrierBytes = 2 * 8 * kWgmmaStages;

inline size_t wgmma_shared_bytes(int64_t experts) {
  return shared_bytes(kWgmmaStages, experts) + kBarrierBytes;
}

// A stage and how often all of them were used: a barrier's phases alternate with that.
struct StageCount {
  int stage = 0, parity = 0;
  __device__ void next() {
    stage = stage + 1 == kWgmmaStages ? 0 : stage + 1;
    if (stage == 0) parity ^= 1;
  }
};

template <class T, class Work>
__global__ void __launch_bounds__(kCopiers + kMultipliers, 1)
    multiply_tiles_by_wgmma(const __grid_constant__ Work work,
                            const __grid_constant__ Sorted sorted) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory));
  const uint32_t filled = shared + kWgmmaStages * kStageBytes, emptied = filled + 8 * kWgmmaStages;
  int* before = reinterpret_cast<int*>(shared_memory + kWgmmaStages * kStageBytes + kBarrierBytes);
  if (threadIdx.x < kWgmmaStages) {
    make_barrier(filled + 8 * threadIdx.x, kCopiers);
    make_barrier(emptied + 8 * threadIdx.x, kMultipliers / 32);
  }
  count_tiles(sorted, Work::kHeight, before);  // and all see the barriers
  const int64_t units = work.units(before);
  StageCount at_stage;
  // Of the 504 registers of a copier and two multipliers, the latter want most, for their sums.
  if (threadIdx.x < kCopiers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;\n");
    Ahead<Work, kCopiers / 8> ahead(work, before, units);
    while (ahead.has_step()) {
      const uint32_t barrier = 8 * at_stage.stage;
      wait_for(emptied + barrier, at_stage.parity ^ 1);  // at first they are
      ahead.copy_step(shared + at_stage.stage * kStageBytes);
      arrive_with_copies(filled + barrier);
      at_stage.next();
    }
    close_copies();
    wait_for_copies<0>();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;\n");
    const int warp = (threadIdx.x - kCopiers) / 32;
    const bool speaks = threadIdx.x % 32 == 0;  // for its warp
    const uint32_t in_a = shared + warp / 4 * kBlock, in_b = shared + kStageA;
    for (Cursor at = work.enter(before, blockIdx.x); at.unit < units;) {
      const Tile tile = work.tile(before, at);
      SumsOf<1, 32> sums = {};
      uint32_t last = 0;  // the barrier of the step before, which is still read
      for (int step = 0; step < tile.steps; ++step) {
        const uint32_t barrier = 8 * at_stage.stage, stage = at_stage.stage * kStageBytes;
        wait_for(filled + barrier, at_stage.parity);
        // Copies are ordinary writes, which the tensor cores see only behind a fence.
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        begin_step<T, Work::kTermsAlongA, Work::kTermsAlongB>(in_a + stage, in_b + stage, sums);
        wait_for_products<1>();
        if (speaks && step > 0) arrive(last);
        last = emptied + barrier;
        at_stage.next();
      }
      wait_for_products<0>();
      // The compiler, which takes sums to be there since the instruction, reads none before this.
#pragma unroll
      for (int j = 0; j < 32; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) asm volatile("" : "+f"(sums[0][j][c])::"memory");
      }
      if (speaks && tile.steps > 0) arrive(last);
      work.write(tile, sums, 16 * warp, 0);
      at = work.after(before, at, tile);
    }
  }
}

}  // namespace adjoint::experts::tiles

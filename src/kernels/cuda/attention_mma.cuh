// Products of 16-bit tiles by a warp's tensor cores (mma.sync), and how tiles come into shared
// memory for them. A tile is rows of kColumns elements; of a row's pieces of 16 bytes, each group
// of eight is permuted by the row's number, so that eight rows' pieces of one column lie in
// different banks. A warp multiplies strips of 16 rows: in `Sums` a thread has, of each eight
// columns, two neighbours in row lane / 4 and two in the row eight below.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/attention_tiles.cuh"

namespace adjoint::attention_tiles {

constexpr int kPiece = 8;  // elements of 16 bytes

template <int kColumns>
__device__ int place(int row, int piece) {
  static_assert(kColumns % 64 == 0);
  return row * kColumns + ((piece ^ (row & 7)) * kPiece);
}

#ifndef ADJOINT_KERNELS_ON_CPU  // a test has these in C++

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
// Sixteen bytes from memory, or zeros.
__device__ inline void fetch(void* to, const void* from, bool there) {
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void end_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kOpen>
__device__ void wait_for_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// Four 8 by 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_turned_matrices(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}

// c[16, 8] += a[16, 16] b[16, 8]
template <class T>
__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

#endif

// Two elements in a register, the first in its lower half.
template <class T>
__device__ uint32_t pair_of(float a, float b) {
  const T pair[2] = {narrow<T>(a), narrow<T>(b)};
  uint32_t bits;
  memcpy(&bits, pair, sizeof(bits));
  return bits;
}

// Rows [first, first + kRows) of a head; what is past the sequence or the head is zeros.
template <int kRows, int kColumns, int kThreads, class T>
__device__ void fetch_tile(T* tile, const HeadRows<const T>& from, int first, int length) {
  constexpr int kAcross = kColumns / kPiece;
#pragma unroll 4
  for (int i = threadIdx.x; i < kRows * kAcross; i += kThreads) {
    const int row = i / kAcross, piece = i % kAcross;
    const bool there = first + row < length && piece * kPiece < from.size;
    const T* at = from.data + (there ? (first + row) * from.row_step + piece * kPiece : 0);
    fetch(tile + place<kColumns>(row, piece), at, there);
  }
}

// What a warp has of kTall strips by kWidth columns.
template <int kTall, int kWidth>
using Sums = float[kTall][kWidth / 8][4];

// sums = rows . partners^T, of the strips of a tile from `row` on and all kPartners of another.
template <int kColumns, int kTall, int kPartners, class T>
__device__ void dots(Sums<kTall, kPartners>& sums, const T* rows, int row, const T* partners) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (auto& strip : sums)
#pragma unroll
    for (auto& four : strip) four[0] = four[1] = four[2] = four[3] = 0;
#pragma unroll
  for (int k = 0; k < kColumns / 16; ++k) {
    uint32_t a[kTall][4];
#pragma unroll
    for (int t = 0; t < kTall; ++t) {
      load_matrices(a[t], rows + place<kColumns>(row + 16 * t + lane % 16, 2 * k + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < kPartners / 16; ++n) {
      uint32_t b[4];
      load_matrices(
          b, partners + place<kColumns>(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int t = 0; t < kTall; ++t) {
        multiply<T>(sums[t][2 * n], a[t], b[0], b[1]);
        multiply<T>(sums[t][2 * n + 1], a[t], b[2], b[3]);
      }
    }
  }
}

// sums += weights . partners, where weights are Sums of their own, rounded to T.
template <int kColumns, int kTall, int kPartners, class T>
__device__ void add_rows(Sums<kTall, kColumns>& sums, const Sums<kTall, kPartners>& weights,
                         const T* partners) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kPartners / 16; ++k) {
    uint32_t a[kTall][4];
#pragma unroll
    for (int t = 0; t < kTall; ++t) {
      const auto &left = weights[t][2 * k], &right = weights[t][2 * k + 1];
      a[t][0] = pair_of<T>(left[0], left[1]);
      a[t][1] = pair_of<T>(left[2], left[3]);
      a[t][2] = pair_of<T>(right[0], right[1]);
      a[t][3] = pair_of<T>(right[2], right[3]);
    }
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      uint32_t b[4];
      load_turned_matrices(b, partners + place<kColumns>(16 * k + lane % 16, 2 * n + lane / 16));
#pragma unroll
      for (int t = 0; t < kTall; ++t) {
        multiply<T>(sums[t][2 * n], a[t], b[0], b[1]);
        multiply<T>(sums[t][2 * n + 1], a[t], b[2], b[3]);
      }
    }
  }
}

// f(strip, eight, element, row, column) of each number that a thread has.
template <int kTall, int kWidth, class F>
__device__ void each_sum(int row, const F& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < kTall; ++t)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        f(t, n, e, row + 16 * t + lane / 4 + e / 2 * 8, 8 * n + lane % 4 * 2 + e % 2);
}

// Each row times factor(strip, half): half 1 is eight rows below.
template <int kTall, int kWidth, class T, class F>
__device__ void store(const HeadRows<T>& to, int first, int length, const Sums<kTall, kWidth>& sums,
                      const F& factor) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < kTall; ++t)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + 16 * t + lane / 4 + 8 * half;
      if (row >= length) continue;
      T* at = to.data + row * to.row_step;
      const float by = factor(t, half);
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const int column = 8 * n + lane % 4 * 2;
        if (column >= to.size) continue;
        const uint32_t pair = pair_of<T>(sums[t][n][2 * half] * by, sums[t][n][2 * half + 1] * by);
        *reinterpret_cast<uint32_t*>(at + column) = pair;
      }
    }
}

}  // namespace adjoint::attention_tiles

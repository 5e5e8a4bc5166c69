// Products of experts' rows for every dtype and every stride: tiles of 64 x 64 results in shared
// memory, 4 x 4 of them for each thread. float32 and float64 come this way, and 16-bit rows that
// cannot be read 16 bytes at once.
#pragma once
#include "kernels/cuda/expert_sort.cuh"

namespace adjoint::experts::plain {

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kEach = 4;

template <class W>
struct Operands {
  W a[kDepth][kTile + 4], b[kDepth][kTile + 4];
};

// Sums of a(row, term) * b(column, term) over `terms`, 4 x 4 for each thread: rows from
// threadIdx.x / 16 * 4 on, columns from threadIdx.x % 16 * 4 on.
template <class W, class A, class B>
__device__ void multiply(Operands<W>& tile, int terms, const A& a, const B& b,
                         W (&sums)[kEach][kEach]) {
  const int row = threadIdx.x / 16 * kEach, column = threadIdx.x % 16 * kEach;
  for (int first = 0; first < terms; first += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int term = i % kDepth, line = i / kDepth;
      tile.a[term][line] = first + term < terms ? a(line, first + term) : W{0};
      tile.b[term][line] = first + term < terms ? b(line, first + term) : W{0};
    }
    __syncthreads();
#pragma unroll
    for (int term = 0; term < kDepth; ++term) {
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
#pragma unroll
        for (int c = 0; c < kEach; ++c) {
          sums[r][c] += tile.a[term][row + r] * tile.b[term][column + c];
        }
      }
    }
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    row_products(const __grid_constant__ RowProducts p, const T* x, const T* w, const T* bias,
                 T* y) {
  using W = typename Wide<T>::type;
  __shared__ Operands<W> tile;
  extern __shared__ int before[];
  count_tiles(p.sorted, kTile, before);
  const int columns = (p.out + kTile - 1) / kTile;
  const int row = threadIdx.x / 16 * kEach, column = threadIdx.x % 16 * kEach;
  const int64_t tiles = int64_t{before[p.sorted.experts]} * columns;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int rows_tile = static_cast<int>(t / columns), n0 = static_cast<int>(t % columns) * kTile;
    const int expert = expert_of(before, p.sorted.experts, rows_tile);
    const int first = p.sorted.starts[expert] + (rows_tile - before[expert]) * kTile;
    const int past = p.sorted.starts[expert + 1];
    const T* matrix = w + expert * p.w_expert;
    W sums[kEach][kEach] = {};
    multiply<W>(
        tile, p.in,
        [&](int line, int term) {
          if (first + line >= past) return W{0};
          const int r = p.sorted.order[first + line];
          return W{widen(x[(p.x_each ? r : p.sorted.token(r)) * p.x_step + term])};
        },
        [&](int line, int term) {
          if (n0 + line >= p.out) return W{0};
          return W{widen(matrix[(n0 + line) * p.w_out + term * p.w_in])};
        },
        sums);
    for (int r = 0; r < kEach; ++r) {
      if (first + row + r >= past) break;
      T* to = y + p.sorted.order[first + row + r] * p.y_step;
      for (int c = 0; c < kEach; ++c) {
        const int n = n0 + column + c;
        if (n >= p.out) break;
        if (bias) sums[r][c] += widen(bias[expert * p.bias_step + n]);
        to[n] = narrow<T>(sums[r][c]);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) row_sums(const __grid_constant__ RowSums s, const T* a,
                                                     const T* b, const void* addend, void* out) {
  using W = typename Wide<T>::type;
  __shared__ Operands<W> tile;
  const int columns = (s.q + kTile - 1) / kTile, lines = (s.p + kTile - 1) / kTile;
  const int row = threadIdx.x / 16 * kEach, column = threadIdx.x % 16 * kEach;
  const int64_t tiles = int64_t{s.sorted.experts} * lines * columns;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int expert = static_cast<int>(t / columns / lines);
    const int m0 = static_cast<int>(t / columns % lines) * kTile;
    const int n0 = static_cast<int>(t % columns) * kTile;
    const int first = s.sorted.starts[expert], past = s.sorted.starts[expert + 1];
    W sums[kEach][kEach] = {};
    multiply<W>(
        tile, past - first,
        [&](int line, int term) {
          if (m0 + line >= s.p) return W{0};
          const int r = s.sorted.order[first + term];
          return W{widen(a[(s.a_each ? r : s.sorted.token(r)) * s.a_step + m0 + line])};
        },
        [&](int line, int term) {
          if (n0 + line >= s.q) return W{0};
          const int r = s.sorted.order[first + term];
          return W{widen(b[(s.b_each ? r : s.sorted.token(r)) * s.b_step + n0 + line])};
        },
        sums);
    for (int r = 0; r < kEach; ++r) {
      const int m = m0 + row + r;
      if (m >= s.p) break;
      for (int c = 0; c < kEach; ++c) {
        const int n = n0 + column + c;
        if (n >= s.q) break;
        W sum = sums[r][c];
        if (addend) {
          sum += load_float<W>(addend, s.out, expert * s.addend_expert + m * s.addend_step + n);
        }
        store_float(out, s.out, expert * s.to_expert + m * s.to_step + n, sum);
      }
    }
  }
}

}  // namespace adjoint::experts::plain

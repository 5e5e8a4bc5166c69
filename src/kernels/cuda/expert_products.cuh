// The rows of experts times their matrices, in tiles: the work that the kernels of expert_mma.cuh
// and expert_wgmma.cuh are given for expert_linear.
#pragma once
#include "kernels/cuda/expert_tiles.cuh"

namespace adjoint::experts::tiles {

// y[row] = W[expert] x[row]: a tile is 128 rows of an expert by 256 results.
template <class T, bool kTransposed>
struct Products {
  static constexpr bool kTermsAlongA = true, kTermsAlongB = !kTransposed;
  static constexpr int kHeight = kRows;  // what `before` counts: tiles of so many rows
  RowProducts p;
  const T *x, *w, *bias;
  T* y;

  // Where a thread copies from: rows, gathered, and lines of the matrix.
  template <int kLines>
  struct Source {
    const T* rows[kRows / kLines];
    const T* matrix;
    unsigned is_row;           // bits
    int bytes[kColumns / 64];  // of a chunk; of 0, nothing is read wherever it would be
  };

  __device__ int64_t units(const int* before) const {
    return int64_t{before[p.sorted.experts]} * ((p.out + kColumns - 1) / kColumns);
  }
  __device__ Cursor enter(const int*, int64_t unit) const { return {unit, 0}; }
  __device__ Cursor after(const int*, Cursor at, const Tile&) const {
    return {at.unit + gridDim.x, 0};
  }
  __device__ Tile tile(const int* before, Cursor at) const {
    const int columns = (p.out + kColumns - 1) / kColumns;
    const int64_t t = at.unit;
    const int rows_tile = static_cast<int>(t / columns);
    const int expert = expert_of(before, p.sorted.experts, rows_tile);
    return {.expert = expert,
            .first = p.sorted.starts[expert] + (rows_tile - before[expert]) * kRows,
            .past = p.sorted.starts[expert + 1],
            .m0 = 0,
            .n0 = static_cast<int>(t % columns) * kColumns,
            .steps = (p.in + kTerms - 1) / kTerms};
  }
  template <int kLines>
  __device__ Source<kLines> source(const Tile& t) const {
    Source<kLines> s;
    s.is_row = 0;
#pragma unroll
    for (int i = 0; i < kRows / kLines; ++i) {
      const int at = t.first + own_line() + kLines * i;
      const int row = at < t.past ? p.sorted.order[at] : 0;
      s.rows[i] = x + (p.x_each ? row : p.sorted.token(row)) * p.x_step + own_chunk() * kElements;
      s.is_row |= (at < t.past) << i;
    }
    s.matrix = w + t.expert * p.w_expert;
    if constexpr (kTransposed) {  // lines of 64 results of a term
      const int n = t.n0 + own_chunk() * kElements;
      s.matrix += own_line() * p.w_in + n;
#pragma unroll
      for (int i = 0; i < kColumns / 64; ++i) s.bytes[i] = n + 64 * i < p.out ? kChunk : 0;
    } else {
      s.matrix += (t.n0 + own_line()) * p.w_out + own_chunk() * kElements;
      s.bytes[0] = p.out - (t.n0 + own_line());  // the lines that there are
    }
    return s;
  }
  __device__ bool whole_chunks() const { return p.in % kElements == 0; }
  template <bool kWhole, int kLines>
  __device__ void copy(const Source<kLines>& s, const Tile&, int step, uint32_t stage) const {
    const uint32_t to = own_place(stage);
    const int term = step * kTerms, bytes = bytes_within(term + own_chunk() * kElements, p.in);
#pragma unroll
    for (int i = 0; i < kRows / kLines; ++i) {
      copy_chunk<kWhole>(to + i * kLines * kLine, s.rows[i] + term, s.is_row >> i & 1 ? bytes : 0);
    }
    if constexpr (kTransposed) {
#pragma unroll
      for (int line = 0; line < kTerms; line += kLines) {
        const T* from = s.matrix + (term + line) * p.w_in;
        const bool is_term = term + line + own_line() < p.in;
#pragma unroll
        for (int i = 0; i < kColumns / 64; ++i) {
          copy_chunk<kWhole>(to + kStageA + i * kBlock + line * kLine, from + 64 * i,
                             is_term ? s.bytes[i] : 0);
        }
      }
    } else {
      const T* from = s.matrix + term;
#pragma unroll
      for (int line = 0; line < kColumns; line += kLines, from += kLines * p.w_out) {
        copy_chunk<kWhole>(to + kStageA + line * kLine, from, line < s.bytes[0] ? bytes : 0);
      }
    }
  }
  // Quads of lanes exchange what they have, so that each lane writes 8 neighbours of a row.
  template <int kDown, int kAcross>
  __device__ void write(const Tile& t, SumsOf<kDown, kAcross>& sums, int first_row,
                        int first_column) const {
    const int lane = threadIdx.x % 32, quad = lane % 4;
    const int column = t.n0 + first_column;
    if (bias) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int n = column + 8 * j + 2 * quad + c;
          const float shift = n < p.out ? widen(bias[t.expert * p.bias_step + n]) : 0;
#pragma unroll
          for (int i = 0; i < kDown; ++i) sums[i][j][c] += shift, sums[i][j][2 + c] += shift;
        }
      }
    }
    // Without a rest of columns there are no branches, and all lines are on their way together.
    if (t.n0 + kColumns <= p.out) {
      write_lines<false>(t, sums, first_row, column);
    } else {
      write_lines<true>(t, sums, first_row, column);
    }
  }
  template <bool kRest, int kDown, int kAcross>
  __device__ void write_lines(const Tile& t, const SumsOf<kDown, kAcross>& sums, int first_row,
                              int column) const {
    const int lane = threadIdx.x % 32, quad = lane % 4;
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = t.first + first_row + 16 * i + lane / 4 + 8 * half;
        const bool is_row = at < t.past;
        T* to = y + (is_row ? p.sorted.order[at] : 0) * p.y_step;
#pragma unroll
        for (int group = 0; group < kAcross / 4; ++group) {  // four times 8 columns, 8 a lane
          uint32_t words[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float* pair = &sums[i][4 * group + j][2 * half];
            words[j] = pack(pair[0], pair[1]);
          }
          transpose(words, quad);
          const int n = column + 32 * group + 8 * quad;
          if (!kRest || n + kElements <= p.out) {
            const uint4 all = make_uint4(words[0], words[1], words[2], words[3]);
            if (is_row) *reinterpret_cast<uint4*>(to + n) = all;
          } else if (is_row) {
            for (int c = 0; n + c < p.out; ++c) {
              const uint32_t low = c & 2 ? words[1] : words[0], high = c & 2 ? words[3] : words[2];
              reinterpret_cast<uint16_t*>(to)[n + c] =
                  static_cast<uint16_t>((c & 4 ? high : low) >> c % 2 * 16);
            }
          }
        }
      }
    }
  }

  // Four words of four lanes: word i of lane j becomes word j of lane i. First pairs of words
  // between pairs of lanes, then words.
  __device__ static void transpose(uint32_t (&w)[4], int quad) {
    trade(w[0], w[2], quad & 2, 2);
    trade(w[1], w[3], quad & 2, 2);
    trade(w[0], w[1], quad & 1, 1);
    trade(w[2], w[3], quad & 1, 1);
  }
  // Between lanes `by` apart: the upper's first for the lower's second.
  __device__ static void trade(uint32_t& first, uint32_t& second, bool upper, int by) {
    const uint32_t got = __shfl_xor_sync(~0u, upper ? first : second, by);
    (upper ? first : second) = got;
  }
  __device__ static uint32_t pack(float low, float high) {
    if constexpr (std::is_same_v<T, __half>) {
      const __half2 both = __floats2half2_rn(low, high);
      return __half_as_ushort(both.x) | static_cast<uint32_t>(__half_as_ushort(both.y)) << 16;
    } else {
      const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
      return __bfloat16_as_ushort(both.x) | static_cast<uint32_t>(__bfloat16_as_ushort(both.y))
                                                << 16;
    }
  }
};

}  // namespace adjoint::experts::tiles

// Products of experts' 16-bit rows by tensor cores. A block makes tiles of 128 x 256 results, its
// 8 warps 64 x 64 each, and takes one tile after another of a list that only the device knows the
// length of. Steps of 64 terms are copied ahead into kStages of shared memory, also across the end
// of a tile: while a tile is written, the next is on its way.
//
// Both operands lie in shared memory in lines of 128 bytes whose 16-byte chunks are permuted by
// their line (chunk ^ line % 8), which is wgmma's 128-byte swizzle, too. A line holds either 64
// terms of one row of results ("terms run along lines"), or 64 results of one term, with 64 lines
// for each 64 results; ldmatrix transposes the latter. So weights are read as they lie, transposed
// or not, and rows are gathered by the copies.
#pragma once
#include "kernels/cuda/expert_sort.cuh"

namespace adjoint::experts::tiles {

constexpr int kRows = 128, kColumns = 256, kTerms = 64, kStages = 3, kThreads = 256;
constexpr int kLine = 128, kChunk = 16, kBlock = kTerms * kLine;  // bytes; of 64 results' terms
constexpr int kStageA = kRows * kLine, kStageBytes = (kRows + kColumns) * kLine;
constexpr int kElements = kChunk / 2;  // of a chunk
static_assert(kRows * kLine == kRows / 64 * kBlock);

inline size_t shared_bytes(int64_t experts) { return kStages * kStageBytes + 4 * (experts + 1); }

// ---- the instructions ----

// Copies `bytes` of 16, and zeros for the rest.
__device__ inline void copy_chunk(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kOpen>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kOpen) : "memory");
}
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

// ---- one step: 64 terms of a tile that is in shared memory ----

// Results of a warp: 4 x 16 rows by 8 x 8 columns. A thread has, of each 16 x 8, row lane / 4 and
// the row 8 below, columns 2 * (lane % 4) and the next.
using Sums = float[4][8][4];

template <class T, bool kTermsAlongA, bool kTermsAlongB>
__device__ void multiply_step(uint32_t stage, Sums& sums) {
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

// ---- copies into shared memory ----

// A thread copies one chunk of every 32nd line.
__device__ inline int own_chunk() { return threadIdx.x % 8; }
__device__ inline int own_line() { return threadIdx.x / 8; }
__device__ inline uint32_t place(uint32_t begin, int line) {
  return begin + line * kLine + ((own_chunk() ^ (line % 8)) * kChunk);
}
// The bytes of a chunk that are within so many elements, of which the chunk begins at `first`.
__device__ inline int bytes_within(int first, int count) {
  return ::max(0, ::min(kChunk, 2 * (count - first)));
}

// ---- the list of tiles, seen twice: by who copies ahead and by who multiplies ----

struct Tile {
  int expert = 0;
  int first = 0, past = 0;  // rows, in the order of experts
  int m0 = 0, n0 = 0;       // where results begin
  int steps = 0;
};

// y[row] = W[expert] x[row]: a tile is 128 rows of an expert by 256 results.
template <class T, bool kTransposed>
struct Products {
  static constexpr bool kTermsAlongA = true, kTermsAlongB = !kTransposed;
  RowProducts p;
  const T *x, *w, *bias;
  T* y;

  // Where a thread copies from: 4 of the rows, gathered.
  struct Source {
    const T* rows[kRows / 32];
    const T* matrix;
    int n0;
  };

  __device__ int64_t tiles(const int* before) const {
    return int64_t{before[p.sorted.experts]} * ((p.out + kColumns - 1) / kColumns);
  }
  __device__ Tile tile(const int* before, int64_t t) const {
    const int columns = (p.out + kColumns - 1) / kColumns;
    const int rows_tile = static_cast<int>(t / columns);
    const int expert = expert_of(before, p.sorted.experts, rows_tile);
    return {.expert = expert,
            .first = p.sorted.starts[expert] + (rows_tile - before[expert]) * kRows,
            .past = p.sorted.starts[expert + 1],
            .m0 = 0,
            .n0 = static_cast<int>(t % columns) * kColumns,
            .steps = (p.in + kTerms - 1) / kTerms};
  }
  __device__ Source source(const Tile& t) const {
    Source s;
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      const int at = t.first + own_line() + 32 * i;
      const int row = at < t.past ? p.sorted.order[at] : -1;
      s.rows[i] = row < 0 ? nullptr : x + (p.x_each ? row : p.sorted.token(row)) * p.x_step;
    }
    s.matrix = w + t.expert * p.w_expert;
    s.n0 = t.n0;
    return s;
  }
  __device__ void copy(const Source& s, const Tile&, int step, uint32_t stage) const {
    const int term = step * kTerms + own_chunk() * kElements;
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      const int bytes = s.rows[i] ? bytes_within(term, p.in) : 0;
      copy_chunk(place(stage, own_line() + 32 * i), bytes ? s.rows[i] + term : x, bytes);
    }
#pragma unroll
    for (int i = 0; i < kColumns / 32; ++i) {
      const T* from = s.matrix;
      int bytes = 0;
      if constexpr (kTransposed) {  // lines of 64 results of a term
        const int line = own_line() + 32 * (i % 2), k = step * kTerms + line;
        const int n = s.n0 + i / 2 * 64 + own_chunk() * kElements;
        if (k < p.in) bytes = bytes_within(n, p.out);
        from += k * p.w_in + n;
        copy_chunk(place(stage + kStageA + i / 2 * kBlock, line), bytes ? from : w, bytes);
      } else {
        const int n = s.n0 + own_line() + 32 * i;
        if (n < p.out) bytes = bytes_within(term, p.in);
        from += n * p.w_out + term;
        copy_chunk(place(stage + kStageA, own_line() + 32 * i), bytes ? from : w, bytes);
      }
    }
  }
  // Quads of lanes exchange what they have, so that each lane writes 8 neighbours of a row.
  __device__ void write(const Tile& t, Sums& sums) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane % 4;
    const int column = t.n0 + warp % 4 * 64;
    if (bias) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int n = column + 8 * j + 2 * quad + c;
          const float shift = n < p.out ? widen(bias[t.expert * p.bias_step + n]) : 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i][j][c] += shift, sums[i][j][2 + c] += shift;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = t.first + warp / 4 * 64 + 16 * i + lane / 4 + 8 * half;
        const bool is_row = at < t.past;
        T* to = is_row ? y + p.sorted.order[at] * p.y_step : nullptr;
#pragma unroll
        for (int group = 0; group < 2; ++group) {  // of four times 8 columns, one for each lane
          uint32_t mine[4], all[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float* pair = &sums[i][4 * group + j][2 * half];
            mine[j] = pack(pair[0], pair[1]);
          }
          exchange(mine, all, quad);
          const int n = column + 32 * group + 8 * quad;
          if (!is_row || n >= p.out) continue;
          if (n + kElements <= p.out) {
            *reinterpret_cast<uint4*>(to + n) = make_uint4(all[0], all[1], all[2], all[3]);
          } else {
            for (int c = 0; n + c < p.out; ++c) {
              reinterpret_cast<uint16_t*>(to)[n + c] =
                  static_cast<uint16_t>(pick(all, c / 2) >> c % 2 * 16);
            }
          }
        }
      }
    }
  }

  __device__ static uint32_t pick(const uint32_t (&w)[4], int i) {
    const uint32_t low = i & 1 ? w[1] : w[0], high = i & 1 ? w[3] : w[2];
    return i & 2 ? high : low;
  }
  // all[i] = what lane i of the quad has as its own [quad].
  __device__ static void exchange(const uint32_t (&mine)[4], uint32_t (&all)[4], int quad) {
    uint32_t got[4];
    got[0] = pick(mine, quad);
#pragma unroll
    for (int by = 1; by < 4; ++by) got[by] = __shfl_xor_sync(~0u, pick(mine, quad ^ by), by);
#pragma unroll
    for (int i = 0; i < 4; ++i) all[i] = pick(got, i ^ quad);
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

// out[expert] = sum over its rows of a[row] b[row]': a tile is 128 x 256 of a matrix, and its terms
// are the rows.
template <class T>
struct RowSumTiles {
  static constexpr bool kTermsAlongA = false, kTermsAlongB = false;
  RowSums s;
  const T *a, *b;
  const void* addend;
  void* out;
  bool in_pairs;  // results are float32, and two of them lie where 8 bytes can be written

  // The rows of the next step, read one step ahead: where they lie is only known from memory.
  struct Source {
    int rows[kTerms / 32];
  };

  __device__ int64_t tiles(const int*) const {
    return int64_t{s.sorted.experts} * ((s.p + kRows - 1) / kRows) *
           ((s.q + kColumns - 1) / kColumns);
  }
  __device__ Tile tile(const int*, int64_t t) const {
    const int columns = (s.q + kColumns - 1) / kColumns, lines = (s.p + kRows - 1) / kRows;
    const int expert = static_cast<int>(t / columns / lines);
    const int first = s.sorted.starts[expert], past = s.sorted.starts[expert + 1];
    return {.expert = expert,
            .first = first,
            .past = past,
            .m0 = static_cast<int>(t / columns % lines) * kRows,
            .n0 = static_cast<int>(t % columns) * kColumns,
            .steps = (past - first + kTerms - 1) / kTerms};
  }
  __device__ void find_rows(Source& source, const Tile& t, int step) const {
#pragma unroll
    for (int i = 0; i < kTerms / 32; ++i) {
      const int at = t.first + step * kTerms + own_line() + 32 * i;
      source.rows[i] = at < t.past ? s.sorted.order[at] : -1;
    }
  }
  __device__ Source source(const Tile& t) const {
    Source source;
    find_rows(source, t, 0);
    return source;
  }
  __device__ void copy(Source& source, const Tile& t, int step, uint32_t stage) const {
#pragma unroll
    for (int i = 0; i < kTerms / 32; ++i) {
      const int row = source.rows[i], line = own_line() + 32 * i;
      const int token = row < 0 ? 0 : s.sorted.token(row);
      const T* from_a = a + (s.a_each ? row : token) * s.a_step;
      const T* from_b = b + (s.b_each ? row : token) * s.b_step;
#pragma unroll
      for (int block = 0; block < kRows / 64; ++block) {
        const int m = t.m0 + 64 * block + own_chunk() * kElements;
        const int bytes = row < 0 ? 0 : bytes_within(m, s.p);
        copy_chunk(place(stage + block * kBlock, line), bytes ? from_a + m : a, bytes);
      }
#pragma unroll
      for (int block = 0; block < kColumns / 64; ++block) {
        const int n = t.n0 + 64 * block + own_chunk() * kElements;
        const int bytes = row < 0 ? 0 : bytes_within(n, s.q);
        copy_chunk(place(stage + kStageA + block * kBlock, line), bytes ? from_b + n : b, bytes);
      }
    }
    find_rows(source, t, step + 1);
  }
  __device__ void write(const Tile& t, Sums& sums) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int m = t.m0 + warp / 4 * 64 + 16 * i + lane / 4 + 8 * half;
        if (m >= s.p) continue;
        const int64_t to = t.expert * s.to_expert + m * s.to_step;
        const int64_t before = t.expert * s.addend_expert + m * s.addend_step;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int n = t.n0 + warp % 4 * 64 + 8 * j + lane % 4 * 2;
          float* pair = &sums[i][j][2 * half];
          if (in_pairs) {
            if (n >= s.q) continue;
            if (addend) {
              const auto was =
                  *reinterpret_cast<const float2*>(static_cast<const float*>(addend) + before + n);
              pair[0] += was.x, pair[1] += was.y;
            }
            *reinterpret_cast<float2*>(static_cast<float*>(out) + to + n) =
                make_float2(pair[0], pair[1]);
            continue;
          }
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            if (n + c >= s.q) continue;
            if (addend) pair[c] += load_float<float>(addend, s.out, before + n + c);
            store_float(out, s.out, to + n + c, pair[c]);
          }
        }
      }
    }
  }
};

// The one who copies ahead: it knows the tile and the step that come next, and is kStages - 1 steps
// before whoever multiplies.
template <class Work>
struct Ahead {
  const Work& work;
  const int* before;
  int64_t next_tile, tiles;
  Tile tile = {};
  typename Work::Source source = {};
  int step = 0, stage = 0;

  __device__ Ahead(const Work& work, const int* before, int64_t tiles)
      : work(work), before(before), next_tile(blockIdx.x), tiles(tiles) {}

  __device__ void copy_step(uint32_t shared) {
    while (step == tile.steps && next_tile < tiles) {  // a tile without steps is nothing to copy
      tile = work.tile(before, next_tile);
      next_tile += gridDim.x;
      step = 0;
      if (tile.steps > 0) source = work.source(tile);
    }
    if (step < tile.steps) work.copy(source, tile, step++, shared + stage * kStageBytes);
    close_copies();  // an empty group counts, too
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
};

template <class T, class Work>
__global__ void __launch_bounds__(kThreads, 1)
    multiply_tiles(const __grid_constant__ Work work, const __grid_constant__ Sorted sorted) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  int* before = reinterpret_cast<int*>(shared_memory + kStages * kStageBytes);
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory));
  count_tiles(sorted, kRows, before);
  const int64_t tiles = work.tiles(before);
  Ahead<Work> ahead(work, before, tiles);
  for (int i = 0; i + 1 < kStages; ++i) ahead.copy_step(shared);
  int stage = 0;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const Tile tile = work.tile(before, t);
    Sums sums = {};
    for (int step = 0; step < tile.steps; ++step) {
      wait_for_copies<kStages - 2>();
      __syncthreads();  // this step is there for all, and nobody reads the one before it any more
      ahead.copy_step(shared);
      multiply_step<T, Work::kTermsAlongA, Work::kTermsAlongB>(shared + stage * kStageBytes, sums);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    work.write(tile, sums);
  }
}

template <class T, class Work>
Launch launch_of(const Work& work, const Sorted& sorted, int64_t most_tiles, cudaStream_t stream) {
  const auto kernel = multiply_tiles<T, Work>;
  const size_t bytes = shared_bytes(sorted.experts);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             "expert_linear");
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(multiprocessors(), most_tiles));
  return [=] { kernel<<<blocks, kThreads, bytes, stream>>>(work, sorted); };
}

// Whether a block of this kernel fits the GPU, whose processors may be older than this kernel is
// made for.
inline bool fits_device(int64_t experts) {
  int device = 0, most = 0, major = 0;
  check_cuda(cudaGetDevice(&device), "expert_linear");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "expert_linear");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "expert_linear");
  return major >= 8 && static_cast<int64_t>(shared_bytes(experts)) <= most;
}

}  // namespace adjoint::experts::tiles

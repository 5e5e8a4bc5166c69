// Products of experts' 16-bit rows by tensor cores. A block makes tiles of 128 x 256 results and
// takes one tile after another of a list that only the device knows the length of. Steps of 64
// terms are copied ahead into stages of shared memory, also across the end of a tile: while a tile
// is written, the next is on its way.
//
// What is multiplied (Products, RowSumTiles: where tiles are, how they are copied and written) is
// apart from the instructions that multiply: mma.sync here, wgmma in expert_wgmma.cuh.
//
// Both operands lie in shared memory in lines of 128 bytes whose 16-byte chunks are permuted by
// their line (chunk ^ line % 8), which is wgmma's 128-byte swizzle, too. A line holds either 64
// terms of one row of results ("terms run along lines"), or 64 results of one term, with 64 lines
// for each 64 results; ldmatrix transposes the latter. So weights are read as they lie, transposed
// or not, and rows are gathered by the copies.
#pragma once
#include "kernels/cuda/expert_sort.cuh"

namespace adjoint::experts::tiles {

constexpr int kRows = kExpertTileRows, kColumns = kExpertTileColumns, kTerms = kExpertTileTerms;
constexpr int kThreads = 256;
constexpr int kLine = 128, kChunk = 16, kBlock = kTerms * kLine;  // bytes; of 64 results' terms
constexpr int kStageA = kRows * kLine, kStageBytes = (kRows + kColumns) * kLine;
constexpr int kElements = kChunk / 2;  // of a chunk
static_assert(kRows * kLine == kRows / 64 * kBlock);

inline size_t shared_bytes(int stages, int64_t experts) {
  return stages * kStageBytes + 4 * (experts + 1);
}

// ---- the instructions ----

// Copies `bytes` of 16, and zeros for the rest. Where chunks are whole, `bytes` is 16 or 0, and
// that is one instruction; any other number is several.
template <bool kWhole>
__device__ void copy_chunk(uint32_t to, const void* from, int bytes) {
  if constexpr (kWhole) {
    asm volatile(
        "{ .reg .pred none; setp.eq.s32 none, %2, 0;\n"
        "cp.async.cg.shared.global [%0], [%1], 16, none; }\n" ::"r"(to),
        "l"(from), "r"(bytes)
        : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  }
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

// Results of a warp: kDown x 16 rows by kAcross x 8 columns. A thread has, of each 16 x 8, row
// lane / 4 and the row 8 below, columns 2 * (lane % 4) and the next.
template <int kDown, int kAcross>
using SumsOf = float[kDown][kAcross][4];

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

// ---- copies into shared memory ----

// Threads copy kLines at once, and each a chunk of every so-manieth line, so its places lie as far
// apart as the lines do. A step has few cycles to spare: whatever a tile knows of its copies is
// kept for all of its steps.
__device__ inline int own_chunk() { return threadIdx.x % 8; }
__device__ inline int own_line() { return threadIdx.x / 8; }
__device__ inline uint32_t own_place(uint32_t stage) {
  return stage + own_line() * kLine + ((own_chunk() ^ (own_line() % 8)) * kChunk);
}
// The bytes of a chunk that are within so many elements, of which the chunk begins at `first`. That
// matters where a chunk is of terms; what lies behind the last result of a row makes results that
// nobody writes.
__device__ inline int bytes_within(int first, int count) {
  return ::max(0, ::min(kChunk, 2 * (count - first)));
}

// ---- the list of tiles, seen twice: by who copies ahead and by who multiplies ----

struct Tile {
  int expert = 0;
  int first = 0, past = 0;  // rows, in the order of experts
  int m0 = 0, n0 = 0;       // where results begin
  int steps = 0;
  float* part = nullptr;  // where the sums go if others have the rest of the terms
};

// A place in the list: tiles come in units, which blocks take in turns, and a unit may hold more
// than one tile, told apart by the step that they begin with.
struct Cursor {
  int64_t unit;
  int step;
};

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

// out[expert] = sum over its rows of a[row] b[row]': a tile is 128 x 256 of a matrix, and its terms
// are the rows. Experts have few tiles and many rows, so the steps of all experts, one after
// another, are cut into `groups` of equal length, and a unit is a group's share of a tile of every
// expert that the group meets. However unequal the experts, units are equal; and the tiles of a
// group read the same rows at the same time, from the L2 cache. The sums of an expert that is cut
// lie apart until add_parts adds them in the order of groups. Cuts follow from shapes and choices
// alone, so results are the same bits on every GPU.
template <class T>
struct RowSumTiles {
  static constexpr bool kTermsAlongA = false, kTermsAlongB = false;
  static constexpr int kHeight = kTerms;
  RowSums s;
  const T *a, *b;
  const void* addend;
  void* out;
  bool in_pairs;  // results are float32, and two of them lie where 8 bytes can be written
  int groups;
  float* parts;  // two tiles for each unit: of an expert cut before the group, and after it

  // The rows of the next step, read one step ahead: where they lie is only known from memory.
  template <int kLines>
  struct Source {
    int rows[kTerms / kLines];
    int bytes_a[kRows / 64], bytes_b[kColumns / 64];  // of a chunk
  };

  __device__ int lines() const { return (s.p + kRows - 1) / kRows; }
  __device__ int columns() const { return (s.q + kColumns - 1) / kColumns; }
  __device__ int64_t units(const int*) const { return int64_t{groups} * lines() * columns(); }
  __device__ int group_of(int64_t unit) const {
    return static_cast<int>(unit / (lines() * columns()));
  }
  // The first step of a group, and the group that has a step.
  __device__ int begin_of(const int* before, int group) const {
    return static_cast<int>(int64_t{before[s.sorted.experts]} * group / groups);
  }
  __device__ int group_with(const int* before, int step) const {
    return static_cast<int>((int64_t{step + 1} * groups - 1) / before[s.sorted.experts]);
  }
  __device__ float* part(int64_t unit, bool cut_before) const {
    return parts + (2 * unit + (cut_before ? 0 : 1)) * (kRows * kColumns);
  }

  __device__ Cursor enter(const int* before, int64_t unit) const {
    while (unit < units(before)) {  // a group may be without steps
      const int group = group_of(unit), first = begin_of(before, group);
      if (first < begin_of(before, group + 1)) return {unit, first};
      unit += gridDim.x;
    }
    return {unit, 0};
  }
  __device__ Cursor after(const int* before, Cursor at, const Tile& t) const {
    const int next = at.step + t.steps;
    if (next < begin_of(before, group_of(at.unit) + 1)) return {at.unit, next};
    return enter(before, at.unit + gridDim.x);
  }
  __device__ Tile tile(const int* before, Cursor at) const {
    const int expert = expert_of(before, s.sorted.experts, at.step);
    const int end = begin_of(before, group_of(at.unit) + 1), past = ::min(end, before[expert + 1]);
    const bool cut_before = at.step > before[expert], cut_after = past < before[expert + 1];
    return {.expert = expert,
            .first = s.sorted.starts[expert] + (at.step - before[expert]) * kTerms,
            .past = s.sorted.starts[expert + 1],
            .m0 = static_cast<int>(at.unit / columns() % lines()) * kRows,
            .n0 = static_cast<int>(at.unit % columns()) * kColumns,
            .steps = past - at.step,
            .part = cut_before || cut_after ? part(at.unit, cut_before) : nullptr};
  }
  template <int kLines>
  __device__ void find_rows(Source<kLines>& source, const Tile& t, int step) const {
#pragma unroll
    for (int i = 0; i < kTerms / kLines; ++i) {
      const int at = t.first + step * kTerms + own_line() + kLines * i;
      source.rows[i] = at < t.past ? s.sorted.order[at] : -1;
    }
  }
  template <int kLines>
  __device__ Source<kLines> source(const Tile& t) const {
    Source<kLines> source;
    find_rows(source, t, 0);
    const int m = t.m0 + own_chunk() * kElements, n = t.n0 + own_chunk() * kElements;
#pragma unroll
    for (int i = 0; i < kRows / 64; ++i) source.bytes_a[i] = m + 64 * i < s.p ? kChunk : 0;
#pragma unroll
    for (int i = 0; i < kColumns / 64; ++i) source.bytes_b[i] = n + 64 * i < s.q ? kChunk : 0;
    return source;
  }
  __device__ bool whole_chunks() const { return true; }
  template <bool kWhole, int kLines>
  __device__ void copy(Source<kLines>& source, const Tile& t, int step, uint32_t stage) const {
    constexpr int kEach = kTerms / kLines;
    const T *from_a[kEach], *from_b[kEach];
    bool is_row[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      is_row[i] = source.rows[i] >= 0;
      const int row = is_row[i] ? source.rows[i] : 0, token = s.sorted.token(row);
      from_a[i] = a + t.m0 + own_chunk() * kElements + (s.a_each ? row : token) * s.a_step;
      from_b[i] = b + t.n0 + own_chunk() * kElements + (s.b_each ? row : token) * s.b_step;
    }
    find_rows(source, t, step + 1);  // before the copies: loads come back in their order
    const uint32_t to = own_place(stage);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int block = 0; block < kRows / 64; ++block) {
        copy_chunk<kWhole>(to + block * kBlock + i * kLines * kLine, from_a[i] + 64 * block,
                           is_row[i] ? source.bytes_a[block] : 0);
      }
#pragma unroll
      for (int block = 0; block < kColumns / 64; ++block) {
        copy_chunk<kWhole>(to + kStageA + block * kBlock + i * kLines * kLine,
                           from_b[i] + 64 * block, is_row[i] ? source.bytes_b[block] : 0);
      }
    }
  }
  template <int kDown, int kAcross>
  __device__ void write(const Tile& t, SumsOf<kDown, kAcross>& sums, int first_row,
                        int first_column) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int line = first_row + 16 * i + lane / 4 + 8 * half;
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          const int column = first_column + 8 * j + lane % 4 * 2;
          const float* pair = &sums[i][j][2 * half];
          const float2 two = make_float2(pair[0], pair[1]);
          if (t.part) {
            *reinterpret_cast<float2*>(t.part + line * kColumns + column) = two;
          } else {
            write_pair(t.expert, t.m0 + line, t.n0 + column, two);
          }
        }
      }
    }
  }
  __device__ void write_pair(int expert, int m, int n, float2 sum) const {
    if (m >= s.p || n >= s.q) return;
    const int64_t to = expert * s.to_expert + m * s.to_step + n;
    const int64_t from = expert * s.addend_expert + m * s.addend_step + n;
    if (in_pairs) {
      if (addend) {
        const auto was = *reinterpret_cast<const float2*>(static_cast<const float*>(addend) + from);
        sum.x += was.x, sum.y += was.y;
      }
      *reinterpret_cast<float2*>(static_cast<float*>(out) + to) = sum;
      return;
    }
    if (addend) sum.x += load_float<float>(addend, s.out, from);
    store_float(out, s.out, to, sum.x);
    if (n + 1 >= s.q) return;
    if (addend) sum.y += load_float<float>(addend, s.out, from + 1);
    store_float(out, s.out, to + 1, sum.y);
  }
};

// Adds what groups have of the experts that are cut, and writes the ones without rows: a block has
// kPartRows of a tile.
constexpr int kPartRows = 16;
template <class T>
__global__ void __launch_bounds__(kThreads) add_parts(const __grid_constant__ RowSumTiles<T> work) {
  extern __shared__ int steps_before[];
  const Sorted& sorted = work.s.sorted;
  count_tiles(sorted, kTerms, steps_before);
  const int tiles = work.lines() * work.columns();
  const int expert = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int begin = steps_before[expert], end = steps_before[expert + 1];
  const int first = begin < end ? work.group_with(steps_before, begin) : 0;
  const int last = begin < end ? work.group_with(steps_before, end - 1) : -1;
  if (first == last) return;  // one group has all of it, and has written it
  constexpr int kEach = kPartRows * kColumns / 2 / kThreads;  // pairs of a thread
  const int line = blockIdx.y * kPartRows + threadIdx.x / (kColumns / 2);
  const int column = threadIdx.x % (kColumns / 2) * 2;
  constexpr int kNext = kThreads / (kColumns / 2);  // lines from a pair to the next
  float2 sums[kEach] = {};
  for (int group = first; group <= last; ++group) {
    const int from = work.begin_of(steps_before, group);
    if (from == work.begin_of(steps_before, group + 1)) continue;  // nothing to add
    const float* part =
        work.part(int64_t{group} * tiles + tile, from > begin) + line * kColumns + column;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const auto two = *reinterpret_cast<const float2*>(part + i * kNext * kColumns);
      sums[i].x += two.x, sums[i].y += two.y;
    }
  }
  const int m = tile / work.columns() * kRows + line, n = tile % work.columns() * kColumns + column;
#pragma unroll
  for (int i = 0; i < kEach; ++i) work.write_pair(expert, m + i * kNext, n, sums[i]);
}

// The one who copies: it knows the tile and the step that come next, ahead of whoever multiplies.
template <class Work, int kLines>
struct Ahead {
  const Work& work;
  const int* before;
  int64_t units;
  Cursor next;
  Tile tile = {};
  typename Work::template Source<kLines> source = {};
  int step = 0;

  __device__ Ahead(const Work& work, const int* before, int64_t units)
      : work(work), before(before), units(units), next(work.enter(before, blockIdx.x)) {}

  __device__ bool has_step() {
    while (step == tile.steps && next.unit < units) {  // a tile without steps is nothing to copy
      tile = work.tile(before, next);
      next = work.after(before, next, tile);
      step = 0;
      if (tile.steps > 0) source = work.template source<kLines>(tile);
    }
    return step < tile.steps;
  }
  __device__ void copy_step(uint32_t stage) {
    if (work.whole_chunks()) {
      work.template copy<true>(source, tile, step++, stage);
    } else {
      work.template copy<false>(source, tile, step++, stage);
    }
  }
};

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

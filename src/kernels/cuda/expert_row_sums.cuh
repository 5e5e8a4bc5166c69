// The gradient by the experts' matrices, in tiles: the work that the kernels of expert_mma.cuh and
// expert_wgmma.cuh are given for expert_linear_grad.
#pragma once
#include "kernels/cuda/expert_tiles.cuh"

namespace adjoint::experts::tiles {

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

}  // namespace adjoint::experts::tiles

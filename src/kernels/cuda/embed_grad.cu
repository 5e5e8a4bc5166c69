// Places are sorted by their ids, stably, so each id's places are a run in the order of the data.
// A row of the table is the sum of its run from left to right; a run longer than a piece is the sum
// of its pieces, from left to right again. What a row gets depends on its own run and on nothing
// else, and no two threads write one element.
//
// The sum of a piece lies in a slot that its first place names. Cut the sorted places in blocks of
// a piece's length: in one block begins at most one long run, and at most one later piece of
// another. So a block has two slots, and either piece is found by the id next to the block's edge.
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "base/note.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/embed_grad_layout.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/library_room.h"
#include "kernels/cuda/plain_sort.h"

namespace adjoint {

namespace {

struct Sorted {
  const uint32_t *ids, *sources;  // of places, in the order of ids
  const int32_t* starts;          // rows + 1: where the run of each row begins
  int places;
};

struct Columns {
  int64_t width, from_step, to_step;  // of dy and of the table
  int64_t addend_step;
};

struct Piece {
  int first, past;  // of sorted places; nothing where they are the same
};

__device__ int slot_of(int first, bool begins_run) {
  return 2 * (first / static_cast<int>(kPiecePlaces)) + begins_run;
}

// The piece whose sum goes into this slot.
__device__ Piece piece_in(int slot, const Sorted& s) {
  constexpr int kLength = static_cast<int>(kPiecePlaces);
  const bool begins_run = slot % 2;
  const int block = slot / 2 * kLength;
  // A long run that begins here covers the next block's first place; a later piece that begins here
  // has the piece before it over the last place of the block before.
  const int witness = begins_run ? block + kLength : block - 1;
  if (witness < 0 || witness >= s.places) return {0, 0};
  const uint32_t row = s.ids[witness];
  const int begin = s.starts[row], end = s.starts[row + 1];
  if (end - begin <= kLength) return {0, 0};
  int first = begin;
  if (!begins_run) first += (block - begin + kLength - 1) / kLength * kLength;
  if (first < block || first >= block + kLength || first >= end) return {0, 0};
  return {first, ::min(first + kLength, end)};
}

__global__ void name_places(const int32_t* ids, int places, int64_t rows, uint32_t* keys,
                            uint32_t* sources) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= places) return;
  keys[i] = static_cast<uint32_t>(clamp_id(ids[i], rows));
  sources[i] = i;
}

__global__ void find_starts(const uint32_t* ids, int places, int64_t rows, int32_t* starts) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row > rows) return;
  int low = 0, high = places;  // the first place whose id is not below the row
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (ids[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  starts[row] = low;
}

// N columns of the rows of dy at sorted places [first, past), added from left to right.
template <int N, class W, class T>
__device__ void add_places(W (&sum)[N], const Sorted& s, const T* dy, int64_t from_step, int first,
                           int past) {
#pragma unroll 8
  for (int i = first; i < past; ++i) {
    const T* from = dy + s.sources[i] * from_step;
    if constexpr (N == 1) {
      sum[0] += widen(*from);
    } else {
      W x[N];
      reinterpret_cast<const Pack<T>*>(from)->widen_to(x);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += x[k];
    }
  }
}

template <int N, class T, class W>
__global__ void sum_pieces(Sorted s, Columns c, const T* dy, W* sums, int slots) {
  const int64_t slot = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (slot >= slots || column >= c.width) return;
  const Piece piece = piece_in(static_cast<int>(slot), s);
  if (piece.first == piece.past) return;
  W sum[N] = {};
  add_places(sum, s, dy + column, c.from_step, piece.first, piece.past);
#pragma unroll
  for (int k = 0; k < N; ++k) sums[slot * c.width + column + k] = sum[k];
}

// N elements of a row of the table, from and to memory.
template <int N, class Out, class W>
__device__ void load_columns(W (&x)[N], const Out* from) {
  if constexpr (N % kPackSize<Out> == 0) {
#pragma unroll
    for (int p = 0; p < N; p += kPackSize<Out>) {
      W part[kPackSize<Out>];
      reinterpret_cast<const Pack<Out>*>(from + p)->widen_to(part);
#pragma unroll
      for (int k = 0; k < kPackSize<Out>; ++k) x[p + k] = part[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = widen(from[k]);
  }
}
template <int N, class Out, class W>
__device__ void store_columns(const W (&x)[N], Out* to) {
  if constexpr (N % kPackSize<Out> == 0) {
#pragma unroll
    for (int p = 0; p < N; p += kPackSize<Out>) {
      W part[kPackSize<Out>];
#pragma unroll
      for (int k = 0; k < kPackSize<Out>; ++k) part[k] = x[p + k];
      *reinterpret_cast<Pack<Out>*>(to + p) = Pack<Out>::narrowed(part);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = narrow<Out>(x[k]);
  }
}

template <class Out, int N, class T, class W>
__global__ void sum_rows(Sorted s, Columns c, const T* dy, const W* sums, const Out* addend,
                         Out* out, int64_t rows) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (row >= rows || column >= c.width) return;
  const int begin = s.starts[row], end = s.starts[row + 1];
  Out* to = out + row * c.to_step + column;
  const Out* before = addend ? addend + row * c.addend_step + column : nullptr;
  if (begin == end && before == to) return;
  W sum[N] = {};
  if (end - begin <= kPiecePlaces) {
    add_places(sum, s, dy + column, c.from_step, begin, end);
  } else {
#pragma unroll 4
    for (int first = begin; first < end; first += static_cast<int>(kPiecePlaces)) {
      const W* from = sums + slot_of(first, first == begin) * c.width + column;
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += from[k];
    }
  }
  if (before) {
    W x[N];
    load_columns(x, before);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = begin == end ? x[k] : x[k] + sum[k];  // -0 stays
  }
  store_columns(sum, to);
}

// Sorts by as many bits as ids have. The buffers that hold the result depend on their number alone.
struct Sort {
  cub::DoubleBuffer<uint32_t> ids, sources;
  int places, bits;

  cudaError_t operator()(void* space, size_t& bytes, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairs(space, bytes, ids, sources, places, 0, bits, stream);
  }
};

template <class Out, class T, int N>
Launch prepare(const KernelCall& k, const Pointers& at) {
  using W = typename Wide<Out>::type;
  const EmbedGradLayout layout(k);
  const auto place = [&](Bytes offset) { return static_cast<char*>(at.workspace) + offset.count; };
  const auto words = [&](Bytes offset) { return reinterpret_cast<uint32_t*>(place(offset)); };
  const auto* addend = at.in.size() > 2 ? static_cast<const Out*>(at.in[2]) : nullptr;
  const Columns columns{.width = layout.width,
                        .from_step = k.call.inputs[1].axes.back().physical(),
                        .to_step = k.out_strides[0][0],
                        .addend_step = addend ? k.in_strides[2][0] : 0};
  const auto* ids = static_cast<const int32_t*>(at.in[0]);
  const auto* dy = static_cast<const T*>(at.in[1]);
  auto* out = static_cast<Out*>(at.out[0]);
  auto* starts = reinterpret_cast<int32_t*>(place(layout.starts));
  auto* sums = reinterpret_cast<W*>(place(layout.sums));
  void* sort_space = place(layout.sort);
  const auto places = static_cast<int>(layout.places), slots = static_cast<int>(layout.slots);
  const int64_t rows = layout.rows;
  int bits = 1;
  while (bits < 32 && rows > int64_t{1} << bits) ++bits;
  const Sort unsorted{.ids = {words(layout.ids[0]), words(layout.ids[1])},
                      .sources = {words(layout.sources[0]), words(layout.sources[1])},
                      .places = places,
                      .bits = bits};
  size_t wanted = 0;
  if (const cudaError_t status = Sort(unsorted)(nullptr, wanted, nullptr); status != cudaSuccess) {
    throw MachineError(std::string("embed_grad: a sort cannot be prepared: ") +
                       cudaGetErrorString(status));
  }
  const Bytes room = library_room(layout.sort_size);
  const bool by_library = static_cast<int64_t>(wanted) <= room.count;
  if (!by_library) {
    note_once(join_parts(
        "an embedding's gradient sorts by Adjoint's own kernels, which are slower: CUB wants a "
        "workspace of ",
        wanted, " bytes, where ", room.count, " are planned"));
  }
  const Tiles piece_tiles = tiles_of(std::max(slots, 1), ceil_div(layout.width, N));
  const Tiles row_tiles = tiles_of(rows, ceil_div(layout.width, N));
  const cudaStream_t stream = as_stream(at.stream);
  return [=] {
    constexpr int kThreads = 256;
    Sort sort = unsorted;
    if (places > 0) {
      name_places<<<static_cast<unsigned>(ceil_div(places, kThreads)), kThreads, 0, stream>>>(
          ids, places, rows, sort.ids.Current(), sort.sources.Current());
      if (by_library) {
        size_t bytes = wanted;
        check_cuda(sort(sort_space, bytes, stream), "embed_grad's sort");
      } else {
        const SortedPairs pairs{.keys = {sort.ids.Current(), sort.ids.Alternate()},
                                .values = {sort.sources.Current(), sort.sources.Alternate()}};
        sort.ids.selector = sort.sources.selector =
            plain_sort(pairs, places, sort.bits, sort_space, stream);
      }
    }
    find_starts<<<static_cast<unsigned>(ceil_div(rows + 1, kThreads)), kThreads, 0, stream>>>(
        sort.ids.Current(), places, rows, starts);
    const Sorted sorted{sort.ids.Current(), sort.sources.Current(), starts, places};
    if (slots > 0) {
      sum_pieces<N>
          <<<piece_tiles.grid, piece_tiles.block, 0, stream>>>(sorted, columns, dy, sums, slots);
    }
    sum_rows<Out, N><<<row_tiles.grid, row_tiles.block, 0, stream>>>(sorted, columns, dy, sums,
                                                                     addend, out, rows);
    check_launch("embed_grad");
  };
}

template <class Out, class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  if constexpr (std::is_same_v<Out, double> != std::is_same_v<T, double>) {
    throw MachineError("embed_grad: CUDA sums float64 rows to float64 rows alone");
  } else {
    // Packs of the rows that are read; those of a wider table are whole numbers of packs then.
    constexpr int64_t kPack = kPackSize<T>;
    const int64_t width = k.call.inputs[1].dim(-1);
    const bool packed = width % kPack == 0 &&
                        k.call.inputs[1].axes.back().physical() % kPack == 0 &&
                        k.out_strides[0][0] % kPackSize<Out> == 0 && is_aligned(at.in[1], 16) &&
                        is_aligned(at.out[0], 16) &&
                        (at.in.size() < 3 ||
                         (k.in_strides[2][0] % kPackSize<Out> == 0 && is_aligned(at.in[2], 16)));
    return packed ? prepare<Out, T, kPack>(k, at) : prepare<Out, T, 1>(k, at);
  }
}

}  // namespace

Launch embed_grad_cuda(const KernelCall& call, const Pointers& at) {
  CHECK(call.in_strides[0] == dense_strides(call.call.inputs[0]), "ids are dense");
  CHECK(call.in_strides[1] == dense_strides(call.call.inputs[1]), "the rows' gradient is dense");
  if (call.call.inputs[0].num_elements() > INT32_MAX / 2 || call.call.integer("rows") > INT32_MAX) {
    throw MachineError("embed_grad: CUDA takes no more than 2^30 places and 2^31 rows");
  }
  if (call.call.inputs[1].dim(-1) == 0 || call.call.integer("rows") == 0) return [] {};
  return with_device_type(call.outputs[0].dtype, [&]<class Out>() {
    return with_device_type(call.call.inputs[1].dtype,
                            [&]<class T>() { return prepare<Out, T>(call, at); });
  });
}

}  // namespace adjoint

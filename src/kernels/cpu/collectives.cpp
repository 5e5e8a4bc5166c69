// Collectives on a CPU: the communicator moves bytes and adds them up; here is only where pieces
// lie. Pieces along a first axis that the ranks divide are already as they travel; all others are
// packed into a workspace first, the piece of rank 0, then that of rank 1, and so on.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/communicator.h"
#include "kernels/kernel.h"
#include "ops/collective.h"

namespace adjoint {

namespace {

// An axis that is cut, among those before and behind it, as bytes. Axes that have room for more
// elements than they hold (Axis::padded) travel with that room.
struct Pieces {
  int64_t ranks = 1, outer = 1;
  int64_t whole = 1, piece = 1;            // elements of the axis
  int64_t whole_room = 1, piece_room = 1;  // and those that there is room for
  int64_t row = 1;  // bytes of one element of the axis with all that is behind it

  bool lie_as_they_travel() const { return outer == 1 && whole_room == ranks * piece_room; }
  int64_t piece_bytes() const { return outer * piece_room * row; }
  int64_t packed_bytes() const { return ranks * piece_bytes(); }

  // Calls f(place in the whole, place in the packed pieces, bytes) for every stretch of bytes.
  template <class F>
  void for_each(const F& f) const {
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t count = std::clamp<int64_t>(whole - r * piece, 0, piece);
      for (int64_t o = 0; o < outer; ++o) {
        f((o * whole_room + r * piece) * row, (r * outer + o) * piece_room * row, count * row);
      }
    }
  }
};

Pieces pieces_of(const KernelCall& k, const Type& whole, const Type& piece) {
  const int axis = piece_axis(k.call);
  Pieces p{.ranks = ranks_of(k.call),
           .whole = whole.dim(axis),
           .piece = piece.dim(axis),
           .whole_room = whole.axes[axis].physical(),
           .piece_room = piece.axes[axis].physical(),
           .row = size_of(whole.dtype).count};
  for (int a = 0; a < axis; ++a) p.outer *= whole.axes[a].physical();
  for (int a = axis + 1; a < whole.rank(); ++a) p.row *= whole.axes[a].physical();
  return p;
}
Pieces gathered(const KernelCall& k) { return pieces_of(k, k.outputs[0], k.call.inputs[0]); }
Pieces scattered(const KernelCall& k) { return pieces_of(k, k.call.inputs[0], k.outputs[0]); }

Bytes packed(const Pieces& pieces) {
  const bool copies = pieces.ranks == 1 || pieces.lie_as_they_travel();
  return Bytes{copies ? 0 : pieces.packed_bytes()};
}

ReadBytes read(const void* from, int64_t size) {
  return {static_cast<const std::byte*>(from), static_cast<size_t>(size)};
}
WriteBytes written(void* to, int64_t size) {
  return {static_cast<std::byte*>(to), static_cast<size_t>(size)};
}

// One rank has nobody to speak to.
bool is_alone(const KernelCall& k, const Pointers& at) {
  CHECK(at.peers || ranks_of(k.call) == 1, "a call of several ranks is run on a mesh");
  return ranks_of(k.call) == 1;
}

Launch all_reduce(const KernelCall& k, const Pointers& at) {
  const int64_t bytes = k.outputs[0].bytes().count;
  if (is_alone(k, at)) {
    return [from = at.in[0], to = at.out[0], bytes] { std::memcpy(to, from, bytes); };
  }
  return [peers = at.peers, from = at.in[0], to = at.out[0], dtype = k.outputs[0].dtype, bytes] {
    peers->all_reduce(dtype, read(from, bytes), written(to, bytes)).wait();
  };
}

Launch all_gather(const KernelCall& k, const Pointers& at) {
  const Pieces pieces = gathered(k);
  const auto* in = static_cast<const char*>(at.in[0]);
  auto* out = static_cast<char*>(at.out[0]);
  const auto unpack = [=](const char* from) {
    pieces.for_each([&](int64_t in_whole, int64_t in_packed, int64_t bytes) {
      std::memcpy(out + in_whole, from + in_packed, bytes);
    });
  };
  if (is_alone(k, at)) return [=] { unpack(in); };
  const bool packs = !pieces.lie_as_they_travel();
  auto* const to = packs ? static_cast<char*>(at.workspace) : out;
  return [=, peers = at.peers] {
    peers->all_gather(read(in, pieces.piece_bytes()), written(to, pieces.packed_bytes())).wait();
    if (packs) unpack(to);
  };
}

Launch reduce_scatter(const KernelCall& k, const Pointers& at) {
  const Pieces pieces = scattered(k);
  const auto* in = static_cast<const char*>(at.in[0]);
  auto* out = static_cast<char*>(at.out[0]);
  const auto pack = [=](char* to) {
    std::memset(to, 0, pieces.packed_bytes());
    pieces.for_each([&](int64_t in_whole, int64_t in_packed, int64_t bytes) {
      std::memcpy(to + in_packed, in + in_whole, bytes);
    });
  };
  if (is_alone(k, at)) return [=] { pack(out); };
  const bool packs = !pieces.lie_as_they_travel();
  auto* const packed = static_cast<char*>(at.workspace);
  return [=, peers = at.peers, dtype = k.outputs[0].dtype] {
    if (packs) pack(packed);
    const char* from = packs ? packed : in;
    peers
        ->reduce_scatter(dtype, read(from, pieces.packed_bytes()),
                         written(out, pieces.piece_bytes()))
        .wait();
  };
}

}  // namespace

extern const Kernel cpu_all_reduce = {
    .op = "all_reduce",
    .prepare = all_reduce,
};

extern const Kernel cpu_all_gather = {
    .op = "all_gather",
    .prepare = all_gather,
    .workspace = [](const KernelCall& k) { return packed(gathered(k)); },
};

extern const Kernel cpu_reduce_scatter = {
    .op = "reduce_scatter",
    .prepare = reduce_scatter,
    .workspace = [](const KernelCall& k) { return packed(scattered(k)); },
};

}  // namespace adjoint

// Collectives on a CPU: the communicator moves bytes and adds them up; here is only where pieces
// lie, and what the plan must set aside. Pieces along a first axis travel from where they lie. All
// others are packed, the piece of rank 0, then that of rank 1, and so on, by the threads that
// compute: before the collective begins, and after it has been waited for. Scratch follows from
// shapes and the number of ranks, so that nothing is allocated while a step runs.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/communicator.h"
#include "device/buffer.h"
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

  // One behind the other; the last ones may be short.
  bool lie_as_they_travel() const { return outer == 1; }
  int64_t piece_bytes() const { return outer * piece_room * row; }
  int64_t packed_bytes() const { return ranks * piece_bytes(); }
  // What travels: rows that there are, or all packed pieces; and how much of it a rank has.
  int64_t whole_bytes() const { return lie_as_they_travel() ? whole * row : packed_bytes(); }
  int64_t segment() const { return lie_as_they_travel() ? piece * row : piece_bytes(); }
  int64_t bytes_of(int64_t rank) const {
    return std::clamp<int64_t>(whole_bytes() - rank * segment(), 0, segment());
  }

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

ReadBytes read(const void* from, int64_t size) {
  return {static_cast<const std::byte*>(from), static_cast<size_t>(size)};
}
WriteBytes written(void* to, int64_t size) {
  return {static_cast<std::byte*>(to), static_cast<size_t>(size)};
}

// A call's workspace: packed pieces, then the communicator's scratch.
struct Room {
  int64_t packed = 0, scratch = 0;
  Bytes all() const { return {packed + scratch}; }
  WriteBytes scratch_in(void* workspace) const {
    return written(static_cast<char*>(workspace) + packed, scratch);
  }
};

Bytes scratch_of(Collective collective, const KernelCall& k, int64_t whole, int64_t segment) {
  const auto ranks = static_cast<int>(ranks_of(k.call));
  return most_scratch({.collective = collective,
                       .algorithm = algorithm_for(collective, ranks, whole),
                       .ranks = ranks,
                       .whole = whole,
                       .element = size_of(k.outputs[0].dtype).count,
                       .segment = segment});
}

Room room_of(Collective collective, const KernelCall& k, const Pieces& pieces) {
  if (pieces.ranks == 1) return {};
  // Scratch begins where numbers of any dtype may.
  const int64_t packed =
      pieces.lie_as_they_travel() ? 0 : round_up(Bytes{pieces.packed_bytes()}, kAlignment).count;
  return {.packed = packed,
          .scratch = scratch_of(collective, k, pieces.whole_bytes(), pieces.segment()).count};
}
Room room_of_sum(const KernelCall& k) {
  if (ranks_of(k.call) == 1) return {};
  return {.scratch = scratch_of(Collective::kAllReduce, k, k.outputs[0].bytes().count, 0).count};
}

// One rank has nobody to speak to.
bool is_alone(const KernelCall& k, const Pointers& at) {
  CHECK(at.peers || ranks_of(k.call) == 1, "a call of several ranks is run on a mesh");
  return ranks_of(k.call) == 1;
}

// Both halves of a call, or one launch of both.
Launch halves(const Pointers& at, Launch begin, Launch end) {
  if (!at.completion) {
    return [begin = std::move(begin), end = std::move(end)] {
      begin();
      end();
    };
  }
  *at.completion = std::move(end);
  return begin;
}

Launch all_reduce(const KernelCall& k, const Pointers& at) {
  const int64_t bytes = k.outputs[0].bytes().count;
  if (is_alone(k, at)) {
    return [from = at.in[0], to = at.out[0], bytes] { std::memcpy(to, from, bytes); };
  }
  const auto sum =
      at.peers->standing(Collective::kAllReduce, k.outputs[0].dtype, read(at.in[0], bytes),
                         written(at.out[0], bytes), room_of_sum(k).scratch_in(at.workspace));
  return halves(
      at, [sum] { sum->begin(); }, [sum] { sum->wait(); });
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
  const Room room = room_of(Collective::kAllGather, k, pieces);
  const auto gather = at.peers->standing(
      Collective::kAllGather, k.outputs[0].dtype, read(in, pieces.bytes_of(at.peers->rank())),
      written(to, pieces.whole_bytes()), room.scratch_in(at.workspace), pieces.segment());
  return halves(
      at, [gather] { gather->begin(); },
      [=] {
        gather->wait();
        if (packs) unpack(to);
      });
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
  const int64_t mine = pieces.bytes_of(at.peers->rank());
  const int64_t rest = pieces.piece_bytes() - mine;  // past the end of the axis
  const Room room = room_of(Collective::kReduceScatter, k, pieces);
  const auto sum =
      at.peers->standing(Collective::kReduceScatter, k.outputs[0].dtype,
                         read(packs ? packed : in, pieces.whole_bytes()), written(out, mine),
                         room.scratch_in(at.workspace), pieces.segment());
  return halves(
      at,
      [=] {
        if (packs) pack(packed);
        std::memset(out + mine, 0, rest);
        sum->begin();
      },
      [sum] { sum->wait(); });
}

}  // namespace

extern const Kernel cpu_all_reduce = {
    .op = "all_reduce",
    .prepare = all_reduce,
    .workspace = [](const KernelCall& k) { return room_of_sum(k).all(); },
};

extern const Kernel cpu_all_gather = {
    .op = "all_gather",
    .prepare = all_gather,
    .workspace =
        [](const KernelCall& k) { return room_of(Collective::kAllGather, k, gathered(k)).all(); },
};

extern const Kernel cpu_reduce_scatter = {
    .op = "reduce_scatter",
    .prepare = reduce_scatter,
    .workspace =
        [](const KernelCall& k) {
          return room_of(Collective::kReduceScatter, k, scattered(k)).all();
        },
};

}  // namespace adjoint

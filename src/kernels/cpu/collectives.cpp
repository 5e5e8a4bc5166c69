// Collectives on a CPU: the communicator moves bytes and adds them up; here is only where pieces
// lie, and what the plan must set aside. Pieces along a first axis travel from where they lie. All
// others are packed, the piece of rank 0, then that of rank 1, and so on, by the threads that
// compute: before the collective begins, and after it has been waited for. Scratch follows from
// shapes and the number of ranks, so that nothing is allocated while a step runs.
#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "comm/communicator.h"
#include "device/buffer.h"
#include "kernels/halves.h"
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

  // Calls f(place in the whole, rank, place in its packed piece, bytes) for every stretch of bytes.
  template <class F>
  void for_each(const F& f) const {
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t count = std::clamp<int64_t>(whole - r * piece, 0, piece);
      for (int64_t o = 0; o < outer; ++o) {
        f((o * whole_room + r * piece) * row, r, o * piece_room * row, count * row);
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

// The pieces of all operands of a call. Packed, those of rank 0 come first, one operand behind the
// other, then those of rank 1.
struct AllPieces {
  std::vector<Pieces> of;
  std::vector<int64_t> begin;  // of each operand, in what a rank has packed
  int64_t piece_bytes = 0;     // of all of them
  int64_t ranks = 1;

  bool lie_as_they_travel() const { return of.size() == 1 && of[0].lie_as_they_travel(); }
  int64_t packed_bytes() const { return ranks * piece_bytes; }
  int64_t whole_bytes() const {
    return lie_as_they_travel() ? of[0].whole_bytes() : packed_bytes();
  }
  int64_t segment() const { return lie_as_they_travel() ? of[0].segment() : piece_bytes; }
  int64_t bytes_of(int64_t rank) const {
    return std::clamp<int64_t>(whole_bytes() - rank * segment(), 0, segment());
  }

  void pack(const std::vector<const void*>& wholes, char* to) const {
    std::memset(to, 0, packed_bytes());  // what is past the end of an axis
    for (size_t i = 0; i < of.size(); ++i) {
      const auto* from = static_cast<const char*>(wholes[i]);
      of[i].for_each([&](int64_t at, int64_t rank, int64_t in_piece, int64_t bytes) {
        std::memcpy(to + rank * piece_bytes + begin[i] + in_piece, from + at, bytes);
      });
    }
  }
  void unpack(const char* from, const std::vector<void*>& wholes) const {
    for (size_t i = 0; i < of.size(); ++i) {
      auto* to = static_cast<char*>(wholes[i]);
      of[i].for_each([&](int64_t at, int64_t rank, int64_t in_piece, int64_t bytes) {
        std::memcpy(to + at, from + rank * piece_bytes + begin[i] + in_piece, bytes);
      });
    }
  }
  // One rank has all there is. Room of the whole and of the piece may differ.
  void join_alone(const std::vector<const void*>& pieces, const std::vector<void*>& wholes) const {
    for (size_t i = 0; i < of.size(); ++i) {
      of[i].for_each([&](int64_t at, int64_t, int64_t in_piece, int64_t bytes) {
        std::memcpy(static_cast<char*>(wholes[i]) + at,
                    static_cast<const char*>(pieces[i]) + in_piece, bytes);
      });
    }
  }
  void cut_alone(const std::vector<const void*>& wholes, const std::vector<void*>& pieces) const {
    for (size_t i = 0; i < of.size(); ++i) {
      std::memset(pieces[i], 0, of[i].piece_bytes());
      of[i].for_each([&](int64_t at, int64_t, int64_t in_piece, int64_t bytes) {
        std::memcpy(static_cast<char*>(pieces[i]) + in_piece,
                    static_cast<const char*>(wholes[i]) + at, bytes);
      });
    }
  }
  // A rank's own pieces, to and from where they are packed.
  void pack_own(const std::vector<const void*>& pieces, char* to) const {
    for (size_t i = 0; i < of.size(); ++i) {
      std::memcpy(to + begin[i], pieces[i], of[i].piece_bytes());
    }
  }
  void unpack_own(const char* from, const std::vector<void*>& pieces) const {
    for (size_t i = 0; i < of.size(); ++i) {
      std::memcpy(pieces[i], from + begin[i], of[i].piece_bytes());
    }
  }
};

AllPieces all_pieces(const KernelCall& k, std::span<const Type> wholes,
                     std::span<const Type> pieces) {
  AllPieces all{.of = {}, .begin = {}, .ranks = ranks_of(k.call)};
  for (size_t i = 0; i < wholes.size(); ++i) {
    all.of.push_back(pieces_of(k, wholes[i], pieces[i]));
    all.begin.push_back(all.piece_bytes);
    all.piece_bytes += all.of.back().piece_bytes();
  }
  return all;
}
AllPieces gathered(const KernelCall& k) { return all_pieces(k, k.outputs, k.call.inputs); }
AllPieces scattered(const KernelCall& k) { return all_pieces(k, k.call.inputs, k.outputs); }

ReadBytes read(const void* from, int64_t size) {
  return {static_cast<const std::byte*>(from), static_cast<size_t>(size)};
}
WriteBytes written(void* to, int64_t size) {
  return {static_cast<std::byte*>(to), static_cast<size_t>(size)};
}

// A call's workspace: packed pieces of all ranks, those of this rank, the communicator's scratch.
struct Room {
  int64_t packed = 0, own = 0, scratch = 0;
  Bytes all() const { return {packed + own + scratch}; }
  char* own_in(void* workspace) const { return static_cast<char*>(workspace) + packed; }
  WriteBytes scratch_in(void* workspace) const { return written(own_in(workspace) + own, scratch); }
};
int64_t with_room(int64_t bytes) { return round_up(Bytes{bytes}, kAlignment).count; }

Bytes scratch_of(Collective collective, const KernelCall& k, int64_t whole, int64_t segment) {
  const auto ranks = static_cast<int>(ranks_of(k.call));
  return most_scratch({.collective = collective,
                       .algorithm = algorithm_for(collective, ranks, whole),
                       .ranks = ranks,
                       .whole = whole,
                       .element = size_of(k.outputs[0].dtype).count,
                       .segment = segment});
}

Room room_of(Collective collective, const KernelCall& k, const AllPieces& pieces) {
  if (pieces.ranks == 1) return {};
  // Each part begins where numbers of any dtype may.
  const bool packs = !pieces.lie_as_they_travel(), own = pieces.of.size() > 1;
  return {.packed = packs ? with_room(pieces.packed_bytes()) : 0,
          .own = own ? with_room(pieces.piece_bytes) : 0,
          .scratch = scratch_of(collective, k, pieces.whole_bytes(), pieces.segment()).count};
}

int64_t bytes_of_all(const KernelCall& k) {
  int64_t sum = 0;
  for (const Type& type : k.outputs) sum += type.bytes().count;
  return sum;
}
Room room_of_sum(const KernelCall& k) {
  if (ranks_of(k.call) == 1) return {};
  const int64_t bytes = bytes_of_all(k);
  return {.packed = k.outputs.size() > 1 ? with_room(bytes) : 0,
          .scratch = scratch_of(Collective::kAllReduce, k, bytes, 0).count};
}

// One rank has nobody to speak to.
bool is_alone(const KernelCall& k, const Pointers& at) {
  CHECK(at.peers || ranks_of(k.call) == 1, "a call of several ranks is run on a mesh");
  return ranks_of(k.call) == 1;
}

Launch all_reduce(const KernelCall& k, const Pointers& at) {
  std::vector<int64_t> sizes;
  for (const Type& type : k.outputs) sizes.push_back(type.bytes().count);
  if (is_alone(k, at)) {
    return [in = at.in, out = at.out, sizes] {
      for (size_t i = 0; i < sizes.size(); ++i) std::memcpy(out[i], in[i], sizes[i]);
    };
  }
  const Room room = room_of_sum(k);
  const bool packs = sizes.size() > 1;
  auto* const packed = static_cast<char*>(at.workspace);
  const int64_t bytes = bytes_of_all(k);
  const auto sum = at.peers->standing(
      Collective::kAllReduce, k.outputs[0].dtype, read(packs ? packed : at.in[0], bytes),
      written(packs ? packed : at.out[0], bytes), room.scratch_in(at.workspace));
  if (!packs) {
    return halves(
        at, [sum] { sum->begin(); }, [sum] { sum->wait(); });
  }
  return halves(
      at,
      [sum, sizes, packed, in = at.in] {
        int64_t begin = 0;
        for (size_t i = 0; i < sizes.size(); begin += sizes[i++]) {
          std::memcpy(packed + begin, in[i], sizes[i]);
        }
        sum->begin();
      },
      [sum, sizes, packed, out = at.out] {
        sum->wait();
        int64_t begin = 0;
        for (size_t i = 0; i < sizes.size(); begin += sizes[i++]) {
          std::memcpy(out[i], packed + begin, sizes[i]);
        }
      });
}

Launch all_gather(const KernelCall& k, const Pointers& at) {
  const AllPieces pieces = gathered(k);
  if (is_alone(k, at)) {
    return [=, in = at.in, out = at.out] { pieces.join_alone(in, out); };
  }
  const Room room = room_of(Collective::kAllGather, k, pieces);
  const bool packs = room.packed > 0;
  const char* from = room.own > 0 ? room.own_in(at.workspace) : static_cast<const char*>(at.in[0]);
  auto* const to = static_cast<char*>(packs ? at.workspace : at.out[0]);
  const auto gather = at.peers->standing(
      Collective::kAllGather, k.outputs[0].dtype, read(from, pieces.bytes_of(at.peers->rank())),
      written(to, pieces.whole_bytes()), room.scratch_in(at.workspace), pieces.segment());
  if (!packs) {
    return halves(
        at, [gather] { gather->begin(); }, [gather] { gather->wait(); });
  }
  auto* const own = room.own > 0 ? room.own_in(at.workspace) : nullptr;
  return halves(
      at,
      [=, in = at.in] {
        if (own) pieces.pack_own(in, own);
        gather->begin();
      },
      [=, out = at.out] {
        gather->wait();
        pieces.unpack(to, out);
      });
}

Launch reduce_scatter(const KernelCall& k, const Pointers& at) {
  const AllPieces pieces = scattered(k);
  if (is_alone(k, at)) {
    return [=, in = at.in, out = at.out] { pieces.cut_alone(in, out); };
  }
  const Room room = room_of(Collective::kReduceScatter, k, pieces);
  const bool packs = room.packed > 0;
  auto* const packed = static_cast<char*>(at.workspace);
  auto* const own = room.own > 0 ? room.own_in(at.workspace) : nullptr;
  auto* const out = static_cast<char*>(own ? own : at.out[0]);
  const int64_t mine = pieces.bytes_of(at.peers->rank());
  const int64_t rest = pieces.piece_bytes - mine;  // past the end of the axis
  const auto sum =
      at.peers->standing(Collective::kReduceScatter, k.outputs[0].dtype,
                         read(packs ? packed : at.in[0], pieces.whole_bytes()), written(out, mine),
                         room.scratch_in(at.workspace), pieces.segment());
  if (!packs) {
    return halves(
        at,
        [=] {
          std::memset(out + mine, 0, rest);
          sum->begin();
        },
        [sum] { sum->wait(); });
  }
  return halves(
      at,
      [=, in = at.in] {
        pieces.pack(in, packed);
        sum->begin();
      },
      [=, to = at.out] {
        sum->wait();
        if (own) pieces.unpack_own(own, to);
      });
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

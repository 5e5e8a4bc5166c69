// Where the pieces of a collective lie: in the whole object along an axis, and packed as they
// travel, the piece of rank 0, then that of rank 1, and so on. Pieces along a first axis lie in the
// whole as they travel.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/communicator.h"
#include "kernels/kernel.h"
#include "ops/collective.h"

namespace adjoint {

// An axis that is cut, among those before and behind it, as bytes. Axes that have room for more
// elements than they hold (Axis::padded) travel with that room.
struct Pieces {
  int64_t ranks = 1, outer = 1;
  int64_t whole = 1, piece = 1;            // elements of the axis
  int64_t whole_room = 1, piece_room = 1;  // and those that there is room for
  int64_t row = 1;  // bytes of one element of the axis with all that is behind it

  // One behind the other; the last ones may be short.
  bool lie_as_they_travel() const { return outer == 1; }
  bool are_equal() const { return whole_room == ranks * piece_room; }
  int64_t piece_bytes() const { return outer * piece_room * row; }
  int64_t packed_bytes() const { return ranks * piece_bytes(); }
  // What travels: rows that there are, or all packed pieces; and how much of it a rank has.
  int64_t whole_bytes() const { return lie_as_they_travel() ? whole * row : packed_bytes(); }
  int64_t segment() const { return lie_as_they_travel() ? piece * row : piece_bytes(); }
  int64_t bytes_of(int64_t rank) const {
    return std::clamp<int64_t>(whole_bytes() - rank * segment(), 0, segment());
  }

  // `count` stretches of `size` bytes, the next one `whole_step` and `packed_step` bytes on.
  struct Stretches {
    int64_t in_whole, in_packed;  // where the first begins
    int64_t size, count;
    int64_t whole_step, packed_step;
  };
  // Calls f(Stretches) for every rank that has something.
  template <class F>
  void for_each_rank(const F& f) const {
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t elements = std::clamp<int64_t>(whole - r * piece, 0, piece);
      if (elements == 0) continue;
      f(Stretches{.in_whole = r * piece * row,
                  .in_packed = r * piece_bytes(),
                  .size = elements * row,
                  .count = outer,
                  .whole_step = whole_room * row,
                  .packed_step = piece_room * row});
    }
  }
  // Calls f(place in the whole, place in the packed pieces, bytes) for every stretch of bytes.
  template <class F>
  void for_each(const F& f) const {
    for_each_rank([&](const Stretches& s) {
      for (int64_t i = 0; i < s.count; ++i) {
        f(s.in_whole + i * s.whole_step, s.in_packed + i * s.packed_step, s.size);
      }
    });
  }
};

inline Pieces pieces_of(const KernelCall& k, const Type& whole, const Type& piece) {
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
inline Pieces gathered(const KernelCall& k) { return pieces_of(k, k.outputs[0], k.call.inputs[0]); }
inline Pieces scattered(const KernelCall& k) {
  return pieces_of(k, k.call.inputs[0], k.outputs[0]);
}

// Calls f(i, call of operand i alone) for every operand, as a kernel sees it.
template <class F>
void for_each_operand(const KernelCall& k, const F& f) {
  for (size_t i = 0; i < k.outputs.size(); ++i) {
    OpCall call = k.call;
    call.inputs = {k.call.inputs[i]};
    KernelCall one(call, k);
    one.outputs = {k.outputs[i]};
    one.in_strides = {k.in_strides[i]};
    one.out_strides = {k.out_strides[i]};
    f(i, one);
  }
}

inline ReadBytes read(const void* from, int64_t size) {
  return {static_cast<const std::byte*>(from), static_cast<size_t>(size)};
}
inline WriteBytes written(void* to, int64_t size) {
  return {static_cast<std::byte*>(to), static_cast<size_t>(size)};
}

}  // namespace adjoint

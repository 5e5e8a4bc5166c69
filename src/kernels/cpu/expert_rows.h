// Rows sorted by the experts that they chose, and products of any number of them by oneDNN. How
// many rows an expert has is known only when a step runs, so products are prepared for pieces of
// some numbers of rows, and an expert's rows are cut into these.
#pragma once
#include <array>
#include <functional>

#include "kernels/cpu/onednn_matmul.h"
#include "kernels/dense_operands.h"
#include "ops/expert_linear.h"
#include "scheme/elements.h"

namespace adjoint {

// Rows in the order of their experts, those of one expert in the order of the data: the rows of
// expert e are order[starts[e]] to order[starts[e + 1]]. Ids outside are the nearest expert's.
struct SortedRows {
  int32_t *order = nullptr, *starts = nullptr;  // of rows, of experts + 1

  static Bytes bytes(const ExpertRows& rows);
  SortedRows(const ExpertRows& rows, void* at);
  void sort(const ExpertRows& rows, const int32_t* choice) const;
};

// Powers of two from kLeastPiece on, so that few rows are computed beside those that there are.
inline constexpr int64_t kLeastPiece = 16, kMostPiece = 1024;
inline constexpr int kPieceSizes = 7;
static_assert(kLeastPiece << (kPieceSizes - 1) == kMostPiece);

// Calls f(begin, count, which) for pieces of [begin, end): `count` rows, for which the size
// kLeastPiece << which is prepared; no larger than `most`.
template <class F>
void for_each_piece(int64_t begin, int64_t end, int64_t most, const F& f) {
  while (begin < end) {
    int which = 0;
    // A piece that is one eighth too long costs less than several short ones.
    const int64_t longest = std::min(most, (end - begin) * 9 / 8);
    while (kLeastPiece << (which + 1) <= longest) ++which;
    const int64_t count = std::min(kLeastPiece << which, end - begin);
    f(begin, count, which);
    begin += count;
  }
}

// What oneDNN wants for a piece of each size or of a smaller one. Asking it takes a while, and
// plans ask often, so it is asked once a call.
using PieceScratch = std::array<Bytes, kPieceSizes>;
PieceScratch piece_scratch(const std::function<Bytes(int64_t rows)>& wanted);

// The largest piece whose bytes are within the cap, of those worth having for so many rows; the
// least if none is.
int64_t largest_piece(int64_t rows, Bytes cap, const std::function<Bytes(int64_t)>& bytes);

inline int which_piece(int64_t rows) {
  int which = 0;
  while (kLeastPiece << which < rows) ++which;
  return which;
}

// Hands out a call's workspace, one range behind the other.
class WorkspaceRanges {
 public:
  explicit WorkspaceRanges(void* workspace) : next_(static_cast<std::byte*>(workspace)) {}

  std::byte* take(Bytes size) {
    std::byte* here = next_;
    next_ += size.count;
    return here;
  }
  std::byte* rest() const { return next_; }

 private:
  std::byte* next_;
};

// What products of rows in `dtype` are computed in, with float32 sums: itself where oneDNN takes
// it.
Dtype product_dtype(Dtype dtype);

// Rows of `width` elements of one dtype to another; `from` and `to` say where each lies, and one
// that lies nowhere is zeros.
void convert_rows(int64_t rows, int64_t width, Dtype from_dtype,
                  const std::function<const void*(int64_t)>& from, Dtype to_dtype,
                  const std::function<void*(int64_t)>& to);

}  // namespace adjoint

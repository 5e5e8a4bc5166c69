// How the work of one call is spread over several, over ranks in space or over parts of a batch in
// time: told from its index map alone, so that no op and no model is a case of its own. Who walks a
// scheme with it decides what to do about an operand that comes otherwise than the call wants it:
// time refuses (analysis/batch_split), space moves data (functors/realize_placement).
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "ops/op_def.h"

namespace adjoint {

// What one of several has of an object: all of it, a piece along an axis, or a term of its sum.
struct Share {
  Spread spread = Spread::kReplicated;
  int axis = 0;                        // of a piece
  std::vector<int64_t> segments = {};  // of the axis, each cut by itself; none: it is one

  bool is_whole() const { return spread == Spread::kReplicated; }
  bool is_piece() const { return spread == Spread::kSharded; }
  bool is_term() const { return spread == Spread::kPartial; }
  bool operator==(const Share& other) const {
    return spread == other.spread &&
           (!is_piece() || (axis == other.axis && segments == other.segments));
  }
};
inline const Share kWhole = {}, kTerm = {Spread::kPartial};
inline Share piece_along(int axis, std::vector<int64_t> segments = {}) {
  return {Spread::kSharded, axis, std::move(segments)};
}

// How the work of a call is cut: along a letter of its index map, which may itself consist of
// segments, or, where the letter is '.', along all segments of what lies side by side.
struct Cut {
  char letter = 0;                     // 0: not at all
  std::vector<int64_t> segments = {};  // of the letter; none: it is one
  // Of a cut along '.': what each segment consists of, by its number.
  std::vector<std::vector<int64_t>> within = {};
  bool operator==(const Cut&) const = default;
};

struct CallShares {
  Cut cut = {};
  bool told = false;                          // the call must be told where its piece begins
  std::vector<Share> wants = {}, gives = {};  // per operand, per result
};

// The cuts that pieces among a call's operands lead to, in the order of the operands. Over `ranks`
// pieces of merged axes, and of segments, are cut where the ranks divide what they consist of;
// with 0 ranks, which is a split in time, only axes that are one letter are cut.
std::vector<Cut> cuts_of(const OpCall& call, std::span<const Share> comes, int64_t ranks);
// The cut that makes result k come like this; nothing where there is none.
std::optional<Cut> cut_giving(const OpCall& call, size_t k, const Share& share, int64_t ranks);

// What a call does whose operands come like this, if it is cut so: it wants pieces of all that have
// the letter and all of the rest, and a result without the letter is a term of a sum. What is added
// to such a sum must be a term, too. A call that is not cut and is linear in all its operands
// together takes terms to terms; any other call that is not cut wants everything whole.
CallShares shares_along(const OpCall& call, std::span<const Share> comes, size_t results, Cut cut);
// The same along the first cut that there is.
CallShares share_call(const OpCall& call, std::span<const Share> comes, size_t results,
                      int64_t ranks = 0);

// How many the letter of a cut counts in all.
int64_t size_along(const OpCall& call, char letter);

// The call as it is on one piece: attributes that count along the letter, or state the space of a
// body, become those of `size` instead of `whole`.
void shrink_attrs(const OpCall& call, char letter, int64_t whole, int64_t size, Attrs& attrs);

}  // namespace adjoint

// How the work of one call is spread over several, over ranks in space or over parts of a batch in
// time: told from its index map alone, so that no op and no model is a case of its own. Who walks a
// scheme with it decides what to do about an operand that comes otherwise than the call wants it:
// time refuses (analysis/batch_split), space moves data (functors/realize_placement).
#pragma once
#include <span>
#include <vector>

#include "ops/op_def.h"

namespace adjoint {

// What one of several has of an object: all of it, a piece along an axis, or a term of its sum.
struct Share {
  Spread spread = Spread::kReplicated;
  int axis = 0;  // of a piece

  bool is_whole() const { return spread == Spread::kReplicated; }
  bool is_piece() const { return spread == Spread::kSharded; }
  bool is_term() const { return spread == Spread::kPartial; }
  bool operator==(const Share& other) const {
    return spread == other.spread && (!is_piece() || axis == other.axis);
  }
};
constexpr Share kWhole = {}, kTerm = {Spread::kPartial};
constexpr Share piece_along(int axis) { return {Spread::kSharded, axis}; }

struct CallShares {
  char letter = 0;  // of the index map, along which the work is cut; 0: along none
  std::vector<Share> wants = {}, gives = {};  // per operand, per result
};

// What a call does whose operands come like this. It is cut along the letter of its first piece
// that it can be cut along: then it wants pieces of all that have the letter and all of the rest,
// and a result without the letter is a term of a sum. What is added to such a sum must be a term,
// too. A call of no pieces that is linear in all its operands together takes terms to terms; any
// other call wants everything whole.
CallShares share_call(const OpCall& call, std::span<const Share> comes, size_t results);

// The call as it is on one piece: attributes that count along the letter, or state the space of a
// body, become those of `size` instead of `whole`.
void shrink_attrs(const OpCall& call, char letter, int64_t whole, int64_t size, Attrs& attrs);

}  // namespace adjoint

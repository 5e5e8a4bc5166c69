// Which axes of an op's operands and results are which: one letter per axis. Splitting a batch,
// sharding a weight and slicing a sequence all derive from this.
//
// A letter of the outputs is parallel unless it stands in `whole`; a letter that only operands have
// is summed; '1' is stretched, '.' is an axis that no split may touch. A capital letter is an axis
// that holds several: of attention's q, k, v -> out, log-sums,
//   bsQ, bsK, bsK -> bsQ, bkgs;  Q = kgd, K = kd
// says that a row of q is k heads of keys times g queries each times d numbers, so that heads are a
// letter like any other, and work may be split along k.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

// An axis that holds several: its segments one behind the other, each a product of letters, the
// outermost first. q, k and v side by side are {"kgd", "kd", "kd"}.
struct MergedAxis {
  char letter = 0;  // a capital
  std::vector<std::string> segments;
};
// An attribute that is the product of what letters count, and shrinks with each: attention's
// `heads` are "kg".
struct LetterCount {
  std::string_view attribute;
  std::string letters;
};

// How many a letter counts, of one that no operand and no result has as an axis of its own.
struct LetterSize {
  char letter = 0;
  int64_t size = 0;
};
// Of ops that lay operands side by side, or take parts of them: what the axes that are '.' consist
// of, as numbers of segments; the same number is the same elements. concat's are {0}, {1} -> {0,
// 1}, slice's {0, 1, 2} -> {1}. A rank has its piece of every segment.
struct SideBySide {
  std::vector<std::vector<int>> inputs = {}, outputs = {};
  std::vector<int64_t> sizes = {};  // of the segments
};

struct IndexMap {
  std::vector<std::string> inputs, outputs;
  std::string whole = {};
  std::vector<MergedAxis> merged = {};
  std::vector<LetterCount> counts = {};  // '.': those that shrink with segments
  std::vector<LetterSize> sizes = {};
  SideBySide beside = {};
  // A letter along which ranks split the work though it is whole or '.', because the op says what a
  // rank does that knows where its piece begins (OpDef::in_pieces): rows of a table, classes of a
  // loss. 0: there is none.
  char told = 0;
  bool told_joins = false;  // results without that letter are then whole, and no terms of a sum

  const MergedAxis* merged_axis(char letter) const;  // null: the letter is an axis by itself
  // Does an operand or result with these letters have `letter`, as an axis or inside one?
  bool has(const std::string& letters, char letter) const;
  // Letters along which no work is split by cutting single axes: what is whole, and merged axes and
  // what they hold.
  std::string uncut() const;
};
// bsi, oi -> bso; summed i. Merged axes stand in brackets: ab(yz) -> abyz, bs[kgd|kd|kd].
std::string to_string(const IndexMap& map);

}  // namespace adjoint

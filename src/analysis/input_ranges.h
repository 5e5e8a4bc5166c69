// What the whole numbers that a model is fed may be, and mean.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// The values that a model's integer inputs may have, derived from their readers: ids below the rows
// of every table and the width of every loss; targets may also be the id that the loss ignores,
// unless a table is asked for that id, too: embed(where(targets == -1, 0, targets)) asks for 0.
struct InputRange {
  std::optional<int64_t> below = {};  // none: nobody says
  std::optional<int64_t> ignored = {};
  // The value of samples that are not there, as those that pad a rank's share of a batch: what the
  // terms of the loss do not count (ignored_values), also where such an id could not be looked up
  // in a table, since nothing that is made of such a sample counts.
  int64_t padding = 0;
  std::vector<int64_t> marks = {};  // that the texts tell from the others: a separator's id
};
using InputRanges = std::map<std::string, InputRange>;  // by path
InputRanges input_ranges(const Scheme& forward);

// The paths of integer inputs that a body reads. Bodies compute in float32, so whole numbers beyond
// 2^24 are not told apart there: `ids == shift(ids, 1)` would hold of two that are neighbours.
std::set<std::string> inputs_computed_with(const Scheme& forward);

// The paths of floating inputs in which -inf is a number like others: it is added to what a softmax
// reads, say, so wherever it stands in a row, nothing but finite numbers comes of it.
std::set<std::string> inputs_that_mask(const Scheme& forward);

// By path: the value of an input that says that a row counts for nothing, where the terms of the
// loss count by it.
std::map<std::string, int64_t> ignored_values(const Scheme& forward);

}  // namespace adjoint

// Which objects are made directly inside another one, so that nothing needs to be copied: operands
// of a concat in its result, and results that an op writes over a slice that nothing else reads.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace adjoint {

struct Adjacent {
  std::vector<Value> within = {};     // per object: what holds it, or -1
  std::vector<int64_t> start = {};    // elements from the holder's beginning
  std::vector<Strides> strides = {};  // of every object, dense unless its holder says otherwise
  std::vector<bool> is_whole = {};    // a concat whose operands all lie in it
  // Parameters that a concat along axis 0 joins; each group is placed adjacently, in one storage.
  std::vector<std::vector<Value>> joined = {};
  std::vector<std::pair<int, int>> joined_by = {};  // (concat, group)
  // Per object: is it used by more than the calls that read it, as an input, an output or state?
  std::vector<bool> used_outside = {};
};

Adjacent find_adjacent(const Scheme& scheme, const PlanOptions& options);

// The slice that operand `in` of `m` is a view of, if m may write its first result over that slice
// while other slices of the same object live on: everything between the slice and m has one reader.
std::optional<Value> slice_under_result(const Scheme& scheme, const std::vector<int>& made_by,
                                        const std::vector<std::vector<int>>& read_by,
                                        const std::vector<bool>& used_outside, int m, Value in);

}  // namespace adjoint

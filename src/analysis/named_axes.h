// Axes of objects by what they are, told from index maps: which axis holds positions, and how the
// heads of attentions lie in the parameters of the maps that they read.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "analysis/spread.h"

namespace adjoint {

// How heads lie along an axis of a parameter: where it holds queries, keys and values, in segments.
struct HeadsWithin {
  int axis = 0;
  std::vector<int64_t> segments = {};
  int64_t heads = 0;  // groups of heads that share keys: what ranks must divide
};

class NamedAxes {
 public:
  explicit NamedAxes(const Scheme& scheme);

  // The axis along which positions of the step's inputs lie, the second of these.
  std::optional<int> positions(Value v) const;
  std::optional<HeadsWithin> heads(Value parameter) const;

 private:
  void find_positions(const Scheme& scheme);
  void find_heads(const Scheme& scheme);

  std::vector<int> positions_;  // per object; -1: none
  std::map<Value, HeadsWithin> heads_;
};

}  // namespace adjoint

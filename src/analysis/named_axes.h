// Axes of objects by what they are, told from index maps: which axis holds positions, how the heads
// of attentions lie in the parameters of the maps that they read, and along which axis of a
// parameter the rows of a matrix lie that it is, or is made into.
#pragma once
#include <functional>
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
  // The axis along which the results of a linear map lie.
  std::optional<int> rows(Value parameter) const;

 private:
  struct CutCall {
    Cut cut;
    int64_t parts = 0;  // what ranks must divide
  };
  using CutOf = std::function<std::optional<CutCall>(const Morphism&, const OpCall&)>;

  void find_positions(const Scheme& scheme);
  static std::map<Value, HeadsWithin> find_parameters(const Scheme& scheme, const CutOf& cut_of);

  std::vector<int> positions_;  // per object; -1: none
  std::map<Value, HeadsWithin> heads_, rows_;
};

}  // namespace adjoint

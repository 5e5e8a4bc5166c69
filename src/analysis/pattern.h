// Small patterns of calls: what a call is, and which calls make its operands. The activation of a
// linear map, whoever else reads the map's result:
//   const Pattern activation_of_linear = {is_activation, {{.made_by = {is_linear_map}}}};
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "analysis/graph.h"

namespace adjoint {

struct Pattern {
  using Is = std::function<bool(const Graph&, const Morphism&)>;
  struct Operand;

  Pattern(Is call);
  Pattern(Is call, std::vector<Operand> made_of);

  Is is;
  std::vector<Operand> operands;  // each is met by another operand of the call, in any order
};
struct Pattern::Operand {
  Pattern made_by;
  int result = 0;     // which result of that call is read
  bool only = false;  // once, and by nobody else; it neither leaves the step nor is carried
  Is through = {};    // calls in between that make no difference, as casts or views
  // What more the reading call must be. It is asked of the object that the call itself reads,
  // before `through` is followed; all objects on the way must satisfy `only`.
  std::function<bool(const Graph&, const Morphism& reader, Value read)> fits = {};
};

// The calls that a pattern consists of: its own first, then those of its operands, in order.
using Match = std::vector<int>;
std::optional<Match> match(const Graph& graph, const Pattern& pattern, int call);

// Where calls may become one: all matches whose calls may join and are in no match before. Calls
// that a match looked through are neither asked nor taken.
std::vector<Match> find_joins(const Graph& graph, const Pattern& pattern);

}  // namespace adjoint

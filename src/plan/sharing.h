// Which objects share bytes, whatever the order is: a view and its object, a concat and its
// operands, a result and the slice that it overwrites, parameters that are joined. And what is
// known of every call: its workspace, and which operands its results may overwrite.
#pragma once
#include <utility>
#include <vector>

#include "plan/adjacent.h"
#include "plan/plan.h"

namespace adjoint {

// What is known of a call; calls that repeat in every block share the computation.
struct CallFacts {
  std::vector<std::pair<int, int>> overwrites = {};  // (output, operand)
  Bytes workspace = {0};
};

struct Sharing {
  std::vector<Value> view_of = {};     // per object: what it is a view of, or -1
  std::vector<Value> carried_to = {};  // per object: where it is carried to, or -1
  std::vector<Value> grown_from =
      {};  // per object: the partial sum of an accumulator that it overwrites, or -1
  std::vector<bool> is_carried = {}, is_input = {};
  Adjacent adjacent = {};
  std::vector<int> joined = {};       // per object: its group of parameters, or -1
  std::vector<Place> places = {};     // offset in the root and strides; no storage yet
  std::vector<CallFacts> facts = {};  // per morphism; nothing for a view

  // The object whose bytes contain v.
  Value root(Value v) const {
    while (true) {
      const Value next = view_of[v] >= 0 ? view_of[v] : adjacent.within[v];
      if (next < 0) return v;
      v = next;
    }
  }
};

Sharing find_sharing(const Scheme& scheme, const PlanOptions& options);

}  // namespace adjoint

// What objects share whatever the order is: views lie in what they see, operands of a concat inside
// it, results over the slice they are made of, joined parameters one behind the other. And what
// every call asks for: its workspace, and which operands its results may take the place of.
#pragma once
#include <utility>
#include <vector>

#include "plan/adjacent.h"
#include "plan/plan.h"

namespace adjoint {

// Everything about one call that repeats with every block, found once.
struct CallFacts {
  std::vector<std::pair<int, int>> overwrites = {};  // (output, operand)
  Bytes workspace = {0};
};

struct Sharing {
  std::vector<Value> view_of = {};     // per object: what it is a view of, or -1
  std::vector<Value> carried_to = {};  // per object: where it is carried to, or -1
  std::vector<Value> grown_from = {};  // per object: whose place it takes in an accumulator, or -1
  std::vector<bool> is_carried = {}, is_input = {};
  Adjacent adjacent = {};
  std::vector<int> joined = {};       // per object: its group of parameters, or -1
  std::vector<Place> places = {};     // offset in the root and strides; no storage yet
  std::vector<CallFacts> facts = {};  // per morphism; nothing for a view

  // The object whose bytes v lies in.
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

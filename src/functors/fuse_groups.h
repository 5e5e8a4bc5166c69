// Calls that `fuse` makes one: their joined body, and whether joining two of them is worthwhile.
#pragma once
#include <optional>
#include <vector>

#include "analysis/graph.h"
#include "body/body.h"
#include "ops/fusion_limits.h"
#include "ops/op_def.h"

namespace adjoint {

struct Group {
  std::vector<int> members;  // calls, in order; none: it was joined to another
  int at = 0;                // its place in the order: calls begin at even ones
  int epoch = 0;             // of recomputation, if all members are of one
  int64_t repeated = 0;      // FLOPs of members that are recomputation where not all are
  Body body;
  std::vector<Value> inputs, outputs;
  std::vector<Axis> space;
};

int64_t elements(const std::vector<Axis>& space);
int64_t flops_of(const Group& group);  // as count_flops will count them

// All groups of a scheme. Every call is in one, at first by itself.
class Groups {
 public:
  Groups(const Graph& graph, const FusionLimits& limits);

  const Graph& graph() const { return graph_; }
  const std::vector<Group>& all() const { return groups_; }
  const Group& operator[](int group) const { return groups_[group]; }
  int group_of(int call) const { return group_of_[call]; }
  int place_of(int call) const { return groups_[group_of_[call]].at; }
  // May the call be joined to others at all?
  bool is_fusible(int call) const { return fusible_[call]; }
  // The last member of the group's own epoch, which says where in the step the group is.
  const Morphism& leader(const Group& g) const;

  // What `a` and `c` are together, `a` first; nothing where they cannot be one body. It has no
  // place yet.
  std::optional<Group> joined(const Group& a, const Group& c) const;
  bool is_worthwhile(const Group& a, const Group& c, const Group& joined) const;
  // Bytes that its kernel needs for the sums of every block of rows.
  int64_t partial_sums(const Group& g) const;
  // Puts `joined` in place of two groups, and `late` calls right behind it.
  void replace(int maker, int reader, Group joined, const std::vector<int>& late);

  std::vector<Type> types_of(const std::vector<Value>& values) const;

 private:
  bool can_fuse(const Morphism& m, const OpCall& call) const;
  void add(int call);
  bool is_read_outside(Value v, const std::vector<int>& members) const;
  bool by_column(const Group& g) const;
  int64_t unit_of(const Group& g) const;

  const Graph& graph_;
  const FusionLimits& limits_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<bool> fusible_;
};

}  // namespace adjoint

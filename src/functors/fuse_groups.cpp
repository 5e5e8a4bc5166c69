#include "functors/fuse_groups.h"

#include <algorithm>
#include <set>

#include "base/counts.h"
#include "body/facts.h"
#include "body/join.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// The leading axes that all of its sums go over: they decide which rows are added first.
std::optional<int> leading_axes(const Body& body, size_t rank) {
  std::optional<int> least;
  for (const BodyOutput& out : body.outputs) {
    if (!is_sum(out)) continue;
    const bool dropped = out.row == BodyOutput::Row::kDropped;
    const int axes = dropped ? static_cast<int>(rank) - 1 : out.summed_axes;
    least = std::min(least.value_or(axes), axes);
  }
  return least;
}

bool reads_all(const Body& body, size_t inputs) {
  std::set<int> read;
  for (const ExprNode& n : body.nodes) {
    if (n.kind == ExprKind::kInput || n.kind == ExprKind::kRandom) read.insert(n.index);
  }
  return read.size() == inputs;
}

// Adds a value to the operands of a group, once.
JoinOperand operand_of(std::vector<Value>& inputs, Value in) {
  const auto found = std::find(inputs.begin(), inputs.end(), in);
  const JoinOperand operand{.number = static_cast<int>(found - inputs.begin())};
  if (found == inputs.end()) inputs.push_back(in);
  return operand;
}

}  // namespace

int64_t elements(const std::vector<Axis>& space) {
  int64_t n = 1;
  for (const Axis& axis : space) n = product_of({n, axis.size});
  return n;
}

int64_t flops_of(const Group& group) {
  const Body body = group.members.size() > 1 ? fold_exactly(group.body) : group.body;
  const int64_t each = std::count_if(body.nodes.begin(), body.nodes.end(),
                                     [](const ExprNode& n) { return facts(n.kind).arity > 0; });
  return product_of({elements(group.space), each});
}

Groups::Groups(const Graph& graph, const FusionLimits& limits) : graph_(graph), limits_(limits) {
  for (int m = 0; m < graph.num_calls(); ++m) add(m);
}

bool Groups::can_fuse(const Morphism& m, const OpCall& call) const {
  const OpDef& def = op_named(m.op);
  if (!is_row_op(def)) return false;
  if (def.effect != Effect::kPure && def.effect != Effect::kRandom) return false;
  for (const Type& t : call.inputs) {
    if (t.dtype == Dtype::kF64) return false;
  }
  for (const Value out : m.outputs) {
    const Dtype dtype = graph_.scheme()[out].type.dtype;
    const bool register_holds =
        dtype == Dtype::kF32 || dtype == Dtype::kBF16 || dtype == Dtype::kF16;
    // Who writes state fuses with nothing: the plan puts its result where the state lies, and all
    // readers of the old state come first.
    if (!register_holds || graph_.is_carried(out)) return false;
  }
  return true;
}

void Groups::add(int call) {
  const Morphism& m = graph_.call(call);
  const OpCall types = call_of(graph_.scheme(), m);
  Group group{.members = {call},
              .at = 2 * call,
              .epoch = m.epoch,
              .repeated = types.integer("repeated", 0),
              .body = {},
              .inputs = {},
              .outputs = m.outputs,
              .space = {}};
  bool fusible = can_fuse(m, types);
  if (fusible) {
    group.body = body_of(types);
    group.space = space_of(types);
    // One number alone moves nothing through memory. An operand that the body does not read is
    // there for another reason.
    fusible = !group.space.empty() && reads_all(group.body, m.inputs.size());
  }
  if (fusible) {
    std::vector<JoinOperand> operands;
    for (const Value in : m.inputs) operands.push_back(operand_of(group.inputs, in));
    group.body = join({}, group.body, operands);
  } else {
    group.inputs = m.inputs;
  }
  group_of_.push_back(call);
  fusible_.push_back(fusible);
  groups_.push_back(std::move(group));
}

std::optional<Group> Groups::joined(const Group& a, const Group& c) const {
  // A group that reads what the other makes, too, would wait for itself.
  const auto made_by_c = [&](Value v) {
    return std::find(c.outputs.begin(), c.outputs.end(), v) != c.outputs.end();
  };
  if (std::any_of(a.inputs.begin(), a.inputs.end(), made_by_c)) return std::nullopt;
  Group group{.members = a.members,
              .at = 0,
              .epoch = std::min(a.epoch, c.epoch),
              .body = {},
              .inputs = a.inputs,
              .outputs = {},
              .space = a.space};
  group.members.insert(group.members.end(), c.members.begin(), c.members.end());
  std::sort(group.members.begin(), group.members.end());
  const std::vector<bool> same = same_along_row(a.body, a.space, types_of(a.inputs));
  std::vector<JoinOperand> operands;
  for (const Value in : c.inputs) {
    const auto made = std::find(a.outputs.begin(), a.outputs.end(), in);
    if (made == a.outputs.end()) {
      operands.push_back(operand_of(group.inputs, in));
      continue;
    }
    const int k = static_cast<int>(made - a.outputs.begin());
    const BodyOutput& out = a.body.outputs[k];
    // A sum over rows is known only after the last of them. One value of a row is that of every
    // element of it, if it is known to be the same.
    if (is_sum(out) || (out.row == BodyOutput::Row::kOne && !same[out.node])) return std::nullopt;
    operands.push_back({.made = true, .number = k, .dtype = graph_.scheme()[in].type.dtype});
  }
  group.body = join(a.body, c.body, operands);
  std::vector<BodyOutput> outputs;
  for (size_t k = 0; k < a.outputs.size(); ++k) {
    if (is_read_outside(a.outputs[k], group.members)) {
      outputs.push_back(group.body.outputs[k]);
      group.outputs.push_back(a.outputs[k]);
    }
  }
  outputs.insert(outputs.end(), group.body.outputs.begin() + static_cast<int64_t>(a.outputs.size()),
                 group.body.outputs.end());
  group.outputs.insert(group.outputs.end(), c.outputs.begin(), c.outputs.end());
  group.body.outputs = std::move(outputs);
  return group;
}

const Morphism& Groups::leader(const Group& g) const {
  const auto last = std::find_if(g.members.rbegin(), g.members.rend(),
                                 [&](int m) { return graph_.call(m).epoch == g.epoch; });
  return graph_.call(*last);
}

bool Groups::is_read_outside(Value v, const std::vector<int>& members) const {
  const std::vector<int>& readers = graph_.readers(v);
  if (graph_.stays(v) || readers.empty()) return true;
  return std::any_of(readers.begin(), readers.end(), [&](int reader) {
    return !std::binary_search(members.begin(), members.end(), reader);
  });
}

std::vector<Type> Groups::types_of(const std::vector<Value>& values) const {
  std::vector<Type> types;
  for (const Value v : values) types.push_back(graph_.scheme()[v].type);
  return types;
}

bool Groups::is_worthwhile(const Group& a, const Group& c, const Group& joined) const {
  if (joined.body.nodes.size() > limits_.nodes) return false;
  if (joined.inputs.size() + joined.outputs.size() > limits_.streams) return false;
  // Which rows a sum adds first depends on the axes that all sums of its body share.
  const size_t rank = joined.space.size();
  const auto mine = leading_axes(a.body, rank), yours = leading_axes(c.body, rank);
  if (mine && yours && mine != yours) return false;
  if (!by_column(joined) && (by_column(a) || by_column(c))) return false;  // see partial_sums
  const int64_t unit = unit_of(joined);
  return unit >= limits_.short_row ||
         (unit_of(a) < limits_.short_row && unit_of(c) < limits_.short_row);
}

// Wide sums that the CPU shares by column need no room for blocks.
bool Groups::by_column(const Group& g) const {
  const auto leading = leading_axes(g.body, g.space.size());
  if (!leading || g.body.needs_whole_rows()) return false;
  for (const BodyOutput& out : g.body.outputs) {
    const bool whole = out.row == BodyOutput::Row::kWhole && out.summed_axes == *leading;
    if (is_sum(out) && !whole) return false;
  }
  int64_t suffix = 1;
  for (size_t a = *leading; a < g.space.size(); ++a) suffix *= g.space[a].size;
  return suffix >= limits_.wide_suffix;
}

int64_t Groups::partial_sums(const Group& g) const {
  const auto leading = leading_axes(g.body, g.space.size());
  if (!leading || by_column(g)) return 0;
  int64_t rows = 1, bytes = 0;
  for (int a = 0; a < *leading; ++a) rows *= g.space[a].size;
  for (size_t k = 0; k < g.outputs.size(); ++k) {
    if (!is_sum(g.body.outputs[k])) continue;
    const int64_t sums = graph_.scheme()[g.outputs[k]].type.num_elements();
    bytes += 4 * std::min(rows, limits_.sum_blocks) * sums;
  }
  return bytes;
}

// How many elements one instruction of the CPU's program works on, where operands lie densely.
int64_t Groups::unit_of(const Group& g) const {
  int64_t unit = g.space.back().size;
  const bool one_a_row =
      std::any_of(g.body.outputs.begin(), g.body.outputs.end(),
                  [](const BodyOutput& out) { return out.row != BodyOutput::Row::kWhole; });
  if (one_a_row || g.body.needs_whole_rows() || g.body.uses_index()) return unit;
  const auto full_at = [&](const Type& t, size_t back) {  // axis counted from the end
    return t.rank() >= static_cast<int>(back) &&
           t.dim(-static_cast<int>(back)) == g.space[g.space.size() - back].size;
  };
  for (size_t back = 2; back <= g.space.size() && unit < limits_.piece; ++back) {
    for (const BodyOutput& out : g.body.outputs) {
      if (out.summed_axes > static_cast<int>(g.space.size() - back)) return unit;
    }
    for (const Value in : g.inputs) {
      const Type& t = graph_.scheme()[in].type;
      if (t.dtype == Dtype::kI64) continue;
      if (full_at(t, back) != full_at(t, back - 1)) return unit;
    }
    unit *= g.space[g.space.size() - back].size;
  }
  return unit;
}

void Groups::replace(int maker, int reader, Group joined, const std::vector<int>& late) {
  for (const int m : late) groups_[group_of_[m]].at = joined.at + 1;
  for (const int m : joined.members) group_of_[m] = maker;
  groups_[reader] = {};
  groups_[maker] = std::move(joined);
}

}  // namespace adjoint

// Chains of elementwise and row ops become one `map` by joining their bodies:
//   d = dropout(a); x = add(r, d); n = layer_norm(x, w, b)  ->  x, n = map(a, counter, r, w, b)
// A value between two of them is then read from a register: one write and one read of a tensor
// less. The bits stay, for a register holds what memory would have held: float32, or rounded to 16
// bits.
//
// What the backward computes again joins the gradient that reads it, or that reads the same:
//   h = mul(silu(g), u) again; dW = contract(dy, h); dh = contract(dy, W); dg, du = ...(dh, g, u)
//   ->  dh = contract(dy, W); h, dg, du = map(dh, g, u); dW = contract(dy, h)
// so g and u are read once. Readers of h are moved behind the group, which no other group does to
// its readers, and the plan loses orders that it could have chosen; so such a group is made only
// where memory is left over.
//
// Groups grow in the order of the scheme. Each has one place in that order, after all that it reads
// and before all that reads it, so groups never form a cycle. A group may hold more at once than
// its members did one after another; it is refused where that would raise the most that lives at a
// time.
#include <algorithm>
#include <numeric>
#include <set>

#include "analysis/accumulators.h"
#include "base/text.h"
#include "body/facts.h"
#include "body/join.h"
#include "functors/functor.h"
#include "ops/fusion_limits.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

struct Group {
  std::vector<int> members;  // morphisms, in order; none: it was joined to another
  int at = 0;                // its place in the order: morphisms begin at even ones
  int epoch = 0;             // of recomputation, if all members are of one
  int64_t repeated = 0;      // FLOPs of members that are recomputation where not all are
  Body body;
  std::vector<Value> inputs, outputs;
  std::vector<Axis> space;
};

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

class Fusion {
 public:
  Fusion(Scheme scheme, const FusionLimits& limits, int64_t& matches)
      : scheme_(std::move(scheme)),
        limits_(limits),
        matches_(matches),
        made_by_(producers(scheme_)),
        read_by_(readers(scheme_)),
        group_of_(scheme_.morphisms.size(), -1),
        kept_(returned_or_carried(scheme_)) {
    find_order();
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) add_group(static_cast<int>(i));
    repeats_products_ =
        std::any_of(scheme_.morphisms.begin(), scheme_.morphisms.end(),
                    [](const Morphism& m) { return m.epoch > 0 && op_named(m.op).multiplies; });
    find_lives();
  }

  Scheme run() {
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      if (fusible_[i]) absorb_makers(static_cast<int>(i));
    }
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      if (fusible_[i] && scheme_.morphisms[i].epoch > 0) join_sibling(static_cast<int>(i));
    }
    return written();
  }

 private:
  // ---- what a morphism is ----

  void run_after(int later, int earlier) {
    before_[later].push_back(earlier);
    after_[earlier].push_back(later);
  }

  // Who must wait for whom without reading it: a recomputation or a fetch that is held back; and
  // who writes state, for all who read what it writes over, or views of it.
  void find_order() {
    before_.resize(scheme_.morphisms.size());
    after_.resize(scheme_.morphisms.size());
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      for (const Value v : scheme_.morphisms[i].after) {
        if (made_by_[v] >= 0) run_after(static_cast<int>(i), made_by_[v]);
      }
    }
    for (const auto* carries : {&scheme_.carries, &scheme_.loop}) {
      for (const Carry& c : *carries) {
        const int writer = made_by_[c.out];
        if (writer < 0) continue;
        std::vector<Value> old = {c.in};
        for (size_t k = 0; k < old.size(); ++k) {
          for (const int reader : read_by_[old[k]]) {
            if (reader == writer) continue;
            // An accumulator's start is read in the iteration that makes its sum.
            if (scheme_.morphisms[reader].section != scheme_.morphisms[writer].section) continue;
            run_after(writer, reader);
            const Morphism& m = scheme_.morphisms[reader];
            if (op_named(m.op).view) old.push_back(m.outputs[0]);
          }
        }
      }
    }
  }

  bool can_fuse(const Morphism& m, const OpCall& call) const {
    const OpDef& def = op_named(m.op);
    if (!is_row_op(def)) return false;
    if (def.effect != Effect::kPure && def.effect != Effect::kRandom) return false;
    for (const Type& t : call.inputs) {
      if (t.dtype == Dtype::kF64) return false;
    }
    for (const Value out : m.outputs) {
      const Dtype dtype = scheme_[out].type.dtype;
      const bool register_holds =
          dtype == Dtype::kF32 || dtype == Dtype::kBF16 || dtype == Dtype::kF16;
      // Who writes state fuses with nothing: the plan puts its result where the state lies, and
      // all readers of the old state come first.
      if (!register_holds || is_carried(out)) return false;
    }
    return true;
  }
  bool is_carried(Value v) const {
    const auto ends_here = [&](const Carry& c) { return c.out == v || c.in == v; };
    return kept_[v] && (std::any_of(scheme_.carries.begin(), scheme_.carries.end(), ends_here) ||
                        std::any_of(scheme_.loop.begin(), scheme_.loop.end(), ends_here));
  }

  void add_group(int i) {
    const Morphism& m = scheme_.morphisms[i];
    const OpCall call = call_of(scheme_, m);
    group_of_[i] = i;
    Group group{.members = {i},
                .at = 2 * i,
                .epoch = m.epoch,
                .body = {},
                .inputs = {},
                .outputs = m.outputs,
                .space = {}};
    group.repeated = call.integer("repeated", 0);
    bool fusible = can_fuse(m, call);
    if (fusible) {
      group.body = body_of(call);
      group.space = space_of(call);
      // One number alone moves nothing through memory. An operand that the body does not read is
      // there for another reason.
      fusible = !group.space.empty() && reads_all(group.body, m.inputs.size());
    }
    if (fusible) {
      std::vector<JoinOperand> operands;
      for (const Value in : m.inputs) {
        const auto found = std::find(group.inputs.begin(), group.inputs.end(), in);
        operands.push_back({.number = static_cast<int>(found - group.inputs.begin())});
        if (found == group.inputs.end()) group.inputs.push_back(in);
      }
      group.body = adjoint::join({}, group.body, operands);
    } else {
      group.inputs = m.inputs;
    }
    fusible_.push_back(fusible);
    groups_.push_back(std::move(group));
  }
  static bool reads_all(const Body& body, size_t inputs) {
    std::set<int> read;
    for (const ExprNode& n : body.nodes) {
      if (n.kind == ExprKind::kInput || n.kind == ExprKind::kRandom) read.insert(n.index);
    }
    return read.size() == inputs;
  }

  // ---- growing ----

  void absorb_makers(int morphism) {
    bool grown = true;
    while (grown) {
      grown = false;
      const Group& group = groups_[group_of_[morphism]];
      for (const Value in : group.inputs) {
        const int maker = made_by_[in];
        if (maker < 0 || !fusible_[maker]) continue;
        if (try_join(group_of_[maker], group_of_[morphism])) {
          grown = true;
          break;  // the group is another one now
        }
      }
    }
  }

  // What is computed again, and a gradient that reads a whole operand of it.
  void join_sibling(int clone) {
    const int mine = group_of_[clone];
    if (groups_[mine].epoch == 0) return;
    for (const Value in : groups_[mine].inputs) {
      if (scheme_[in].type.num_elements() < elements(groups_[mine].space)) continue;
      for (const int reader : read_by_[in]) {
        const int other = group_of_[reader];
        if (other != mine && fusible_[reader] && groups_[other].epoch == 0 &&
            try_join(mine, other)) {
          return;
        }
      }
    }
  }
  static int64_t elements(const std::vector<Axis>& space) {
    int64_t n = 1;
    for (const Axis& axis : space) n *= axis.size;
    return n;
  }
  // As count_flops will count them.
  static int64_t flops_of(const Group& g) {
    const Body body = g.members.size() > 1 ? fold_exactly(g.body) : g.body;
    return elements(g.space) *
           std::count_if(body.nodes.begin(), body.nodes.end(),
                         [](const ExprNode& n) { return facts(n.kind).arity > 0; });
  }

  const Morphism& front(const Group& g) const { return scheme_.morphisms[g.members.front()]; }

  bool try_join(int maker, int reader) {
    const Group &a = groups_[maker], &c = groups_[reader];
    const Morphism &ma = front(a), &mc = front(c);
    if (ma.phase != mc.phase || ma.section != mc.section) return false;
    const bool again = a.epoch > 0 && c.epoch == 0;
    if (a.epoch != c.epoch && !again) return false;
    if (!same_sizes(a.space, c.space)) return false;
    const auto joined = join_groups(a, c);
    if (!joined || !is_worthwhile(a, c, *joined)) return false;
    // At the reader's place if it can be, else at the maker's.
    for (const int at : {std::max(a.at, c.at), std::min(a.at, c.at)}) {
      const auto late = late_readers(a, c, at);
      if (!late || (!late->empty() && !again)) continue;
      Group group = *joined;
      group.at = at;
      if (!lives_fit(a, c, {group, *late})) continue;
      group.repeated = again ? c.repeated + flops_of(group) - flops_of(c) : a.repeated + c.repeated;
      for (const int m : *late) groups_[group_of_[m]].at = at + 1;
      for (const int m : group.members) group_of_[m] = maker;
      groups_[reader] = {};
      groups_[maker] = std::move(group);
      ++matches_;
      return true;
    }
    return false;
  }

  // a before c: a group that reads what the other makes, too, would wait for itself.
  std::optional<Group> join_groups(const Group& a, const Group& c) const {
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
    const std::set<int> members(group.members.begin(), group.members.end());
    const std::vector<bool> same = same_along_row(a.body, a.space, types_of(a.inputs));
    std::vector<JoinOperand> operands;
    for (const Value in : c.inputs) {
      const auto made = std::find(a.outputs.begin(), a.outputs.end(), in);
      if (made != a.outputs.end()) {
        const int k = static_cast<int>(made - a.outputs.begin());
        const BodyOutput& out = a.body.outputs[k];
        // A sum over rows is known only after the last of them. One value of a row is that of every
        // element of it, if it is known to be the same.
        if (is_sum(out) || (out.row == BodyOutput::Row::kOne && !same[out.node]))
          return std::nullopt;
        operands.push_back({.made = true, .number = k, .dtype = scheme_[in].type.dtype});
        continue;
      }
      const auto found = std::find(group.inputs.begin(), group.inputs.end(), in);
      operands.push_back({.number = static_cast<int>(found - group.inputs.begin())});
      if (found == group.inputs.end()) group.inputs.push_back(in);
    }
    group.body = adjoint::join(a.body, c.body, operands);
    std::vector<BodyOutput> outputs;
    for (size_t k = 0; k < a.outputs.size(); ++k) {
      if (is_read_outside(a.outputs[k], members)) {
        outputs.push_back(group.body.outputs[k]);
        group.outputs.push_back(a.outputs[k]);
      }
    }
    outputs.insert(outputs.end(),
                   group.body.outputs.begin() + static_cast<int64_t>(a.outputs.size()),
                   group.body.outputs.end());
    group.outputs.insert(group.outputs.end(), c.outputs.begin(), c.outputs.end());
    group.body.outputs = std::move(outputs);
    return group;
  }
  bool is_read_outside(Value v, const std::set<int>& members) const {
    if (kept_[v] || read_by_[v].empty()) return true;
    return std::any_of(read_by_[v].begin(), read_by_[v].end(),
                       [&](int reader) { return !members.count(reader); });
  }
  std::vector<Type> types_of(const std::vector<Value>& values) const {
    std::vector<Type> types;
    for (const Value v : values) types.push_back(scheme_[v].type);
    return types;
  }

  // ---- is it the same, and better? ----

  bool is_worthwhile(const Group& a, const Group& c, const Group& joined) const {
    if (joined.body.nodes.size() > limits_.nodes) return false;
    if (joined.inputs.size() + joined.outputs.size() > limits_.streams) return false;
    // Which rows a sum adds first depends on the axes that all sums of its body share.
    const size_t rank = joined.space.size();
    const auto mine = leading_axes(a.body, rank), yours = leading_axes(c.body, rank);
    if (mine && yours && mine != yours) return false;
    if (!by_column(joined) && (by_column(a) || by_column(c))) return false;  // see block_bytes
    const int64_t unit = unit_of(joined);
    return unit >= limits_.short_row ||
           (unit_of(a) < limits_.short_row && unit_of(c) < limits_.short_row);
  }

  // Wide sums that the CPU shares by column need no room for blocks.
  bool by_column(const Group& g) const {
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

  // How many elements one instruction of the CPU's program works on, where operands lie densely.
  int64_t unit_of(const Group& g) const {
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
        const Type& t = scheme_[in].type;
        if (t.dtype == Dtype::kI64) continue;
        if (full_at(t, back) != full_at(t, back - 1)) return unit;
      }
      unit *= g.space[g.space.size() - back].size;
    }
    return unit;
  }

  // ---- places in the order ----

  int place_of(int morphism) const { return groups_[group_of_[morphism]].at; }

  // Is all that the two read made before? Then the readers that are not after, and can be.
  std::optional<std::vector<int>> late_readers(const Group& a, const Group& c, int at) const {
    const auto inside = [&](int m) {
      const int g = group_of_[m];
      return &groups_[g] == &a || &groups_[g] == &c;
    };
    const auto earlier = [&](int m) { return m < 0 || inside(m) || place_of(m) < at; };
    const auto later = [&](int m) { return inside(m) || place_of(m) > at; };
    std::vector<int> late;
    for (const Group* g : {&a, &c}) {
      for (const Value in : g->inputs) {
        if (!earlier(made_by_[in])) return std::nullopt;
      }
      for (const Value out : g->outputs) {
        for (const int reader : read_by_[out]) {
          if (!later(reader) && !delay(reader, at + 1, late)) return std::nullopt;
        }
      }
      for (const int m : g->members) {
        if (!std::all_of(before_[m].begin(), before_[m].end(), earlier)) return std::nullopt;
        if (!std::all_of(after_[m].begin(), after_[m].end(), later)) return std::nullopt;
      }
    }
    return late;
  }

  // Adds to `late` a morphism that fuses with nothing, and who reads it too early, to move to a
  // place between two others, where they keep their order. False: one of them cannot wait.
  bool delay(int morphism, int at, std::vector<int>& late) const {
    if (place_of(morphism) > at || std::count(late.begin(), late.end(), morphism)) return true;
    const Morphism& m = scheme_.morphisms[morphism];
    if (fusible_[morphism] || op_named(m.op).effect != Effect::kPure) return false;
    late.push_back(morphism);
    for (const int waits : after_[morphism]) {
      if (place_of(waits) <= at) return false;
    }
    return std::all_of(m.outputs.begin(), m.outputs.end(), [&](Value out) {
      return std::all_of(read_by_[out].begin(), read_by_[out].end(),
                         [&](int reader) { return delay(reader, at, late); });
    });
  }

  // ---- what lives when ----

  struct Life {
    int first = 0, last = -1;  // places; empty: not counted
  };

  Value root(Value v) const {
    while (view_of_[v] >= 0) v = view_of_[v];
    return v;
  }

  void find_lives() {
    grown_from_ = grown_from(scheme_);
    view_of_.assign(scheme_.objects.size(), -1);
    for (const Morphism& m : scheme_.morphisms) {
      if (op_named(m.op).view) view_of_[m.outputs[0]] = m.inputs[0];
    }
    views_.resize(scheme_.objects.size());
    for (size_t v = 0; v < view_of_.size(); ++v) {
      if (view_of_[v] >= 0) views_[root(static_cast<Value>(v))].push_back(static_cast<Value>(v));
    }
    live_.assign(2 * scheme_.morphisms.size() + 1, 0);
    std::vector<int64_t> change(live_.size() + 1, 0);
    for (size_t v = 0; v < scheme_.objects.size(); ++v) {
      const Life life = life_of(static_cast<Value>(v), nullptr);
      change[life.first] += bytes_of(static_cast<Value>(v));
      change[life.last + 1] -= bytes_of(static_cast<Value>(v));
    }
    for (const Group& g : groups_) {
      change[g.at] += partial_sums(g);
      change[g.at + 1] -= partial_sums(g);
    }
    std::partial_sum(change.begin(), change.end() - 1, live_.begin());
    most_ = *std::max_element(live_.begin(), live_.end());
  }

  // What grows in an accumulator takes no bytes beside it.
  int64_t bytes_of(Value v) const {
    return grown_from_[v] >= 0 ? 0 : scheme_[v].type.bytes().count;
  }

  // Room for the sums of every block of rows; by column there is need of none.
  int64_t partial_sums(const Group& g) const {
    const auto leading = leading_axes(g.body, g.space.size());
    if (!leading || by_column(g)) return 0;
    int64_t rows = 1, bytes = 0;
    for (int a = 0; a < *leading; ++a) rows *= g.space[a].size;
    for (size_t k = 0; k < g.outputs.size(); ++k) {
      if (!is_sum(g.body.outputs[k])) continue;
      bytes += 4 * std::min(rows, limits_.sum_blocks) * scheme_[g.outputs[k]].type.num_elements();
    }
    return bytes;
  }

  // A group in place of those that its members are in, and who then waits for it.
  struct Joining {
    const Group& group;
    const std::vector<int>& late;

    bool has(int m) const {
      return std::binary_search(group.members.begin(), group.members.end(), m);
    }
    bool makes(Value v) const {
      return std::count(group.outputs.begin(), group.outputs.end(), v) > 0;
    }
    bool delays(int m) const { return std::count(late.begin(), late.end(), m) > 0; }
  };

  // Inputs of the step are always there.
  Life life_of(Value v, const Joining* joining) const {
    if (made_by_[v] < 0 || view_of_[v] >= 0) return {};
    const auto place = [&](int m) {
      if (joining && joining->has(m)) return joining->group.at;
      if (joining && joining->delays(m)) return joining->group.at + 1;
      return place_of(m);
    };
    if (joining && joining->has(made_by_[v]) && !joining->makes(v)) return {};  // a register
    Life life{place(made_by_[v]), place(made_by_[v])};
    const auto read = [&](Value each) {
      for (const int reader : read_by_[each]) life.last = std::max(life.last, place(reader));
      if (kept_[each]) life.last = static_cast<int>(live_.size()) - 1;
    };
    read(v);
    for (const Value view : views_[v]) read(view);
    return life;
  }

  // Moves the lives of all that the two groups touch; back again if too much would live at once.
  bool lives_fit(const Group& a, const Group& c, const Joining& joining) {
    const Group& joined = joining.group;
    std::set<Value> touched;
    const auto touch = [&](const std::vector<Value>& inputs, const std::vector<Value>& outputs) {
      for (const Value v : inputs) touched.insert(root(v));
      touched.insert(outputs.begin(), outputs.end());
    };
    for (const Group* g : {&a, &c}) touch(g->inputs, g->outputs);
    for (const int m : joining.late) {
      touch(scheme_.morphisms[m].inputs, scheme_.morphisms[m].outputs);
    }
    struct Change {
      int from, to;  // [from, to)
      int64_t bytes;
    };
    std::vector<Change> changes = {{a.at, a.at + 1, -partial_sums(a)},
                                   {c.at, c.at + 1, -partial_sums(c)},
                                   {joined.at, joined.at + 1, partial_sums(joined)}};
    for (const Value v : touched) {
      const Life before = life_of(v, nullptr), after = life_of(v, &joining);
      const int64_t bytes = bytes_of(v);
      if (after.last < after.first) {
        changes.push_back({before.first, before.last + 1, -bytes});
        continue;
      }
      if (before.last < before.first) continue;
      const auto shift = [&](int from, int to, int64_t sign) {
        if (from < to) changes.push_back({from, to, sign * bytes});
        if (to < from) changes.push_back({to, from, -sign * bytes});
      };
      shift(before.first, after.first, -1);
      shift(before.last + 1, after.last + 1, 1);
    }
    const auto make = [&](int64_t sign) {
      for (const Change& change : changes) {
        for (int at = change.from; at < change.to; ++at) live_[at] += sign * change.bytes;
      }
    };
    const int64_t most = joined.epoch == a.epoch ? most_ : most_around(a.at, c.at);
    make(1);
    for (const Change& change : changes) {
      for (int at = change.from; at < change.to; ++at) {
        if (live_[at] <= most) continue;
        make(-1);
        return false;
      }
    }
    return true;
  }

  // What may live where a recomputation joins a gradient: as much as lived between their places,
  // or, where no product is recomputed, well less than the most. Who recomputes products does so
  // because bytes are short, and such steps have their peak where they go back. (By plans of 108
  // steps: 3/4 everywhere raised the peak of 17 by 0.1 to 9%, this of two by at most 0.7%.) A step
  // in parts has its peak in the body, and what its most is elsewhere says nothing of that.
  int64_t most_around(int place, int other) const {
    const auto [first, last] = std::minmax(place, other);
    const int64_t lived = *std::max_element(live_.begin() + first, live_.begin() + last + 1);
    const bool tight = repeats_products_ || !scheme_.loop.empty();
    return tight ? lived : std::max(lived, most_ / 4 * 3);
  }

  // ---- the scheme again ----

  Morphism morphism_of(const Group& g) const {
    const auto last = std::find_if(g.members.rbegin(), g.members.rend(), [&](int member) {
      return scheme_.morphisms[member].epoch == g.epoch;
    });
    Morphism m = scheme_.morphisms[*last];
    m.op = "map";
    MapCall call = map_call(fold_exactly(g.body), g.space, types_of(g.inputs), types_of(g.outputs));
    m.attrs = std::move(call.attrs);
    m.inputs.clear();
    for (const int operand : call.operands) m.inputs.push_back(g.inputs[operand]);
    m.outputs = g.outputs;
    m.epoch = g.epoch;
    if (g.repeated > 0 && g.epoch == 0) m.attrs["repeated"] = g.repeated;
    std::vector<std::string> from;
    for (const int member : g.members) {
      const Morphism& each = scheme_.morphisms[member];
      const auto before = each.attrs.find("from");
      from.push_back(before == each.attrs.end() ? to_string(each.source)
                                                : std::get<std::string>(before->second));
    }
    m.attrs["from"] = adjoint::join(from, " ");
    return m;
  }

  // A group waits for all that its members waited for; who waited for a value that is a register
  // now waits for what its group makes.
  void wait_for_groups(const Group& g, Morphism& m) const {
    std::set<Value> after;
    for (const int member : g.members) {
      for (const Value v : scheme_.morphisms[member].after) {
        const int maker = made_by_[v] < 0 ? -1 : group_of_[made_by_[v]];
        if (maker == group_of_[member]) continue;
        const bool made = maker < 0 || std::count(groups_[maker].outputs.begin(),
                                                  groups_[maker].outputs.end(), v) > 0;
        after.insert(made ? v : groups_[maker].outputs.front());
      }
    }
    m.after.assign(after.begin(), after.end());
  }

  Scheme written() {
    std::vector<const Group*> order;
    for (const Group& g : groups_) {
      if (!g.members.empty()) order.push_back(&g);
    }
    std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->at < b->at; });
    std::vector<Morphism> morphisms;
    morphisms.reserve(order.size());
    for (const Group* g : order) {
      morphisms.push_back(g->members.size() > 1 ? morphism_of(*g) : front(*g));
      wait_for_groups(*g, morphisms.back());
    }
    scheme_.morphisms = std::move(morphisms);
    return compact(std::move(scheme_));
  }

  Scheme scheme_;
  const FusionLimits& limits_;
  int64_t& matches_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  std::vector<std::vector<int>> before_, after_;  // per morphism: who is, without being read
  std::vector<int> group_of_;
  std::vector<bool> fusible_;
  std::vector<bool> kept_;  // returned or carried
  std::vector<Group> groups_;
  std::vector<Value> grown_from_;  // per object: see analysis/accumulators.h
  std::vector<Value> view_of_;
  std::vector<std::vector<Value>> views_;  // per object that is none: its views
  std::vector<int64_t> live_;              // bytes, by place
  int64_t most_ = 0;
  bool repeats_products_ = false;
};

}  // namespace

extern const Functor functor_fuse = {
    .name = "fuse",
    .summary = "chains of elementwise and row ops as one, the values between them in registers",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kExact,
               [](Scheme scheme, Application& application) {
                 return Fusion(std::move(scheme), fusion_limits(application.options.target),
                               application.matches)
                     .run();
               }}},
};

}  // namespace adjoint

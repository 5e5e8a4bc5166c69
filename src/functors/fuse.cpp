// Chains of elementwise and row ops become one `map` by joining their bodies:
//   d = dropout(a); x = add(r, d); n = layer_norm(x, w, b)  ->  x, n = map(a, counter, r, w, b)
// A value between two of them is then read from a register: one write and one read of a tensor
// less. The bits stay, for a register holds what memory would have held: float32, or rounded to 16
// bits.
//
// What the backward recomputes joins the gradient that reads it, or that reads the same:
//   h = mul(silu(g), u) recomputed; dW = contract(dy, h); dh = contract(dy, W); dg, du = ...(dh, g,
//   u)
//   ->  dh = contract(dy, W); h, dg, du = map(dh, g, u); dW = contract(dy, h)
// so g and u are read once. Only such a group moves the readers of its results (dW) behind itself.
// The plan can then no longer run them earlier, so the group is made only where memory is left
// over.
//
// Groups grow in the order of the scheme. fuse_groups.h says what two groups are together,
// fuse_order.h where they may stand, and fuse_lives.h whether too much would live at once.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "body/join.h"
#include "functors/functor.h"
#include "functors/fuse_groups.h"
#include "functors/fuse_lives.h"
#include "functors/fuse_order.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

class Fusion {
 public:
  Fusion(const Scheme& scheme, const FusionLimits& limits)
      : scheme_(scheme), graph_(scheme), groups_(graph_, limits), lives_(groups_) {}

  Scheme run(int64_t& matches) {
    for (int m = 0; m < graph_.num_calls(); ++m) {
      if (groups_.is_fusible(m)) absorb_makers(m);
    }
    for (int m = 0; m < graph_.num_calls(); ++m) {
      if (groups_.is_fusible(m) && graph_.call(m).epoch > 0) join_sibling(m);
    }
    matches += joined_;
    return written();
  }

 private:
  void absorb_makers(int call) {
    bool grown = true;
    while (grown) {
      grown = false;
      const int mine = groups_.group_of(call);
      for (const Value in : groups_[mine].inputs) {
        const int maker = graph_.maker(in);
        if (maker < 0 || !groups_.is_fusible(maker)) continue;
        if (try_join(groups_.group_of(maker), mine)) {
          grown = true;
          break;  // the group is another one now
        }
      }
    }
  }

  // What is recomputed, and a gradient that reads a whole operand of it.
  void join_sibling(int clone) {
    const int mine = groups_.group_of(clone);
    if (groups_[mine].epoch == 0) return;
    for (const Value in : groups_[mine].inputs) {
      if (scheme_[in].type.num_elements() < elements(groups_[mine].space)) continue;
      for (const int reader : graph_.readers(in)) {
        const int other = groups_.group_of(reader);
        if (other != mine && groups_.is_fusible(reader) && groups_[other].epoch == 0 &&
            try_join(mine, other)) {
          return;
        }
      }
    }
  }

  bool try_join(int maker, int reader) {
    const Group &a = groups_[maker], &c = groups_[reader];
    const Morphism &first = groups_.leader(a), &second = groups_.leader(c);
    if (first.phase != second.phase) return false;
    if (!may_join(scheme_, first, second, Recomputed::kMayJoin)) return false;
    const bool recomputes = a.epoch != c.epoch;
    if (!same_sizes(a.space, c.space)) return false;
    auto group = groups_.joined(a, c);
    if (!group || !groups_.is_worthwhile(a, c, *group)) return false;
    // At the reader's place if it can be, else at the maker's.
    for (const int at : {std::max(a.at, c.at), std::min(a.at, c.at)}) {
      const auto late = late_readers(groups_, maker, reader, at);
      if (!late || (!late->empty() && !recomputes)) continue;
      group->at = at;
      if (!lives_.admit(a, c, *group, *late)) continue;
      group->repeated =
          recomputes ? c.repeated + flops_of(*group) - flops_of(c) : a.repeated + c.repeated;
      groups_.replace(maker, reader, *std::move(group), *late);
      ++joined_;
      return true;
    }
    return false;
  }

  // ---- the scheme of all groups ----

  Morphism morphism_of(const Group& g) const {
    Morphism m = groups_.leader(g);
    m.op = "map";
    MapCall call = map_call(fold_exactly(g.body), g.space, groups_.types_of(g.inputs),
                            groups_.types_of(g.outputs));
    m.attrs = std::move(call.attrs);
    m.inputs.clear();
    for (const int operand : call.operands) m.inputs.push_back(g.inputs[operand]);
    m.outputs = g.outputs;
    m.epoch = g.epoch;
    if (g.repeated > 0 && g.epoch == 0) m.attrs["repeated"] = g.repeated;
    std::vector<std::string> from;
    for (const int member : g.members) {
      const Morphism& each = graph_.call(member);
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
      for (const Value v : graph_.call(member).after) {
        const int maker = graph_.maker(v) < 0 ? -1 : groups_.group_of(graph_.maker(v));
        if (maker == groups_.group_of(member)) continue;
        const bool made = maker < 0 || std::count(groups_[maker].outputs.begin(),
                                                  groups_[maker].outputs.end(), v) > 0;
        after.insert(made ? v : groups_[maker].outputs.front());
      }
    }
    m.after.assign(after.begin(), after.end());
  }

  Scheme written() const {
    std::vector<const Group*> order;
    for (const Group& g : groups_.all()) {
      if (!g.members.empty()) order.push_back(&g);
    }
    std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->at < b->at; });
    std::vector<Morphism> morphisms;
    morphisms.reserve(order.size());
    for (const Group* g : order) {
      morphisms.push_back(g->members.size() > 1 ? morphism_of(*g) : groups_.leader(*g));
      wait_for_groups(*g, morphisms.back());
    }
    Scheme result = without_morphisms(scheme_);
    result.morphisms = std::move(morphisms);
    return compact(std::move(result));
  }

  const Scheme& scheme_;
  Graph graph_;
  Groups groups_;
  Lives lives_;
  int64_t joined_ = 0;
};

}  // namespace

extern const Functor functor_fuse = {
    .name = "fuse",
    .summary = "chains of elementwise and row ops as one, the values between them in registers",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kExact,
               [](const Scheme& scheme, Application& application) {
                 return Fusion(scheme, fusion_limits(application.options.target))
                     .run(application.matches);
               }}},
};

}  // namespace adjoint

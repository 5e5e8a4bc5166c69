// p', m', v' = adamw(p, g, m, v, rate, factor, ok, t), once per parameter
//   ->  all of them = gang(p0, g0, m0, v0, p1, ..., rate, factor, ok, t), once per set of
//   constants.
// A step has dozens of updates, most of them of vectors: one pass over all of them starts the
// threads once and keeps all of them busy. Bits stay, for every call runs as it did alone.
//
// Only where it costs no memory. Updates run together when all that they read is there, so all of
// it must be there in any case before the first of them: inputs of the step, and what is made
// before a number that all of them read. That is so with clipping: the factor waits for the norm of
// all gradients. Without it each update asks about its own gradient only, which dies there and
// then; nothing is shared, and nothing joins. A moment that is fetched from another tier for its
// update and goes home after it would have to be there with all others, so such an update stays
// alone.
#include <algorithm>
#include <map>
#include <set>

#include "body/facts.h"
#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

struct Update {
  int morphism = -1;
  size_t own = 0;  // operands before those that it may share
};

class Gangs {
 public:
  explicit Gangs(const Scheme& scheme)
      : scheme_(scheme),
        made_by_(producers(scheme)),
        read_by_(readers(scheme)),
        carried_to_(scheme.objects.size(), -1),
        awaited_(scheme.objects.size(), false) {
    for (const Carry& c : scheme.carries) carried_to_[c.out] = c.in;
    for (const Carry& c : scheme.loop) awaited_[c.in] = awaited_[c.out] = true;
    for (const Morphism& m : scheme.morphisms) {
      for (const std::vector<Value>* values : {&m.inputs, &m.after}) {
        for (const Value v : *values) awaited_[v] = true;
      }
    }
  }

  struct Found {
    std::map<int, Morphism> gangs;  // by the last member's place
    std::set<int> joined;
  };
  Found find(int64_t& matches, std::map<std::string, int64_t>& counts) const {
    std::map<std::string, std::vector<Update>> by_kind;
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const auto update = update_at(static_cast<int>(i));
      if (update && all_there_before(*update)) by_kind[kind_of(*update)].push_back(*update);
    }
    Found found;
    for (const auto& [kind, updates] : by_kind) {
      if (updates.size() < 2) continue;
      found.gangs.emplace(updates.back().morphism, gang_of(updates));
      for (const Update& u : updates) found.joined.insert(u.morphism);
      matches += static_cast<int64_t>(updates.size());
      ++counts["gangs"];
    }
    return found;
  }

 private:
  const Morphism& morphism(const Update& u) const { return scheme_.morphisms[u.morphism]; }
  bool writes(const Morphism& m, Value in) const {
    return std::any_of(m.outputs.begin(), m.outputs.end(),
                       [&](Value out) { return carried_to_[out] == in; });
  }
  bool on_device(Value v) const { return scheme_[v].attributes.tier == Tier::kDevice; }

  // A call that a body alone says, that only writes state over what it reads of it, and whose
  // results nobody asks for before the next step.
  std::optional<Update> update_at(int i) const {
    const Morphism& m = scheme_.morphisms[i];
    const OpDef& def = op_named(m.op);
    if (!is_row_op(def) || m.outputs.empty()) return std::nullopt;
    for (const Value out : m.outputs) {
      const Value in = carried_to_[out];
      if (in < 0 || awaited_[out] || !on_device(out)) return std::nullopt;
      if (!std::count(m.inputs.begin(), m.inputs.end(), in)) return std::nullopt;
    }
    if (!std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value v) { return on_device(v); })) {
      return std::nullopt;
    }
    const Body body = body_of(call_of(scheme_, m));
    const bool sums = std::any_of(body.outputs.begin(), body.outputs.end(), is_sum);
    const bool draws = std::any_of(body.nodes.begin(), body.nodes.end(),
                                   [](const ExprNode& n) { return n.kind == ExprKind::kRandom; });
    if (sums || draws) return std::nullopt;
    Update update{.morphism = i, .own = m.inputs.size()};
    while (update.own > 0) {
      const Value last = m.inputs[update.own - 1];
      if (scheme_[last].type.rank() > 0 || writes(m, last)) break;
      --update.own;
    }
    if (update.own == m.inputs.size()) return std::nullopt;
    return update;
  }

  // Everything that must have run before what this update shares with others is there.
  const std::vector<bool>& run_before(const Update& u) const {
    const Morphism& m = morphism(u);
    const std::vector<Value> shared(m.inputs.begin() + static_cast<int64_t>(u.own), m.inputs.end());
    std::vector<bool>& before = before_[shared];
    if (!before.empty()) return before;
    before.assign(scheme_.morphisms.size(), false);
    std::vector<Value> open = shared;
    while (!open.empty()) {
      const int maker = made_by_[open.back()];
      open.pop_back();
      if (maker < 0 || before[maker]) continue;
      before[maker] = true;
      const Morphism& made = scheme_.morphisms[maker];
      for (const std::vector<Value>* values : {&made.inputs, &made.after}) {
        open.insert(open.end(), values->begin(), values->end());
      }
    }
    return before;
  }

  // Does the update need nothing that comes after what it shares with others? What it reads exists
  // by then, and who reads the old state, itself or a view of it, has run.
  bool all_there_before(const Update& u) const {
    const Morphism& m = morphism(u);
    const std::vector<bool>& before = run_before(u);
    const auto exists = [&](Value v) { return made_by_[v] < 0 || before[made_by_[v]]; };
    if (!std::all_of(m.inputs.begin(), m.inputs.end(), exists)) return false;
    if (!std::all_of(m.after.begin(), m.after.end(), exists)) return false;
    std::vector<Value> old;
    for (const Value out : m.outputs) old.push_back(carried_to_[out]);
    for (size_t k = 0; k < old.size(); ++k) {
      for (const int reader : read_by_[old[k]]) {
        if (reader == u.morphism) continue;
        if (!before[reader]) return false;
        const Morphism& other = scheme_.morphisms[reader];
        if (op_named(other.op).view || op_named(other.op).lies == LiesWithin::kJoins)
          old.push_back(other.outputs[0]);
      }
    }
    return true;
  }

  // What the members of a gang have in common.
  std::string kind_of(const Update& u) const {
    const Morphism& m = morphism(u);
    std::string kind = gang_kind(m) + " " + std::to_string(u.own);
    for (size_t k = u.own; k < m.inputs.size(); ++k) kind += " %" + std::to_string(m.inputs[k]);
    return kind;
  }

  Morphism gang_of(const std::vector<Update>& updates) const {
    std::vector<const Morphism*> calls;
    for (const Update& u : updates) calls.push_back(&morphism(u));
    // Of no one parameter: of what all of them belong to.
    return join_calls(calls, updates.back().own, {"optimizer", calls.back()->op});
  }

  const Scheme& scheme_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  std::vector<Value> carried_to_;
  std::vector<bool> awaited_;  // per object: read, waited for, or handed to the next iteration
  mutable std::map<std::vector<Value>, std::vector<bool>> before_;  // by what is shared
};

}  // namespace

extern const Functor functor_gang_updates = {
    .name = "gang_updates",
    .summary = "the updates of all parameters in one pass, where all they read is there at once",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kExact,
               [](Scheme scheme, Application& application) {
                 auto found = Gangs(scheme).find(application.matches, application.counts);
                 return with_gangs(std::move(scheme), std::move(found.gangs), found.joined);
               }}},
};

}  // namespace adjoint

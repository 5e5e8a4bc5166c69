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

#include "body/facts.h"
#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

class Updates {
 public:
  explicit Updates(const Graph& graph)
      : graph_(graph), awaited_(graph.scheme().objects.size(), false) {
    for (const Carry& c : graph.scheme().loop) awaited_[c.in] = awaited_[c.out] = true;
    for (const Morphism& m : graph.scheme().morphisms) {
      for (const std::vector<Value>* values : {&m.inputs, &m.after}) {
        for (const Value v : *values) awaited_[v] = true;
      }
    }
    for (int m = 0; m < graph.num_calls(); ++m) {
      if (auto update = update_at(m)) updates_.push_back(*std::move(update));
    }
  }

  std::vector<Gang> gangs() const {
    GangKinds kinds(graph_.scheme());
    std::map<int, size_t> shared;
    for (const Update& u : there_before_what_they_share()) {
      std::string more = std::to_string(u.own);
      const std::vector<Value>& inputs = graph_.call(u.call).inputs;
      for (size_t k = u.own; k < inputs.size(); ++k) more += " %" + std::to_string(inputs[k]);
      kinds.add(u.call, more);
      shared[u.call] = inputs.size() - u.own;
    }
    std::vector<Gang> gangs;
    for (const auto& [kind, calls] : kinds.all()) {
      if (calls.size() < 2) continue;
      // Of no one parameter: of what all of them belong to.
      gangs.push_back({.calls = calls,
                       .at = calls.back(),
                       .shared = shared[calls.back()],
                       .source = {"optimizer", graph_.call(calls.back()).op}});
    }
    return gangs;
  }

 private:
  struct Update {
    int call = -1;
    size_t own = 0;                // operands before those that it may share
    std::vector<int> before = {};  // calls that must have run before it
  };

  bool is_on_device(Value v) const { return graph_.scheme()[v].attributes.tier == Tier::kDevice; }
  bool writes(const Morphism& m, Value in) const {
    return std::any_of(m.outputs.begin(), m.outputs.end(),
                       [&](Value out) { return graph_.state_of(out) == in; });
  }

  // An update: a row op whose results all overwrite state that it reads, and are read by nobody in
  // this step.
  std::optional<Update> update_at(int call) const {
    const Morphism& m = graph_.call(call);
    if (!is_row_op(op_named(m.op)) || m.outputs.empty()) return std::nullopt;
    for (const Value out : m.outputs) {
      const Value in = graph_.state_of(out);
      if (in < 0 || awaited_[out] || !is_on_device(out)) return std::nullopt;
      if (!std::count(m.inputs.begin(), m.inputs.end(), in)) return std::nullopt;
    }
    if (!std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value v) { return is_on_device(v); })) {
      return std::nullopt;
    }
    if (!runs_in_units(body_of(call_of(graph_.scheme(), m)))) return std::nullopt;
    Update update{.call = call, .own = m.inputs.size()};
    while (update.own > 0) {
      const Value last = m.inputs[update.own - 1];
      if (graph_.scheme()[last].type.rank() > 0 || writes(m, last)) break;
      --update.own;
    }
    if (update.own == m.inputs.size()) return std::nullopt;
    for (const Value v : m.inputs) {
      if (graph_.maker(v) >= 0) update.before.push_back(graph_.maker(v));
    }
    const std::vector<int>& held_by = graph_.held_by(call);
    update.before.insert(update.before.end(), held_by.begin(), held_by.end());
    return update;
  }

  // Those that need nothing that comes after what they share with others: what they read exists by
  // then, and who reads the old state, itself or a view of it, has run.
  std::vector<Update> there_before_what_they_share() const {
    std::vector<int> some;
    for (const Update& u : updates_) some.insert(some.end(), u.before.begin(), u.before.end());
    std::sort(some.begin(), some.end());
    some.erase(std::unique(some.begin(), some.end()), some.end());
    const Before before(graph_, some);
    const auto is_shared_later = [&](const Update& u, int call) {
      const auto k =
          static_cast<size_t>(std::lower_bound(some.begin(), some.end(), call) - some.begin());
      const std::vector<Value>& inputs = graph_.call(u.call).inputs;
      return std::any_of(inputs.begin() + static_cast<int64_t>(u.own), inputs.end(), [&](Value v) {
        const int maker = graph_.maker(v);
        return maker >= 0 && (maker == call || before.has(k, maker));
      });
    };
    std::vector<Update> found;
    for (const Update& u : updates_) {
      if (std::all_of(u.before.begin(), u.before.end(),
                      [&](int call) { return is_shared_later(u, call); })) {
        found.push_back(u);
      }
    }
    return found;
  }

  const Graph& graph_;
  std::vector<bool> awaited_;  // per object: read, waited for, or handed to the next iteration
  std::vector<Update> updates_;
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
                 const std::vector<Gang> gangs = Updates(Graph(scheme)).gangs();
                 return with_gangs(std::move(scheme), gangs, application);
               }}},
};

}  // namespace adjoint

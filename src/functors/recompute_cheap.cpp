// What the backward reads and a row of arithmetic makes (norms, gelu, silu(g)*u, dropped-out
// values, a parameter's 16-bit copy)  ->  recomputed, where everything it is made from is there in
// the backward anyway; recomputed apart where a whole segment is recomputed, so that it does not
// wait there from the segment's forward to its own block's backward.
// Its bytes are free in between, for one pass over memory; matrix products and attention are never
// repeated, and nothing is kept for its sake.
#include <algorithm>

#include "analysis/structure.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

class Cheap {
 public:
  explicit Cheap(const Scheme& scheme) : scheme_(scheme) {
    const size_t n = scheme.objects.size();
    read_back_.assign(n, false);
    seen_back_.assign(n, false);
    cheap_.assign(n, false);
    find_backward_reads();
    find_cheap(Residence::kUnsaid);
  }

  // Those in recomputed segments that the recomputation reads and the backward reads later.
  std::vector<Value> marks_apart() {
    find_cheap(Residence::kRecomputed);
    // What is recomputed for the backward's sake, directly or on the way to something that is.
    std::vector<bool> wanted(cheap_.size(), false), on_the_way = wanted;
    std::vector<Value> list;
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      if (m.phase != Phase::kForward) continue;
      const bool any = std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value out) {
        const Residence residence = scheme_[out].attributes.residence;
        wanted[out] = (residence == Residence::kRecomputed || residence == Residence::kApart) &&
                      (on_the_way[out] || seen_back_[out]);
        return wanted[out];
      });
      for (const Value out : m.outputs) {
        if (cheap_[out] && seen_back_[out] && on_the_way[out]) list.push_back(out);
      }
      for (const Value in : m.inputs) on_the_way[in] = on_the_way[in] || any;
    }
    return list;
  }

  // Those that the backward reads, and those that are needed on the way to them.
  std::vector<Value> marks() const {
    std::vector<bool> marked(cheap_.size(), false);
    std::vector<Value> list;
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      bool any = false;
      for (const Value out : m.outputs) {
        marked[out] = cheap_[out] && (marked[out] || seen_back_[out]);
        if (!marked[out]) continue;
        list.push_back(out);
        any = true;
      }
      if (!any) continue;
      for (const Value in : m.inputs) marked[in] = cheap_[in];
    }
    return list;
  }

 private:
  void find_backward_reads() {
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase == Phase::kForward) continue;
      for (const Value in : m.inputs) read_back_[in] = true;
    }
    // Whoever reads a view reads what it is a view of.
    seen_back_ = read_back_;
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      if (m.phase != Phase::kForward || !op_named(m.op).view) continue;
      if (seen_back_[m.outputs[0]]) seen_back_[m.inputs[0]] = true;
    }
  }

  void find_cheap(Residence said) {
    cheap_.assign(scheme_.objects.size(), false);
    // A state of the chain is where an epoch begins; what is returned or carried is there anyway;
    // what no data goes into serves all blocks.
    std::vector<bool> stays = returned_or_carried(scheme_);
    for (const Value state : find_chain(scheme_).states) stays[state] = true;
    const std::vector<bool> from_data = depends_on_data(scheme_);
    std::vector<bool> is_input(scheme_.objects.size(), false);
    for (const Value in : scheme_.inputs) is_input[in] = true;
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase != Phase::kForward) continue;
      const OpDef& def = op_named(m.op);
      if (!def.body || (def.effect != Effect::kPure && def.effect != Effect::kRandom)) continue;
      const bool there = std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value in) {
        return is_input[in] || read_back_[in] || cheap_[in];
      });
      for (const Value out : m.outputs) {
        cheap_[out] =
            there && from_data[out] && !stays[out] && scheme_[out].attributes.residence == said;
      }
    }
  }

  const Scheme& scheme_;
  std::vector<bool> read_back_;  // by the backward
  std::vector<bool> seen_back_;  // the same, or through a view
  std::vector<bool> cheap_;
};

// A parameter is always there, so what it is cast to need not be.
void mark_parameters(Scheme& scheme, Application& application) {
  const bool casts = std::any_of(scheme.objects.begin(), scheme.objects.end(), [](const Object& o) {
    return dtype_named(o.attributes.precision).has_value();
  });
  for (const Value in : scheme.inputs) {
    Object& object = scheme[in];
    if (!casts || object.role != Role::kParameter) continue;
    if (object.attributes.residence != Residence::kUnsaid) continue;
    object.attributes.residence = Residence::kRecomputed;
    ++application.matches;
  }
}

// Joined parameters that live in another tier are copied together for every block that reads them.
void mark_joined(Scheme& scheme, Application& application) {
  for (const Morphism& m : scheme.morphisms) {
    if (m.op != "concat" || m.phase != Phase::kForward) continue;
    const bool away = std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value in) {
      return scheme[in].role == Role::kParameter && scheme[in].attributes.tier == Tier::kHost;
    });
    Object& joined = scheme[m.outputs[0]];
    if (!away || joined.attributes.residence != Residence::kUnsaid) continue;
    joined.attributes.residence = Residence::kRecomputed;
    ++application.matches;
  }
}

Scheme mark_cheap(const Scheme& scheme, Application& application) {
  Scheme result = scheme;
  Cheap cheap(scheme);
  const auto mark = [&](const std::vector<Value>& values, Residence residence) {
    for (const Value v : values) result[v].attributes.residence = residence;
    application.matches += static_cast<int64_t>(values.size());
  };
  mark(cheap.marks(), Residence::kRecomputed);
  mark(cheap.marks_apart(), Residence::kApart);
  mark_parameters(result, application);
  mark_joined(result, application);
  return result;
}

}  // namespace

extern const Functor functor_recompute_cheap = {
    .name = "recompute_cheap",
    .summary = "computes norms and activations again in the backward instead of keeping them",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kStepRules, mark_cheap}},
};

}  // namespace adjoint

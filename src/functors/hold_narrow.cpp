// cast(W), W a parameter that is read in no other way  ->  W held in the cast's dtype. Parameters
// that are joined, views of them and rows that are chosen from them are one group: all of it is
// read through casts to that dtype, or none is held so.
#include "functors/hold_narrow.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

class Groups {
 public:
  explicit Groups(size_t n) : of_(n) { std::iota(of_.begin(), of_.end(), 0); }
  Value root(Value v) {
    while (of_[v] != v) v = of_[v] = of_[of_[v]];
    return v;
  }
  void join(Value a, Value b) { of_[root(a)] = root(b); }

 private:
  std::vector<Value> of_;
};

bool only_moves(const OpDef& def) { return def.view || def.lies == LiesWithin::kJoins; }

// Rows of a table are what they were in it.
bool chooses_rows(const Morphism& m, const std::vector<bool>& held) {
  const int table = op_named(m.op).table;
  return table >= 0 && table < static_cast<int>(m.inputs.size()) && held[m.inputs[table]] &&
         m.outputs.size() == 1;
}

}  // namespace

Scheme held_narrow(Scheme scheme, const std::function<bool(const Object&)>& may, int64_t& matches) {
  const size_t n = scheme.objects.size();
  std::vector<bool> held(n, false);  // a parameter that may be held otherwise, or rows of some
  for (const Value in : scheme.inputs) {
    const Object& object = scheme[in];
    held[in] = object.role == Role::kParameter && object.type.dtype == Dtype::kF32 && may(object);
  }
  for (const std::vector<Carry>* carries : {&scheme.carries, &scheme.loop}) {
    for (const Carry& c : *carries) held[c.in] = false;  // a step writes it
  }
  Groups groups(n);
  // Per group: the dtype of the casts that read it; f32 where something else reads it too.
  std::vector<std::optional<Dtype>> read_as(n);
  std::vector<std::pair<Value, Dtype>> reads;
  for (const Morphism& m : scheme.morphisms) {
    const bool all =
        std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value in) { return held[in]; });
    if (all && !m.inputs.empty() && only_moves(op_named(m.op))) {
      held[m.outputs[0]] = true;
      for (const Value in : m.inputs) groups.join(in, m.outputs[0]);
      continue;
    }
    if (chooses_rows(m, held)) {
      held[m.outputs[0]] = true;
      groups.join(m.inputs[op_named(m.op).table], m.outputs[0]);
      continue;
    }
    for (const Value in : m.inputs) {
      if (!held[in]) continue;
      const bool cast = is_cast(call_of(scheme, m));
      reads.emplace_back(in, cast ? scheme[m.outputs[0]].type.dtype : Dtype::kF32);
    }
  }
  for (const Value out : scheme.outputs) {
    if (held[out]) reads.emplace_back(out, Dtype::kF32);
  }
  for (const auto& [v, dtype] : reads) {
    std::optional<Dtype>& as = read_as[groups.root(v)];
    as = !as || *as == dtype ? dtype : Dtype::kF32;
  }
  const auto narrowed = [&](Value v) -> std::optional<Dtype> {
    const auto as = held[v] ? read_as[groups.root(v)] : std::nullopt;
    return as && size_of(*as) < size_of(Dtype::kF32) ? as : std::nullopt;
  };
  std::vector<Value> renamed(n);
  std::iota(renamed.begin(), renamed.end(), 0);
  std::vector<Morphism> left;
  for (Morphism& m : scheme.morphisms) {
    const bool gone = !m.inputs.empty() && !held[m.outputs[0]] && narrowed(m.inputs[0]) &&
                      is_cast(call_of(scheme, m));
    if (gone) {
      renamed[m.outputs[0]] = m.inputs[0];
      continue;
    }
    for (Value& in : m.inputs) in = renamed[in];
    left.push_back(std::move(m));
  }
  for (size_t v = 0; v < n; ++v) {
    const auto dtype = narrowed(static_cast<Value>(v));
    if (!dtype) continue;
    scheme.objects[v].type.dtype = *dtype;
    matches += scheme.objects[v].role == Role::kParameter;
  }
  for (Value& out : scheme.outputs) out = renamed[out];
  scheme.morphisms = std::move(left);
  return compact(std::move(scheme));
}

extern const Functor functor_hold_narrow = {
    .name = "hold_narrow",
    .summary = "a parameter that is read only after a cast to fewer bits is held in those bits",
    .law = Law::kExact,
    .may_match_none = true,
    .of_forward = true,
    .rules = {{FunctorPhase::kPositions,
               [](Scheme scheme, Application& application) {
                 const auto any = [](const Object&) { return true; };
                 return held_narrow(std::move(scheme), any, application.matches);
               }}},
};

}  // namespace adjoint

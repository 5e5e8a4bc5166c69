// w' = cast(w), once per parameter  ->  all of them = gang(w0, w1, ...), where the first one was.
// A GPU casts the parameters of a step in one launch. Bits stay.
//
// All results are there from the first cast on. So only those join that the backward pass reads:
// they are there together in any case when the forward ends, which is where a step's peak is. And
// vectors, whose copies take next to nothing and which are gone by then. A CPU starts a call for
// next to nothing, and its steps are left alone.
#include <algorithm>

#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

class Casts {
 public:
  explicit Casts(const Scheme& scheme)
      : scheme_(scheme), made_by_(producers(scheme)), read_by_(readers(scheme)) {}

  // By the first call's place: all of them.
  std::map<int, std::vector<int>> find(Application& application) const {
    std::map<std::string, std::vector<int>> by_kind;
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const Morphism& m = scheme_.morphisms[i];
      if (!joins(m)) continue;
      const Type& type = scheme_[m.inputs[0]].type;
      by_kind[gang_kind(m) + " of " + std::string(name(type.dtype))].push_back(static_cast<int>(i));
    }
    std::map<int, std::vector<int>> at;
    for (const auto& [kind, casts] : by_kind) {
      if (casts.size() < 2) continue;
      at[casts.front()] = casts;
      application.matches += static_cast<int64_t>(casts.size());
      ++application.counts["gangs"];
    }
    return at;
  }

 private:
  // Of a parameter as the step finds it, which is there from the start; one that is held back until
  // something else has run stays so.
  bool joins(const Morphism& m) const {
    if (m.op != "cast" || m.epoch != 0 || !m.after.empty()) return false;
    const Value in = m.inputs[0], out = m.outputs[0];
    return made_by_[in] < 0 && scheme_[in].role == Role::kParameter && on_device(in) &&
           on_device(out) &&
           (scheme_[out].type.rank() <= 1 || (!widens(m) && read_in_backward(out)));
  }

  // A parameter that is held in 16 bits is wide only where it is read.
  bool widens(const Morphism& m) const {
    return size_of(scheme_[m.outputs[0]].type.dtype) > size_of(scheme_[m.inputs[0]].type.dtype);
  }
  bool on_device(Value v) const { return scheme_[v].attributes.tier == Tier::kDevice; }

  bool read_in_backward(Value v) const {
    return std::any_of(read_by_[v].begin(), read_by_[v].end(), [&](int reader) {
      const Morphism& m = scheme_.morphisms[reader];
      return m.phase == Phase::kBackward || (op_named(m.op).view && read_in_backward(m.outputs[0]));
    });
  }

  const Scheme& scheme_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
};

}  // namespace

extern const Functor functor_gang_casts = {
    .name = "gang_casts",
    .summary = "parameters are cast in one launch, where that costs no memory",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact,
               [](Scheme scheme, Application& application) {
                 const auto gangs = Casts(scheme).find(application);
                 return with_gangs(std::move(scheme), gangs, {"parameters", "cast"});
               }}},
};

}  // namespace adjoint

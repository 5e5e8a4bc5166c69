// sum' = sum + part, once per vector of parameters and part of the batch  ->  all of them =
// gang(...), where the last one was. Matrices are summed by the products that make them; the
// gradients of norms and biases are a hundred vectors of a few KiB, and on a GPU a launch costs
// more than each. Bits stay; the parts wait for the last of them, which costs next to nothing. A
// CPU starts a call for next to nothing, and its steps are left alone.
#include <algorithm>

#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr Bytes kSmall{1 << 20};  // a vector; its part lives to the end of the backward

// Adds a vector to a sum that the next part of the batch goes on with.
bool adds_to_sum(const Scheme& scheme, const Morphism& m) {
  const Value sum = m.outputs[0];
  const Type& type = scheme[sum].type;
  if (!m.after.empty() || type.rank() != 1 || type.bytes() > kSmall) return false;
  const auto ends_here = [&](const Carry& c) { return c.out == sum; };
  if (!std::any_of(scheme.loop.begin(), scheme.loop.end(), ends_here)) return false;
  if (scheme[sum].attributes.tier != Tier::kDevice) return false;
  return is_addition(call_of(scheme, m)) &&
         std::all_of(m.inputs.begin(), m.inputs.end(),
                     [&](Value v) { return same_shape(scheme[v].type, type); });
}

Scheme gang_adds(Scheme scheme, Application& application) {
  if (scheme.loop.empty()) return scheme;
  GangKinds kinds(scheme);
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    if (adds_to_sum(scheme, m)) kinds.add(static_cast<int>(i), operand_dtypes(scheme, m));
  }
  std::vector<Gang> gangs;
  for (const auto& [kind, adds] : kinds.all()) {
    if (adds.size() < 2) continue;
    gangs.push_back({.calls = adds, .at = adds.back(), .source = {"gradients", "sum"}});
  }
  return with_gangs(std::move(scheme), gangs, application);
}

}  // namespace

extern const Functor functor_gang_adds = {
    .name = "gang_adds",
    .summary = "vectors are added to the sums of the parts before them in one launch",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact, gang_adds}},
};

}  // namespace adjoint

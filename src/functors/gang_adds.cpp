// sum' = sum + part, once per vector of parameters and part of the batch  ->  all of them =
// gang(...), where the last one was. Matrices are summed by the products that make them; the
// gradients of norms and biases are a hundred vectors of a few KiB, and on a GPU a launch costs
// more than each. Bits stay; the parts wait for the last of them, which costs next to nothing. A
// CPU starts a call for next to nothing, and its steps are left alone.
#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr Bytes kSmall{1 << 20};  // a vector; its part lives to the end of the backward

Scheme gang_adds(Scheme scheme, Application& application) {
  std::vector<bool> is_sum(scheme.objects.size(), false);
  for (const Carry& c : scheme.loop) is_sum[c.out] = true;
  std::map<std::string, std::vector<int>> by_kind;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    if (m.op != "add" || !m.after.empty() || !is_sum[m.outputs[0]]) continue;
    const Type& type = scheme[m.outputs[0]].type;
    if (type.rank() != 1 || type.bytes() > kSmall) continue;
    if (scheme[m.outputs[0]].attributes.tier != Tier::kDevice) continue;
    const auto dtype = [&](size_t k) { return std::string(name(scheme[m.inputs[k]].type.dtype)); };
    const auto is_like_sum = [&](Value v) { return same_shape(scheme[v].type, type); };
    if (!is_like_sum(m.inputs[0]) || !is_like_sum(m.inputs[1])) continue;
    by_kind[gang_kind(m) + " of " + dtype(0) + " and " + dtype(1)].push_back(static_cast<int>(i));
  }
  std::map<int, std::vector<int>> at;
  for (const auto& [kind, adds] : by_kind) {
    if (adds.size() < 2) continue;
    at[adds.back()] = adds;
    application.matches += static_cast<int64_t>(adds.size());
    ++application.counts["gangs"];
  }
  return with_gangs(std::move(scheme), at, {"gradients", "sum"});
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

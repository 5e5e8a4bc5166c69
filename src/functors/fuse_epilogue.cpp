// gelu(linear(x, W, b))  ->  linear_act(x, W, b), with the linear map's own result beside it where
// the gradient reads that. A device with epilogues spares a pass over the activation; the CPU does
// the two one after the other. The CPU keeps the bits; an epilogue may apply the function to the
// product's sums before they are rounded and added as they would be alone, so the promise is no
// more than the same sums in another order.
#include <algorithm>

#include "body/facts.h"
#include "functors/functor.h"
#include "functors/remove_morphisms.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// The body of an elementwise op of one operand, of the operand's dtype; else nothing. One that is
// folded to a constant (0 * x) is no function of what the map gives.
std::optional<Body> activation(const Scheme& scheme, const Morphism& m) {
  if (!op_named(m.op).body || m.inputs.size() != 1 || m.outputs.size() != 1) return std::nullopt;
  if (op_named(m.op).effect != Effect::kPure) return std::nullopt;
  if (scheme[m.inputs[0]].type != scheme[m.outputs[0]].type) return std::nullopt;
  const Body body = body_of(call_of(scheme, m));
  return is_elementwise(body) && without_dead_nodes(body).num_inputs() == 1 ? std::optional(body)
                                                                            : std::nullopt;
}

// What becomes of both must be the same, or one of them would be kept for the other's sake.
bool belong(const Scheme& scheme, const Morphism& linear, const Morphism& act) {
  return act.phase == linear.phase && act.epoch == linear.epoch && act.section == linear.section &&
         scheme[act.outputs[0]].attributes == scheme[linear.outputs[0]].attributes;
}

struct Epilogue {
  size_t linear;
  int act;
  std::string body;
  bool keep;  // others read what the linear map makes, too
};

std::vector<Epilogue> find_epilogues(const Scheme& scheme) {
  const std::vector<std::vector<int>> read_by = readers(scheme);
  std::vector<Epilogue> found;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& linear = scheme.morphisms[i];
    if (op_named(linear.op).weight < 0) continue;
    const Value pre = linear.outputs[0];
    for (const int reader : read_by[pre]) {
      const Morphism& act = scheme.morphisms[reader];
      if (!belong(scheme, linear, act)) continue;
      const auto body = activation(scheme, act);
      if (!body) continue;
      const bool keep = read_by[pre].size() > 1 ||
                        std::count(scheme.outputs.begin(), scheme.outputs.end(), pre) > 0;
      found.push_back({.linear = i, .act = reader, .body = print(*body), .keep = keep});
      break;
    }
  }
  return found;
}

Scheme fuse_epilogues(Scheme scheme, Application& application) {
  const std::vector<Epilogue> found = find_epilogues(scheme);
  if (found.empty()) return scheme;
  std::vector<bool> gone(scheme.morphisms.size(), false);
  for (const Epilogue& f : found) {
    Morphism& fused = scheme.morphisms[f.linear];
    const Value pre = fused.outputs[0];
    fused.op = "linear_act";
    fused.outputs = {scheme.morphisms[f.act].outputs[0]};
    fused.attrs["body"] = f.body;
    if (f.keep) {
      fused.outputs.push_back(pre);
      fused.attrs["keep"] = int64_t{1};
    }
    gone[f.act] = true;
    ++application.matches;
  }
  return without(std::move(scheme), gone);
}

}  // namespace

extern const Functor functor_fuse_epilogue = {
    .name = "fuse_epilogue",
    .summary = "a linear map and the elementwise function behind it become one morphism",
    .law = Law::kReassociating,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kBitChanging, fuse_epilogues}},
};

}  // namespace adjoint

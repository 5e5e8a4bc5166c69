// activations and their gradients in float16, whose small exponents need the loss scaled up:
//   control scale = 1  ->  state loss_scale, halved by a step whose gradients are not finite
// Such a step changes nothing else: without clipping, too, every update waits for the one norm.
// Parameters, their gradients, the optimizer's state and all sums stay float32.
#include <map>
#include <set>

#include "analysis/roles.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr double kFirstScale = 65536;
constexpr int64_t kWindow = 2000;  // good steps, after which a larger scale is tried

// The objects that bf16 narrows.
Scheme narrow_activations(const Scheme& scheme, Application& application) {
  Scheme result = scheme;
  const Roles roles(scheme);
  for (const Morphism& m : scheme.morphisms) {
    for (const Value v : m.outputs) {
      const bool gradient = roles.is(v, "gradient") && roles.is_of(v, "activation");
      if (!gradient && !roles.is(v, "activation")) continue;
      application.say(scheme, v, "precision", "f16");
      result[v].attributes.precision = "f16";
    }
  }
  return result;
}

// The morphism that makes the norm of all gradients, which the step returns.
const Morphism* global_factor(const Scheme& scheme) {
  const std::set<Value> returned(scheme.outputs.begin(), scheme.outputs.end());
  for (const Morphism& m : scheme.morphisms) {
    if (m.op == "gradient_factor" && m.outputs.size() == 3 && returned.count(m.outputs[2])) {
      return &m;
    }
  }
  return nullptr;
}

Scheme scale_loss(const Scheme& scheme, Application& application) {
  if (!application.training) return scheme;
  const Morphism* found = global_factor(scheme);
  CHECK(found, "a step returns the norm of its gradients");
  const Morphism whole = *found;
  Scheme result = scheme;
  const Value scale = whole.inputs[1], norm = whole.outputs[2];
  if (result[scale].role != Role::kControl) application.refuse("the loss is scaled already");
  result[scale].role = Role::kState;
  result[scale].source = {"loss_scale"};
  result[scale].init = Init{.kind = Init::Kind::kConstant, .scale = kFirstScale};
  Object counter = result[scale];
  counter.source.facet = "good";
  counter.init = Init{};
  const Value good = result.add_input(counter);

  // One answer for all: a gradient that overflowed says nothing about the others.
  std::map<Value, Value> renamed;
  for (const Morphism& m : result.morphisms) {
    if (m.op == "gradient_factor") renamed[m.outputs[1]] = whole.outputs[1];
  }
  for (Morphism& m : result.morphisms) {
    for (Value& in : m.inputs) {
      if (const auto other = renamed.find(in); other != renamed.end()) in = other->second;
    }
  }
  Object next_scale = result[scale], next_good = result[good];
  next_scale.init.reset();
  next_good.init.reset();
  const Value scale_out = result.add(next_scale), good_out = result.add(next_good);
  result.morphisms.push_back({.op = "loss_scale",
                              .inputs = {scale, good, norm},
                              .outputs = {scale_out, good_out},
                              .attrs = {{"window", kWindow}},
                              .source = {"loss_scale"},
                              .phase = Phase::kUpdate,
                              .section = whole.section});
  result.carries.push_back({scale, scale_out});
  result.carries.push_back({good, good_out});
  ++application.matches;
  return without_dead(std::move(result));
}

}  // namespace

extern const Functor functor_fp16 = {
    .name = "fp16",
    .summary = "activations and their gradients in float16, with the loss scaled dynamically",
    .law = Law::kApproximating,
    .rules = {{FunctorPhase::kStepRules, narrow_activations},
              {FunctorPhase::kStepRules, scale_loss}},
};

}  // namespace adjoint

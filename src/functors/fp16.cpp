// activations and their gradients in float16, whose small exponents need the loss scaled up:
//   control scale = 1  ->  state loss_scale, halved by a step whose gradients are not finite
// Such a step changes nothing else: even without clipping, every update waits for the norm.
// Parameters, their gradients, the optimizer's state and all sums stay float32.
#include <map>

#include "analysis/roles.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr double kFirstScale = 65536;
constexpr int64_t kWindow = 2000;  // good steps, after which a larger scale is tried

// Sets float16 on the objects that `bf16` would set bf16 on.
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

// The call that makes the norm of all gradients, the third that a step returns: it takes (count,
// scale, squares) and gives (factor, is it finite, norm).
const Morphism& global_factor(const Scheme& scheme) {
  CHECK(scheme.outputs.size() >= 3, "a step returns loss, count and the norm of its gradients");
  const int maker = producers(scheme)[scheme.outputs[2]];
  CHECK(maker >= 0 && scheme.morphisms[maker].outputs.size() == 3, "the norm has a factor");
  return scheme.morphisms[maker];
}

Scheme scale_loss(const Scheme& scheme, Application& application) {
  if (!application.training) return scheme;
  const Morphism whole = global_factor(scheme);
  Scheme result = scheme;
  const Value count = whole.inputs[0], scale = whole.inputs[1], norm = whole.outputs[2];
  if (result[scale].role != Role::kControl) application.refuse("the loss is scaled already");
  result[scale].role = Role::kState;
  result[scale].source = {"loss_scale"};
  result[scale].init = Init{.kind = Init::Kind::kConstant, .scale = kFirstScale};
  Object counter = result[scale];
  counter.source.facet = "good";
  counter.init = Init{};
  const Value good = result.add_input(counter);

  // All updates use one decision, because an overflow need not show in every gradient.
  std::map<Value, Value> renamed;
  for (const Morphism& m : result.morphisms) {
    if (const int verdict = op_named(m.op).verdict; verdict >= 0) {
      renamed[m.outputs[verdict]] = whole.outputs[verdict];
    }
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
                              .inputs = {scale, good, norm, count},
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

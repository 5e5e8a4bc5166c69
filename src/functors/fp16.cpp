// activations and their gradients in float16, whose small exponents need the loss scaled up:
//   control scale = 1  ->  state loss_scale, halved by a step whose gradients are not finite
// Such a step changes nothing else: without clipping, too, every update waits for the one norm.
// Parameters, their gradients, the optimizer's state and all sums stay float32.
#include <set>

#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr double kFirstScale = 65536;
constexpr int64_t kWindow = 2000;  // good steps, after which a larger scale is tried

std::vector<bool> depends_on_data(const Scheme& scheme) {
  std::vector<bool> depends(scheme.objects.size(), false);
  for (const Value in : scheme.inputs) depends[in] = scheme[in].role == Role::kInput;
  for (const Morphism& m : scheme.morphisms) {
    bool any = false;
    for (const Value in : m.inputs) any = any || depends[in];
    for (const Value out : m.outputs) depends[out] = any;
  }
  return depends;
}

// Results of bodies, and the first results of kernels: their others are log-sums and counts.
Scheme narrow_activations(const Scheme& scheme, Application& application) {
  Scheme result = scheme;
  const std::vector<bool> depends = depends_on_data(scheme);
  std::set<std::string> parameters;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kParameter) parameters.insert(scheme[in].source.path);
  }
  for (const Morphism& m : scheme.morphisms) {
    const size_t count = op_named(m.op).body ? m.outputs.size() : 1;
    for (size_t k = 0; k < count; ++k) {
      const Object& object = scheme[m.outputs[k]];
      const bool of_activation =
          object.role == Role::kActivation ||
          (object.role == Role::kGradient && !parameters.count(object.source.path));
      if (!of_activation || !depends[m.outputs[k]]) continue;
      if (!is_float(object.type.dtype) || object.type.rank() == 0) continue;
      application.say(scheme, m.outputs[k], "precision", "f16");
      result[m.outputs[k]].attributes.precision = "f16";
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
  return without_dead(result);
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

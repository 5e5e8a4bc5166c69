// From a model to a step: the whole way, in order. Say why when you add a line.
#include "base/error.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

extern const Functor functor_adjoint;
extern const Functor functor_optimizer;
extern const Functor functor_remove_dead;

std::span<const Functor* const> all_functors() {
  static const Functor* const functors[] = {
      // Text and config became a scheme in `models`.

      // Morphism rules rewrite the model itself, so the adjoint differentiates what they wrote.
      // (none yet)

      // The adjoint first: the optimizer asks it for gradients.
      &functor_adjoint,
      &functor_optimizer,

      // Step rules and object rules see every object that the step has.
      // (clipping and the single division are nodes of the optimizer's; none of their own yet)

      // Fusions that change bits come before residence, so that a clone copies the fused node.
      // (none yet)

      // Realizations: precision, placement, time, then residence and tier, which must see every
      // object that the others create.
      // (none yet: every attribute has its default)

      // Last, what keeps bits.
      &functor_remove_dead,
  };
  return functors;
}

Scheme training_step(const Scheme& forward, const StepOptions& options) {
  Scheme scheme = forward;
  FunctorPhase phase = FunctorPhase::kMorphisms;
  for (const Functor* functor : all_functors()) {
    CHECK(functor->phase >= phase, "functors stand in the order of their phases");
    phase = functor->phase;
    scheme = functor->apply(scheme, options);
    verify(scheme);
  }
  return scheme;
}

}  // namespace adjoint

// Drops morphisms whose results nobody reads, returns or carries. The same bits, fewer of them.
#include "functors/functor.h"

namespace adjoint {

namespace {

Scheme apply(const Scheme& scheme, const StepOptions&) { return without_dead(scheme); }

}  // namespace

extern const Functor functor_remove_dead = {
    .name = "remove_dead",
    .summary = "drops what nobody reads",
    .law = "exact",
    .phase = FunctorPhase::kExact,
    .apply = apply,
};

}  // namespace adjoint

// Drops morphisms whose results nobody reads, returns or carries. The same bits, fewer of them.
#include "functors/functor.h"

namespace adjoint {

extern const Functor functor_remove_dead = {
    .name = "remove_dead",
    .summary = "drops what nobody reads",
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kExact,
               [](const Scheme& scheme, Application&) { return without_dead(scheme); }}},
};

}  // namespace adjoint

#include "functors/functor.h"

namespace adjoint {

Scheme realize_tier(const Scheme& scheme) { return scheme; }

}  // namespace adjoint

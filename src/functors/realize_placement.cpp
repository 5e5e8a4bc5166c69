#include "functors/functor.h"

namespace adjoint {

Scheme realize_placement(const Scheme& scheme) { return scheme; }

}  // namespace adjoint

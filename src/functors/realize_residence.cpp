#include "functors/functor.h"

namespace adjoint {

Scheme realize_residence(const Scheme& scheme) { return scheme; }

}  // namespace adjoint

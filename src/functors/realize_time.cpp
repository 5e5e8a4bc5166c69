#include "functors/functor.h"

namespace adjoint {

Scheme realize_time(const Scheme& scheme) { return scheme; }

}  // namespace adjoint

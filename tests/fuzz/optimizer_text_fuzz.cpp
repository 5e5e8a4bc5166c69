// An optimizer's text.
#include "functors/optimizer_text.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(optimizer_text) { parse_optimizer(input, "my.optimizer"); }

}  // namespace adjoint

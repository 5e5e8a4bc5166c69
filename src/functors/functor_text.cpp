#include "functors/functor.h"

namespace adjoint {

std::span<const std::pair<std::string_view, std::string_view>> functor_texts() { return {}; }

Functor parse_functor(std::string_view, std::string_view file) { fail(file, ": not yet"); }

}  // namespace adjoint

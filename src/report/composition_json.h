// Which functors compose, for machines (docs/json.md, "The matrix of functors").
#pragma once
#include <nlohmann/json.hpp>

#include "laws/composition.h"

namespace adjoint {

nlohmann::json composition_json(const Composition& composition);

}  // namespace adjoint

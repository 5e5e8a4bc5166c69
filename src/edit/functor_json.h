// A functor's text as JSON: what a drawing of its rules is made of, with the place of every piece.
// docs/edit.md says what is in it.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

#include "functors/functor_text.h"

namespace adjoint {

nlohmann::json functor_json(std::string_view text, std::string_view file);
nlohmann::json functor_json(const FunctorText& functor, std::string_view text);

}  // namespace adjoint

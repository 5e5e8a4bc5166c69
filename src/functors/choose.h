// What `choose` adds to a forward scheme of a few positions.
#pragma once
#include <string_view>

namespace adjoint {

constexpr std::string_view kChoice = "choice";   // the input that says how tokens are drawn
constexpr std::string_view kNextToken = "next";  // the facet of the token that was drawn

}  // namespace adjoint

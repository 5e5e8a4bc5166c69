// The pages of docs that travel inside the program (scripts/embed_texts.py).
#pragma once
#include <span>
#include <string_view>

namespace adjoint {

struct HelpPage {
  std::string_view name;  // notation.md
  std::string_view text;
};
std::span<const HelpPage> pages();

}  // namespace adjoint

// Texts that brackets and quotes hold together: a stack's functors, a functor's arguments.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

// Without blanks and ends of lines around it.
std::string trimmed(std::string_view text);

struct SplitPart {
  std::string text;  // trimmed
  size_t at = 0;     // where it begins in the whole
};

// What stands between the characters `between` that are outside of brackets and quotes; one part,
// maybe an empty one, where there is none.
std::vector<SplitPart> split_outside_brackets(std::string_view text, char between);

}  // namespace adjoint

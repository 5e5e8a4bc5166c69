// Which functor a word means that is the name of none.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

// Those that a stack can name.
std::vector<std::string> stackable_functors();

// The functor that has this name, or that other programs call so (`elsewhere` in its text), with _
// or -; "": none.
std::string functor_called(std::string_view word);

// "; did you mean 'lora'?" of a word: what other programs call so, or the nearest name; or nothing.
std::string did_you_mean_functor(std::string_view word);

}  // namespace adjoint

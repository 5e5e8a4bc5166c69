// A flag that takes one of a few words.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

// Refuses another word, with the nearest of those.
inline void check_choice(const std::string& flag, const std::string& found,
                         const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), found) != choices.end()) return;
  std::string wanted = choices[0];
  for (size_t i = 1; i < choices.size(); ++i) {
    wanted += (i + 1 < choices.size() ? ", " : " or ") + choices[i];
  }
  fail(flag, ": wanted ", wanted, ", found '", found, "'", did_you_mean(found, choices));
}

}  // namespace adjoint

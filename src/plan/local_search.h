// Which tensors of a scheme without a chain to compute again: a search over sets of names, each set
// judged by a real plan. Down: of what is alive at the peak, whatever gives most bytes for its
// seconds goes next, until the budget is met. Then, while that makes it faster: one less, or one
// for another.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

using Names = std::set<std::string>;

struct LocalProblem {
  struct Judged {
    Bytes peak = {0};
    double seconds = 0;
  };
  // Of the step that computes these again; nothing where that is refused.
  std::function<std::optional<Judged>(const Names& again)> look;
  // What is alive at that step's peak and could be computed again, the most promising first.
  std::function<std::vector<std::string>(const Names& again)> at_peak;
};

// The fastest set found that is within the budget; the smallest found where none is.
Names search_locally(const LocalProblem& problem, Bytes budget);

}  // namespace adjoint

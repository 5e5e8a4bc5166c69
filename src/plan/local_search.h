// Which tensors to recompute in a scheme without a chain: a search over sets of names, in which a
// real plan judges each set. First it descends: of the tensors that are alive at the peak, the one
// that frees the most bytes per second is added, until the budget is met. Then, while the step gets
// faster, it removes one tensor or exchanges one for another.
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
  // Peak and seconds of the step that recomputes these; nothing where that is refused.
  std::function<std::optional<Judged>(const Names& again)> look;
  // What is alive at that step's peak and could be recomputed, the most promising first.
  std::function<std::vector<std::string>(const Names& again)> at_peak;
};

// The fastest set found that is within the budget; the smallest found where none is.
Names search_locally(const LocalProblem& problem, Bytes budget);

}  // namespace adjoint

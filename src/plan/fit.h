// The fastest step within a budget of bytes: what is kept, recomputed or sent away, in how many
// parts the batch comes, and what lives in the next tier. A chain of blocks is solved exactly
// (plan/chain.h) with costs and bytes that real plans of it were seen to have; what has no chain is
// searched locally. Whatever is proposed is built, planned and timed before it is believed, and an
// answer is planned once more by the thread that asked before it is given.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/chain.h"
#include "plan/looks.h"

namespace adjoint {

class Fit {
 public:
  Fit(Scheme forward, FitOptions options);
  ~Fit();

  // The fastest that fits; nothing where none does.
  std::optional<FitPoint> best(Bytes budget);
  // The stack as it was given, with nothing chosen, and the same with every tensor kept.
  const FitPoint& given();
  const FitPoint& plain();
  FitPoint smallest();  // the least bytes that any choice comes to
  // Undominated points between the smallest and the plain one, fewest bytes first.
  std::vector<FitPoint> pareto(int points);
  // What has been looked at, the choice among them: the reason for it.
  std::vector<FitPoint> considered() const;

  // For those who judge the choice: the problem that the given stack's chain was measured to pose,
  // nothing where there is no chain to choose in, and a choice of it as a stack.
  const ChainProblem* chain_problem();
  std::string stack_of(const ChainChoice& choice);

 private:
  struct Search;
  std::unique_ptr<Search> search_;
};

}  // namespace adjoint

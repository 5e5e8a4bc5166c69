// Finds the fastest step within a budget of bytes: which tensors are kept, recomputed or offloaded,
// how many parts the batch comes in, and what lives in the host tier. A chain of blocks is solved
// exactly (plan/chain.h) with the bytes and seconds of real plans; a model without a chain is
// searched locally. Stages of a pipeline all make the same choice: what a block keeps is the same
// in every block, or states are kept at one distance, and the parts are the pipeline's own. Every
// proposal is built, planned and timed, and the answer is planned once more, by the calling thread,
// before it is returned.
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
  // All stacks that were planned, the chosen one among them: the reasons for the choice.
  std::vector<FitPoint> considered() const;
  // Whether the options ended a search before everything was tried: answers are then the best so
  // far.
  bool cut_off() const;

  // For tests that judge the choice: the given stack's chain as a problem (nullptr where there is
  // nothing to choose), and a solution of it as a stack.
  const ChainProblem* chain_problem();
  std::string stack_of(const ChainChoice& choice);

 private:
  struct Search;
  std::unique_ptr<Search> search_;
};

}  // namespace adjoint

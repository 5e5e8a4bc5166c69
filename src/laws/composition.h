// Which functors compose: every pair and some longer stacks, on several models, each held to its
// laws or refused with a reason. The matrix of docs/composition.md is printed from this.
#pragma once
#include "laws/verify.h"

namespace adjoint {

// The rows of the matrix: each functor as an item of a stack that suits a model of four blocks. A
// functor that is on by default is switched off there: `-fuse`. One that is on by default for a GPU
// alone is named, and runs on the CPU's kernels.
std::vector<std::string> matrix_items();
// Some of them as one stack, in which a functor that two of them bring stands once.
std::string stack_of_items(const std::vector<std::string>& items);

// A stack on several models.
struct Composed {
  std::string stack;
  Law law = Law::kExact;
  std::string against = {};               // of what it is true (functors/stack.h)
  int checked = 0;                        // models on which all its laws held
  std::vector<std::string> refused = {};  // why, for each model that refused it
  std::vector<std::string> broken = {};   // laws that did not hold, or orders that differ
};

struct Composition {
  std::vector<std::string> items;
  std::vector<std::vector<Composed>>
      pairs;                     // pairs[i][j] for j <= i; pairs[i][i] is functor i alone
  std::vector<Composed> stacks;  // stacks of three and more
  bool ok() const;
};

struct CompositionOptions {
  std::vector<ModelText> models;
  int64_t num_stacks = 12;  // of three to six functors, random with a fixed seed
  uint64_t seed = 1;
};

// Checks all of them on models whose steps take milliseconds.
Composition compose_all(const CompositionOptions& options, const Told& told = nullptr);
std::string to_markdown(const Composition& composition);

}  // namespace adjoint

// What composes with what: every pair of functors and some longer stacks, on several models, each
// checked within its laws or refused with its reason. docs/composition.md is printed from this.
#pragma once
#include "laws/verify.h"

namespace adjoint {

// How each functor stands in the matrix: as an item of a stack that suits a model of four blocks.
// One that is on by default stands there switched off: `-fuse`. One that is on by default for a GPU
// alone stands there by name, and runs on the CPU's kernels.
std::vector<std::string> matrix_items();

// A stack on several models.
struct Composed {
  std::string stack;
  Law law = Law::kExact;
  int checked = 0;                        // models on which all its laws held
  std::vector<std::string> refused = {};  // why, for each model that refused it
  std::vector<std::string> broken = {};   // laws that did not hold, or orders that differ
};

struct Composition {
  std::vector<std::string> items;
  std::vector<std::vector<Composed>> pairs;  // pairs[i][j] for j <= i; pairs[i][i] is one alone
  std::vector<Composed> stacks;              // longer ones
  bool ok() const;
};

struct CompositionOptions {
  std::vector<ModelText> models;
  int64_t num_stacks = 12;  // of three to six functors, drawn at random and always the same
  uint64_t seed = 1;
};

// The models at sizes that run in milliseconds.
Composition compose_all(const CompositionOptions& options, const Told& told = nullptr);
std::string to_markdown(const Composition& composition);

}  // namespace adjoint

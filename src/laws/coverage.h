// What a stack does and where: which branch of which rule acts on which kind of object, in the
// first, the last or an inner block, and which kinds of blocks are neighbours; and which calls
// there are, the model's own and those that rules made, since conditions on sizes and numbers of
// blocks are decided while a text is read (`relu(x) when l > 5 else gelu(x)`). A small copy can
// replace a model in a check only if it covers everything that the model does. Only schemes are
// built for this; nothing is run.
#pragma once
#include <string>
#include <vector>

#include "functors/stack.h"

namespace adjoint {

// One thing that a functor does. `key` is the same in a model and in a copy with fewer blocks.
struct Deed {
  std::string key;
  size_t functor;      // its place in the stack; behind all of them: no functor's
  std::string branch;  // as people read it
  std::string at;      // an object or use, for example; "": all of the scheme
  int64_t count = 0;   // how often
  auto operator<=>(const Deed&) const = default;
};

struct Coverage {
  std::vector<Deed> deeds = {};  // by key
  std::vector<std::string> functors = {};
};

// The coverage of the step that the stack makes. Throws an Error if the stack is refused.
Coverage coverage_of(const Scheme& forward, const Stack& stack, const StepOptions& options);

// A source without the numbers of repetitions: block[*].up.
std::string kind_of(const std::string& source);

// What the model's coverage has and the copy's lacks.
std::vector<Deed> missing(const Coverage& model, const Coverage& copy);

// One sentence for each functor and branch.
struct Unseen {
  size_t functor;
  std::string what;
};
std::vector<Unseen> describe(const Coverage& model, const std::vector<Deed>& missing);

}  // namespace adjoint

// A functor at work: what it was told, what it says of objects, and what it tells whoever asks.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "functors/arguments.h"
#include "functors/step_options.h"
#include "scheme/scheme.h"

namespace adjoint {

// A branch of a functor's rule that acted, and on what. Whoever checks a stack on a small copy of a
// model asks for these, because every branch that acts in the model must act in the copy.
struct Firing {
  size_t functor;      // its place in the stack
  std::string branch;  // the rule and its branch, as people read them
  std::string source;  // the object or use; "": all of the scheme
};

// One functor at work in one phase: what it was told, and what it tells.
class Application {
 public:
  std::string functor;  // its name, for messages
  const Arguments& args;
  const StepOptions& options;
  bool training = true;  // false: the scheme is evaluated, there are no gradients
  int64_t matches = 0;   // objects and morphisms that it found
  std::map<std::string, int64_t> counts = {};  // of them, by what they are or became
  // Rules that found nothing, with their places: a functor of several rules may have such in a
  // model that others of them speak of.
  std::vector<std::string> idle = {};
  // What a rule found that can hardly be meant, each sentence once: nothing is refused.
  std::vector<std::string> doubts = {};
  // Who has said what of an object's attribute, by source and attribute.
  struct Saying {
    std::string value, by;
    bool yields = false;  // to a functor that says something else
  };
  using Said = std::map<std::pair<std::string, std::string>, Saying>;
  Said* said = nullptr;
  // The scheme before any functor rewrote it, and those that have, for whoever finds nothing left.
  const Scheme* untouched = nullptr;
  std::vector<std::string> rewriters = {};
  // Ranks that other functors' axes of the mesh leave; 0: nobody asks.
  int ranks_left = 0;
  size_t index = 0;                        // of the functor, in its stack
  std::vector<Firing>* firings = nullptr;  // where they are asked for
  // The branches of the rule that speaks; none: what it says is the branch.
  std::vector<std::string> branches = {};

  void note(const std::string& branch, const std::string& source) {
    if (firings) firings->push_back({index, branch, source});
  }
  // Says `value` of an attribute of v, counts a match, and tells whether that is what holds. When
  // another functor said something else of it, one that yields does; of two that yield what is to
  // be trained is trained, so that a stack trains all that its functors train, in any order; and
  // where neither yields the stack is refused.
  bool say(const Scheme& scheme, Value v, const std::string& attribute, const std::string& value,
           bool yields = false);

  // Whether a rule of any functor so far made what is at this path, which is no part of the model.
  bool made(const std::string& path) const { return said->count({path, "made"}) > 0; }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(functor, ": ", parts...);
  }
};

}  // namespace adjoint

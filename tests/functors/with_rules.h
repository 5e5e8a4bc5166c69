// A functor of a few lines in a stack, small models for it, and the objects that it spoke of.
#pragma once
#include <set>
#include <string>

#include "functors/functor_text.h"
#include "functors/stack.h"
#include "models/small_models.h"

namespace adjoint {

// A functor of these lines, before the others of a stack.
inline Stack with_rules(const std::string& lines, const std::string& rest = "") {
  const Functor f = parse_functor("functor f:\n  law approximating\n" + lines + "\n", "f.functor");
  Stack stack = parse_stack(rest);
  stack.functors.insert(stack.functors.begin(), {f, Arguments("f", {}, Term{}), false});
  return stack;
}

inline Scheme small_gpt2(double layers = 4, double batch = 4, double dropout = 0) {
  return elaborate_preset("char", {{"layers", layers},
                                   {"hidden", 8},
                                   {"heads", 2},
                                   {"context", 4},
                                   {"vocab", 11},
                                   {"batch", batch},
                                   {"dropout", dropout}});
}
inline Scheme small_llama(double layers = 4) {
  return elaborate_preset("llama-tiny", {{"layers", layers}, {"context", 4}, {"batch", 2}});
}

using SourceNames = std::set<std::string>;
template <class Predicate>
SourceNames sources_where(const Scheme& scheme, const Predicate& holds) {
  SourceNames names;
  for (const Object& o : scheme.objects) {
    if (holds(o)) names.insert(to_string(o.source));
  }
  return names;
}
inline SourceNames frozen(const Scheme& scheme) {
  return sources_where(scheme, [](const Object& o) { return o.frozen; });
}

}  // namespace adjoint

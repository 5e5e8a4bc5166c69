// Functors are found by name, as a stack finds them.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

inline const Functor& functor_named(std::string_view name) {
  for (const Functor* functor : all_functors()) {
    if (functor->name == name) return *functor;
  }
  ADD_FAILURE() << "no functor " << name;
  std::abort();
}

// Text to text through one functor, with the verifier on both sides.
inline std::string applied(std::string_view functor, std::string_view text,
                           const StepOptions& options = {}) {
  const Scheme before = parse_scheme(text);
  verify(before);
  const Scheme after = functor_named(functor).apply(before, options);
  verify(after);
  return print(after);
}

}  // namespace adjoint

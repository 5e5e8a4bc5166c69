// Finds functors by name, as a stack does, and applies them.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

#include "functors/functor.h"
#include "functors/phases.h"
#include "ops/op_def.h"

namespace adjoint {

inline const Functor& functor_named(std::string_view name) {
  for (const Functor* functor : all_functors()) {
    if (functor->name == name) return *functor;
  }
  ADD_FAILURE() << "no functor " << name;
  std::abort();
}

// Applies one item of a stack, `checkpoint(every=2)`, with all its rules, or one of the two
// functors that make a step: adjoint, optimizer.
inline Scheme apply_functor(std::string_view item, const Scheme& before,
                            const StepOptions& options = {}) {
  if (item == "adjoint") return apply_adjoint(before);
  if (item == "optimizer") return apply_optimizer(before, options);
  const std::string name(item.substr(0, item.find('(')));
  const Functor& functor = functor_named(name);
  if (functor.on_gpu_only && options.target == Target::kCpu) return before;  // as defaults do
  const std::string call =
      item.find('(') == std::string_view::npos ? name + "()" : std::string(item);
  const Arguments args(name, functor.params, parse_term(call, "stack"));
  Application::Said said;
  Scheme scheme = before;
  for (const FunctorRule& rule : functor.rules) {
    Application application{.functor = name, .args = args, .options = options, .said = &said};
    scheme = rule.apply(scheme, application);
    verify(scheme);
  }
  return scheme;
}

// `text` with `what` replaced by `with`.
inline std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

// Applies one functor to a scheme's text and prints the result; verifies both.
inline std::string applied(std::string_view item, std::string_view text,
                           const StepOptions& options = {}) {
  const Scheme before = parse_scheme(text);
  verify(before);
  return print(apply_functor(item, before, options));
}

}  // namespace adjoint

// Every functor stands in the matrix of what composes; tests/long holds the document to it.
#include "laws/composition.h"

#include <gtest/gtest.h>

#include <set>

namespace adjoint {
namespace {

TEST(Composition, EveryFunctorHasAPlaceInTheMatrix) {
  std::set<std::string> seen;
  for (const std::string& item : matrix_items()) {
    if (item[0] == '-') {
      seen.insert(item.substr(1));
      continue;
    }
    const Stack stack = parse_stack(item);
    for (const StackedFunctor& f : stack.functors) {
      if (!f.by_default) seen.insert(f.functor.name);
      seen.insert(f.within.begin(), f.within.end());
    }
  }
  for (const Functor* f : all_functors()) {
    // The matrix is of steps, and no step has a functor of forward schemes (CacheLaw holds it).
    EXPECT_EQ(seen.count(f->name) > 0, !f->of_forward) << f->name;
  }
}

}  // namespace
}  // namespace adjoint

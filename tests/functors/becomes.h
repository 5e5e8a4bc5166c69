// What a functor makes of a scheme, told by source and meaning: which calls there are and what they
// read, by the sources of objects, and that the numbers stay. Texts of bodies and numbers of
// objects are left to whoever makes them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "functors/functor_named.h"
#include "kernels/harness.h"
#include "ops/builder.h"

namespace adjoint {

// "x, n = map(a, random, r)", and " after d" where it is held back, for each call in order.
inline std::vector<std::string> calls_by_source(const Scheme& scheme) {
  const auto names = [&](const std::vector<Value>& values) {
    std::vector<std::string> list;
    for (const Value v : values) list.push_back(to_string(scheme[v].source));
    return join(list, ", ");
  };
  std::vector<std::string> calls;
  for (const Morphism& m : scheme.morphisms) {
    calls.push_back(names(m.outputs) + " = " + m.op + "(" + names(m.inputs) + ")" +
                    (m.after.empty() ? "" : " after " + names(m.after)));
  }
  return calls;
}

// Numbers for the inputs of any small scheme: ids below 3, whole steps, and what is normal.
inline std::vector<Numbers> numbers_for(const Scheme& scheme) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  std::vector<Numbers> all;
  for (const Value in : scheme.inputs) {
    const Type& type = scheme[in].type;
    Numbers x(type.num_elements());
    for (double& value : x) {
      value = is_float(type.dtype) ? round_element(normal(random), type.dtype)
                                   : static_cast<double>(random() % 3);
    }
    all.push_back(std::move(x));
  }
  return all;
}

// One functor on a text: its calls are these.
inline Scheme expect_calls(std::string_view item, std::string_view text,
                           const std::vector<std::string>& calls) {
  const Scheme before = parse_scheme(text);
  verify(before);
  Scheme after = apply_functor(item, before);
  EXPECT_EQ(calls_by_source(after), calls) << print(after);
  return after;
}

// And what it returns has the sources, types and numbers that it had: all bits, or within rounding
// where the functor's law lets sums move.
inline void expect_becomes(std::string_view item, std::string_view text,
                           const std::vector<std::string>& calls) {
  const Scheme before = parse_scheme(text);
  const Scheme after = expect_calls(item, text, calls);
  const Law law = functor_named(item.substr(0, item.find('('))).law;
  const double allowed = law == Law::kExact ? 0 : 1e-5;
  const auto ends = [](const Scheme& scheme) {
    std::vector<std::string> list;
    for (const Value out : scheme.outputs) {
      list.push_back(to_string(scheme[out].source) + ": " + to_string(scheme[out].type));
    }
    for (const Carry& c : scheme.carries) {
      list.push_back(to_string(scheme[c.in].source) + " -> " + to_string(scheme[c.out].source));
    }
    return list;
  };
  EXPECT_EQ(ends(after), ends(before));
  const std::vector<Numbers> x = numbers_for(before);
  const auto made = run_scheme(after, x, false), wanted = run_scheme(before, x, false);
  ASSERT_EQ(made.size(), wanted.size());
  for (size_t k = 0; k < made.size(); ++k) {
    ASSERT_EQ(made[k].size(), wanted[k].size());
    for (size_t i = 0; i < made[k].size(); ++i) {
      const double a = made[k][i], b = wanted[k][i];
      const bool same = a == b || (std::isnan(a) && std::isnan(b));
      EXPECT_TRUE(same || std::abs(a - b) <= allowed * std::max(1.0, std::abs(b)))
          << ends(after)[k] << " [" << i << "]: " << a << ", wanted " << b << "\n"
          << print(after);
    }
  }
}

}  // namespace adjoint

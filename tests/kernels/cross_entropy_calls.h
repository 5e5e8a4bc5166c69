// Compares the loss and its gradient in one call with the two calls that it replaces.
#pragma once
#include <gtest/gtest.h>

#include "kernels/harness.h"

namespace adjoint {

// Logits are made inside the scheme, so that the gradient can overwrite them.
inline Scheme loss_and_gradient(const Type& logits, const Attrs& attrs, bool one_call) {
  Scheme s;
  const auto input = [&](const char* path, Type type) {
    return s.add_input({.type = std::move(type), .source = {path}, .role = Role::kInput});
  };
  const Value x = input("x", logits);
  const Value targets =
      input("targets", {Dtype::kI32, {logits.axes.begin(), logits.axes.end() - 1}});
  const Value scale = input("scale", {Dtype::kF32, {}});
  Builder b(s);
  b.at({"loss"}, Phase::kForward, Role::kActivation);
  const Value y = b.emit("add", {x, x});
  if (one_call) {
    s.outputs = b.emit_all("cross_entropy_with_grad", {y, targets, scale}, attrs);
  } else {
    const std::vector<Value> loss = b.emit_all("cross_entropy", {y, targets}, attrs);
    s.outputs = {loss[0], loss[1],
                 b.emit("cross_entropy_grad", {y, targets, loss[2], scale}, attrs)};
  }
  verify(s);
  return s;
}

// Rows for a warp and for a block, aligned to 16 bytes and not, with padding and without. The bits
// are compared.
inline void expect_one_call_is_two(Target target) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
    for (const int64_t classes : {5, 64, 1027, 16411}) {
      for (const int64_t room : {0, 5, 13}) {
        const Type logits{dtype, {{"b", 3}, {"s", 5}, {"v", classes, room ? classes + room : 0}}};
        const Sample sample{.inputs = {{Dtype::kF32, logits.axes}, {Dtype::kI32, {{"n", 15}}}},
                            .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                            .ids_below = classes,
                            .ignored_id = 3};
        std::vector<Numbers> x = sample_numbers(sample, dtype, 11);
        x.push_back({0.375});
        const Attrs three{{"ignore", int64_t{3}}}, none{{"ignore", int64_t{-1}}};
        const Attrs options{{"ignore", int64_t{3}}, {"smoothing", 0.1}, {"z", 1e-2}, {"cap", 3.0}};
        for (const Attrs& attrs : {three, none, options}) {
          const auto one = run_scheme(loss_and_gradient(logits, attrs, true), x, false, target);
          const auto two = run_scheme(loss_and_gradient(logits, attrs, false), x, false, target);
          EXPECT_EQ(one, two) << name(dtype) << " " << classes << " + " << room << " classes";
          EXPECT_EQ(one[1][0] < 15, attrs != none);
        }
      }
    }
  }
}

}  // namespace adjoint

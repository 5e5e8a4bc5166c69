// Compares the loss and its gradient in one call with the two calls that it replaces.
#pragma once
#include <gtest/gtest.h>

#include "kernels/harness.h"

namespace adjoint {

// Logits are made inside the scheme, so that the gradient can overwrite them where both have as
// much room.
inline Scheme loss_and_gradient(const Type& logits, int64_t gradient_room, const Attrs& attrs,
                                bool one_call) {
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
  Axis& of_gradient = s[s.outputs[2]].type.axes.back();
  of_gradient.padded = gradient_room ? of_gradient.size + gradient_room : 0;
  verify(s);
  return s;
}

// Rows for a warp and for a block, aligned to 16 bytes and not, with padding and without, that of
// the gradient as that of the logits or another. The bits are compared.
inline void expect_one_call_is_two(Target target) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
    for (const int64_t classes : {5, 64, 1027, 16411}) {
      for (const auto& [room, gradient_room] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {5, 5}, {0, 5}, {5, 0}}) {
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
          const auto run = [&](int64_t of_gradient, bool one_call) {
            return run_scheme(loss_and_gradient(logits, of_gradient, attrs, one_call), x, false,
                              target);
          };
          const auto one = run(gradient_room, true);
          const std::string what = std::string(name(dtype)) + " " + std::to_string(classes) +
                                   " + " + std::to_string(room) + " classes";
          EXPECT_EQ(one, run(gradient_room, false)) << what;
          if (gradient_room != room && attrs == three) {
            EXPECT_EQ(one, run(room, true)) << what << ", and another gradient's";
          }
          EXPECT_EQ(one[1][0] < 15, attrs != none);
        }
      }
    }
  }
}

}  // namespace adjoint

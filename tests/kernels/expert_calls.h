// Experts with more rows, results and terms than a tile of a kernel has, so that tiles have
// neighbours, rests and many steps.
#pragma once
#include "kernels/kernel_contract.h"
#include "ops/samples.h"

namespace adjoint::experts_calls {

constexpr int64_t kTokens = 200, kChosen = 2, kExperts = 5;

inline Sample large(std::vector<Type> inputs, Attrs attrs) {
  inputs.insert(inputs.begin() + 2, of({inputs[0].dim(0), kChosen}, Dtype::kI32));
  return {.inputs = std::move(inputs),
          .attrs = std::move(attrs),
          .fills = {Sample::Fill::kNormal, Sample::Fill::kNormal, Sample::Fill::kIds},
          .ids_below = kExperts - 1};  // nobody chooses the last
}

inline void expect_agrees(const char* op, const Sample& sample, Target target) {
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16, Dtype::kF32}) {
    const Scheme s = sample_scheme(op, sample, dtype);
    const std::vector<Numbers> x = sample_numbers(sample, dtype, 2);
    const std::vector<Numbers> got = run_scheme(s, x, false, target);
    expect_near_reference({s, x, tolerance(s), false, op}, got, target);
    EXPECT_EQ(got, run_scheme(s, x, false, target)) << "the same bits every time";
  }
}

inline void expect_rows_are_multiplied(Target target) {
  const Type matrices = of({kExperts, 520, 136});
  Sample biased = large({of({kTokens, 136}), matrices}, {});
  biased.inputs.push_back(of({kExperts, 520}));
  expect_agrees("expert_linear", biased, target);
  expect_agrees("expert_linear", large({of({kTokens, kChosen, 136}), matrices}, {}), target);
  expect_agrees("expert_linear",
                large({of({kTokens, kChosen, 520}), matrices},
                      {{"transposed", int64_t{1}}, {"sum", int64_t{1}}}),
                target);
  // A width that is no whole number of 16 bytes goes by another kernel, and one that is no whole
  // number of tiles has a rest.
  expect_agrees("expert_linear", large({of({kTokens, 67}), of({kExperts, 300, 67})}, {}), target);
  expect_agrees("expert_linear", large({of({kTokens, 72}), of({kExperts, 264, 72})}, {}), target);
}

inline void expect_rows_are_summed(Target target) {
  const Attrs experts = {{"experts", kExperts}};
  const Sample sample = large({of({kTokens, kChosen, 136}), of({kTokens, 264})}, experts);
  expect_agrees("expert_linear_grad", sample, target);
  Sample odd = large({of({kTokens, kChosen, 131}), of({kTokens, 67})}, experts);
  expect_agrees("expert_linear_grad", odd, target);
  Sample added = sample;
  added.inputs.push_back(of({kExperts, 136, 264}));
  expect_agrees("expert_linear_grad", added, target);
  // Rows enough for a kernel to cut experts' sums into parts, some more than once.
  Sample many = large({of({600, kChosen, 136}), of({600, 72})}, experts);
  many.ids_below = 2;
  expect_agrees("expert_linear_grad", many, target);
  many.inputs.push_back(of({kExperts, 136, 72}));
  expect_agrees("expert_linear_grad", many, target);
  // 16-bit rows, float32 sums, as a step has them.
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16}) {
    Sample wide = sample;
    for (const int i : {0, 1}) wide.inputs[i].dtype = dtype;
    wide.attrs["dtype"] = std::string("f32");
    const Scheme s = sample_scheme("expert_linear_grad", wide, Dtype::kF32);
    std::vector<Numbers> x = sample_numbers(wide, dtype, 2);
    // Operands are exact in 16 bits, so sums are as near as float32 is.
    expect_near_reference({s, x, 2e-6, false, "16-bit rows"}, run_scheme(s, x, false, target),
                          target);
  }
}

}  // namespace adjoint::experts_calls

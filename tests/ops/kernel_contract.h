// What kernels of any target are held to, op by op, driven by the op's samples.
#pragma once
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/harness.h"

namespace adjoint {

// The gradient of sum_k <weight_k, out_k> by every differentiable operand, as a scheme whose inputs
// are the operands and then the weights.
struct GradientScheme {
  Scheme scheme;
  std::vector<int> of;        // operands, in the order of the outputs
  std::vector<int> weighted;  // outputs of the op that have a weight
};

inline GradientScheme gradient_scheme(const OpDef& op, const Sample& sample, Dtype dtype) {
  GradientScheme result;
  Scheme s = sample_scheme(op.name, sample, dtype);
  const std::vector<Value> operands = s.inputs, outputs = s.outputs;
  std::vector<std::pair<Value, Value>> seeds;
  // Outputs beyond the first that only help the gradient (log-sums, counts) get none, as in a step.
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!is_float(s[outputs[k]].type.dtype)) continue;
    const bool helper = k > 0 && !op.body;
    if (helper) continue;
    result.weighted.push_back(static_cast<int>(k));
    seeds.emplace_back(outputs[k], s.add_input({.type = s[outputs[k]].type,
                                                .source = {"w" + std::to_string(k)},
                                                .role = Role::kInput}));
  }
  std::vector<Value> wanted;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool constant = std::count(op.constants.begin(), op.constants.end(), i) > 0;
    if (!is_float(s[operands[i]].type.dtype) || constant) continue;
    wanted.push_back(operands[i]);
    result.of.push_back(static_cast<int>(i));
  }
  Builder builder(s);
  const auto gradients = backpropagate(builder, 0, 1, seeds, wanted);
  s.outputs.clear();
  for (const auto& g : gradients) s.outputs.push_back(g.value());
  verify(s);
  result.scheme = std::move(s);
  return result;
}

inline std::vector<Numbers> weights_for(const GradientScheme& g, size_t operands, Dtype dtype) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<Numbers> weights;
  for (size_t i = operands; i < g.scheme.inputs.size(); ++i) {
    Numbers w(g.scheme[g.scheme.inputs[i]].type.num_elements());
    for (double& x : w) x = round_element(normal(random), dtype);
    weights.push_back(std::move(w));
  }
  return weights;
}

inline double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return 1e-12;
    case Dtype::kF32:
      return 2e-6;
    case Dtype::kF16:
      return 4e-3;
    default:
      return 3e-2;  // bf16 keeps 8 bits
  }
}

// A result is as good as the coarsest object on its way.
inline double tolerance(const Scheme& s) {
  double coarsest = 1e-12;
  for (const Object& o : s.objects) {
    if (is_float(o.type.dtype)) coarsest = std::max(coarsest, tolerance(o.type.dtype));
  }
  return coarsest;
}

// The kernels of a target give what the float64 reference gives, in every dtype, and so do those of
// the gradient.
inline void expect_kernels_agree(const OpDef& op, Target target) {
  for (const Sample& sample : op.samples ? op.samples() : std::vector<Sample>{}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
      const Scheme s = sample_scheme(op.name, sample, dtype);
      const std::vector<Numbers> x = sample_numbers(sample, dtype, 2);
      const auto want = run_scheme(s, x, true), got = run_scheme(s, x, false, target);
      for (size_t k = 0; k < want.size(); ++k) {
        EXPECT_LT(relative_error(got[k], want[k]), tolerance(s))
            << op.name << " " << name(dtype) << " output " << k << "\n"
            << print(s);
      }
      if (!op.differentiable) continue;
      const GradientScheme g = gradient_scheme(op, sample, dtype);
      if (g.of.empty()) continue;
      std::vector<Numbers> all = x;
      for (const Numbers& w : weights_for(g, x.size(), dtype)) all.push_back(w);
      const auto want_grad = run_scheme(g.scheme, all, true);
      const auto got_grad = run_scheme(g.scheme, all, false, target);
      for (size_t k = 0; k < want_grad.size(); ++k) {
        // A gradient that cancels to nearly nothing is held to the size of its terms.
        double size = 0;
        for (const double v : want_grad[k]) size = std::max(size, std::abs(v));
        if (size < 1e-3) continue;
        EXPECT_LT(relative_error(got_grad[k], want_grad[k]), 4 * tolerance(g.scheme))
            << op.name << " " << name(dtype) << " gradient by " << g.of[k] << "\n"
            << print(g.scheme);
      }
    }
  }
}

inline void expect_padding_changes_nothing(const OpDef& op, Target target) {
  for (Sample sample : op.samples ? op.samples() : std::vector<Sample>{}) {
    const Scheme plain = sample_scheme(op.name, sample, Dtype::kF32);
    const std::vector<Numbers> x = sample_numbers(sample, Dtype::kF32, 4);
    bool padded = false;
    for (Type& t : sample.inputs) {
      if (!is_float(t.dtype) || t.rank() < 2) continue;
      t.axes.back().padded = t.axes.back().size + 3;
      padded = true;
    }
    if (!padded) continue;
    Scheme s;
    try {
      s = sample_scheme(op.name, sample, Dtype::kF32);
    } catch (const Error&) {
      continue;  // an op may refuse padding
    }
    const auto want = run_scheme(plain, x, false, target), got = run_scheme(s, x, false, target);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_LT(relative_error(got[k], want[k]), tolerance(Dtype::kF32)) << print(s);
    }
  }
}

}  // namespace adjoint

// Runs small schemes on given numbers, by a target's kernels or by the float64 reference.
#pragma once
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "device/parallel.h"
#include "functors/reference.h"
#include "ops/builder.h"
#include "run/run.h"
#include "scheme/elements.h"

namespace adjoint {

using Numbers = std::vector<double>;

// One run of a scheme: inputs in order to outputs in order.
inline std::vector<Numbers> run_scheme(const Scheme& scheme, const std::vector<Numbers>& inputs,
                                       bool reference, Target target = Target::kCpu) {
  const Scheme s = reference ? to_reference(scheme) : scheme;
  Run run(s, make_plan(s, {.threads = num_threads(), .target = target, .deterministic = true}),
          {.reference = reference, .poison = true});
  run.fill_arena(std::byte{0xff});  // NaNs, so that a read before the write shows
  for (size_t i = 0; i < inputs.size(); ++i) run.set_values(s.inputs[i], inputs[i]);
  run.step();
  std::vector<Numbers> outputs;
  for (const Value out : s.outputs) outputs.push_back(run.values(out));
  return outputs;
}

// |a - b| / |b| over a whole tensor.
inline double relative_error(const Numbers& a, const Numbers& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  if (!std::isfinite(difference)) return INFINITY;
  return std::sqrt(difference / std::max(size, 1e-30));
}

// A sample as a scheme whose inputs are the operands. Every float32 becomes `dtype`, except for
// operand `wide`.
inline Scheme sample_scheme_but(std::string_view op, const Sample& sample, Dtype dtype,
                                size_t wide) {
  Scheme scheme;
  scheme.name = std::string(op);
  std::vector<Value> operands;
  for (Type type : sample.inputs) {
    if (type.dtype == Dtype::kF32 && operands.size() != wide) type.dtype = dtype;
    operands.push_back(scheme.add_input(
        {.type = type, .source = {"x" + std::to_string(operands.size())}, .role = Role::kInput}));
  }
  Builder builder(scheme);
  builder.at({std::string(op)}, Phase::kForward, Role::kActivation);
  scheme.outputs = builder.emit_all(op, operands, sample.attrs);
  return scheme;
}

// An op may need one operand in float32 whatever the others are: the loss's gradient needs its
// log-sums so.
inline Scheme sample_scheme(std::string_view op, const Sample& sample, Dtype dtype) {
  const bool narrow = dtype == Dtype::kBF16 || dtype == Dtype::kF16;
  for (size_t wide = sample.inputs.size(); narrow && wide > 0; --wide) {
    try {
      return sample_scheme_but(op, sample, dtype, wide);
    } catch (const Error&) {  // then another operand must be float32
    }
  }
  return sample_scheme_but(op, sample, dtype, sample.inputs.size());
}

inline std::vector<Numbers> sample_numbers(const Sample& sample, Dtype dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Numbers> numbers;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const Type& type = sample.inputs[i];
    const auto fill = i < sample.fills.size() ? sample.fills[i] : Sample::Fill::kNormal;
    Numbers x(type.num_elements());
    for (size_t k = 0; k < x.size(); ++k) {
      switch (fill) {
        case Sample::Fill::kNormal:
          x[k] = normal(random);
          break;
        case Sample::Fill::kLarge:
          x[k] = (k % 2 ? -1 : 1) * (k % 3 ? 100.0 : 1000.0);
          break;
        case Sample::Fill::kPositive:
          x[k] = 0.5 + std::abs(normal(random));
          break;
        case Sample::Fill::kOne:
          x[k] = 1;
          break;
        case Sample::Fill::kCounter:
          x[k] = std::vector<double>{7, 3, 2}[k % 3];
          break;
        case Sample::Fill::kIds: {
          const bool ignored = sample.ignored_id != -1 && random() % 5 == 0;
          x[k] = ignored ? static_cast<double>(sample.ignored_id)
                         : static_cast<double>(random() % sample.ids_below);
          break;
        }
      }
      if (is_float(type.dtype)) x[k] = round_element(x[k], dtype);
    }
    numbers.push_back(std::move(x));
  }
  return numbers;
}

}  // namespace adjoint

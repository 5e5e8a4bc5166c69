// The contract of kernels of every target, checked op by op from the op's samples.
#pragma once
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/harness.h"
#include "ops/padded.h"

namespace adjoint {

// The gradient of sum_k <weight_k, out_k> with respect to every differentiable operand, as a scheme
// whose inputs are the operands and then the weights.
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
  // Outputs that only help the gradient (log-sums, counts) get no weight, as in a step.
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

// The tolerance is that of the narrowest object in the scheme.
inline double tolerance(const Scheme& s) {
  double coarsest = 1e-12;
  for (const Object& o : s.objects) {
    if (is_float(o.type.dtype)) coarsest = std::max(coarsest, tolerance(o.type.dtype));
  }
  return coarsest;
}

// A scheme, numbers for its inputs, and how near its results must be to those of the float64
// reference.
struct KernelCheck {
  Scheme scheme;
  std::vector<Numbers> in;
  double tolerance;
  bool is_gradient;
  std::string what;
};

inline std::vector<Dtype> all_floats() {
  return {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64};
}

// Samples in some dtypes, and their gradients.
inline std::vector<KernelCheck> kernel_checks(const OpDef& op, const std::vector<Sample>& samples,
                                              const std::vector<Dtype>& dtypes) {
  std::vector<KernelCheck> checks;
  for (const Sample& sample : samples) {
    for (const Dtype dtype : dtypes) {
      const std::string what = std::string(op.name) + " " + std::string(name(dtype));
      const Scheme s = sample_scheme(op.name, sample, dtype);
      std::vector<Numbers> x = sample_numbers(sample, dtype, 2);
      checks.push_back({s, x, tolerance(s), false, what});
      if (!op.differentiable) continue;
      const GradientScheme g = gradient_scheme(op, sample, dtype);
      if (g.of.empty()) continue;
      for (const Numbers& w : weights_for(g, x.size(), dtype)) x.push_back(w);
      checks.push_back({g.scheme, x, 4 * tolerance(g.scheme), true, "gradient of " + what});
    }
  }
  return checks;
}

inline std::vector<KernelCheck> kernel_checks(const OpDef& op) {
  return kernel_checks(op, op.samples ? op.samples() : std::vector<Sample>{}, all_floats());
}

// The operands, with every float perturbed by up to a unit in the last place and rounded to its
// dtype.
inline std::vector<Numbers> jittered(const KernelCheck& check, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> by(-1, 1);
  std::vector<Numbers> moved = check.in;
  for (size_t i = 0; i < moved.size(); ++i) {
    const Dtype dtype = check.scheme[check.scheme.inputs[i]].type.dtype;
    if (!is_float(dtype)) continue;
    const double unit = dtype == Dtype::kBF16  ? 0x1p-7
                        : dtype == Dtype::kF16 ? 0x1p-10
                        : dtype == Dtype::kF32 ? 0x1p-22
                                               : 0x1p-51;
    for (double& n : moved[i]) n = round_element(n * (1 + unit * by(random)), dtype);
  }
  return moved;
}

// |a - b| of two whole tensors.
inline double distance(const Numbers& a, const Numbers& b) {
  double squares = 0;
  for (size_t i = 0; i < b.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

// A gradient may be the small difference of large terms (layer_norm of two numbers), and then it is
// as noisy as those terms. This noise is measured: how far the kernel's result moves when operands
// move by a unit in the last place, while the reference hardly moves. A wrong kernel is off by more
// than that.
inline double noise(const KernelCheck& check, size_t result, Target target) {
  constexpr unsigned kTries = 4;
  constexpr double kTimes = 4;
  const Numbers here = run_scheme(check.scheme, check.in, false, target)[result];
  double most = 0;
  for (unsigned i = 0; i < kTries; ++i) {
    most = std::max(
        most,
        distance(run_scheme(check.scheme, jittered(check, 31 + i), false, target)[result], here));
  }
  return kTimes * most;
}

inline void expect_near_reference(const KernelCheck& check, const std::vector<Numbers>& got,
                                  Target target = Target::kCpu) {
  const std::vector<Numbers> want = run_scheme(check.scheme, check.in, true);
  for (size_t k = 0; k < want.size(); ++k) {
    const double error = relative_error(got[k], want[k]);
    if (error < check.tolerance) continue;
    // C++ leaves the conversion of a negative float to an unsigned integer undefined, and
    // processors and GPUs differ.
    const bool is_unsigned = check.scheme[check.scheme.outputs[k]].type.dtype == Dtype::kU8;
    if (is_unsigned && target == Target::kCuda) continue;
    const std::string where =
        check.what + ", result " + std::to_string(k) + "\n" + print(check.scheme);
    EXPECT_TRUE(check.is_gradient) << where << "is off by " << error;
    EXPECT_LT(distance(got[k], want[k]), noise(check, k, target)) << where << "off by " << error;
  }
}

// The kernels of a target, also those of the gradient, agree with the float64 reference in every
// dtype.
inline void expect_kernels_agree(const OpDef& op, Target target) {
  for (const KernelCheck& check : kernel_checks(op)) {
    expect_near_reference(check, run_scheme(check.scheme, check.in, false, target), target);
  }
}

// The samples from which calls with one operand of another dtype are made. The gradient of
// attention has no samples of its own, so attention's are used.
inline std::vector<Sample> samples_to_vary(const OpDef& op) {
  if (op.samples) return op.samples();
  std::vector<Sample> found;
  for (const Sample& sample : op_named("attention").samples()) {
    const Scheme g = gradient_scheme(op_named("attention"), sample, Dtype::kF32).scheme;
    for (const Morphism& m : g.morphisms) {
      if (m.op == op.name) found.push_back({.inputs = call_of(g, m).inputs, .attrs = m.attrs});
    }
  }
  return found;
}

// Rounds and clamps numbers to what the dtype can hold.
inline void fit_into(Numbers& numbers, Dtype dtype) {
  for (double& n : numbers) {
    if (is_float(dtype)) {
      n = round_element(n, dtype);
    } else {
      n = std::clamp(std::nearbyint(n), dtype == Dtype::kU8 ? 0.0 : -100.0, 100.0);
    }
  }
}

// Kernels can run every call that `infer` accepts: with any operand of a sample in any dtype, the
// call is refused or gives the reference's result. Returns how many calls were accepted.
inline int expect_reads_what_it_takes(const OpDef& op, Target target) {
  int taken = 0;
  for (const Sample& sample : samples_to_vary(op)) {
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      for (int d = 0; d < kNumDtypes; ++d) {
        Sample other = sample;
        Type& type = other.inputs[i];
        if (type.dtype == static_cast<Dtype>(d)) continue;
        type.dtype = static_cast<Dtype>(d);
        Scheme s;
        try {
          s = sample_scheme(op.name, other, Dtype::kF32);
        } catch (const Error&) {
          continue;
        }
        std::vector<Numbers> x = sample_numbers(other, Dtype::kF32, 8);
        fit_into(x[i], type.dtype);
        const std::string what = std::string(op.name) + " with operand " + std::to_string(i) +
                                 " in " + std::string(name(type.dtype));
        expect_near_reference({s, x, tolerance(s), false, what}, run_scheme(s, x, false, target),
                              target);
        ++taken;
      }
    }
  }
  return taken;
}

// ---- padding: room behind the elements of rows, which holds anything ----

// Room beyond an axis's size, of the nth object of a call; 0: none.
struct Padding {
  const char* name;
  int64_t (*room)(int64_t size, int64_t nth, bool is_operand);
};
inline constexpr Padding kPaddings[] = {
    {"room for operands", [](int64_t, int64_t nth, bool of) { return of ? 3 + nth : 0; }},
    {"room for results", [](int64_t, int64_t nth, bool of) { return of ? 0 : 3 + nth; }},
    {"as much room for all", [](int64_t, int64_t, bool) -> int64_t { return 3; }},
    {"other room for each", [](int64_t, int64_t nth, bool) { return 1 + nth; }},
    // Widths that 16 bytes divide, where a GPU takes other ways.
    {"other even widths",
     [](int64_t size, int64_t nth, bool) { return (8 - size % 8) % 8 + 8 * nth; }},
    {"every second without",
     [](int64_t, int64_t nth, bool) -> int64_t { return nth % 2 ? 0 : 2 + nth; }},
    {"even widths for operands",
     [](int64_t size, int64_t, bool of) { return of ? (8 - size % 8) % 8 : 0; }},
    {"even widths for results",
     [](int64_t size, int64_t, bool of) { return of ? 0 : (8 - size % 8) % 8; }},
};

// The scheme with such room wherever its calls take it; as it is where they take none.
inline Scheme with_padding(Scheme scheme, const Padding& padding) {
  const std::vector<bool> may = may_be_padded(scheme);
  std::vector<bool> is_operand(scheme.objects.size(), false);
  for (const Value v : scheme.inputs) is_operand[v] = true;
  int64_t nth = 0;
  for (size_t v = 0; v < may.size(); ++v) {
    if (!may[v]) continue;
    Type& type = scheme.objects[v].type;
    for (Axis* axis : {&type.axes.back(), type.rank() == 2 ? &type.axes.front() : nullptr}) {
      const int64_t room = axis ? padding.room(axis->size, nth, is_operand[v]) : 0;
      if (room > 0) axis->padded = axis->size + room;
    }
    ++nth;
  }
  verify(scheme);
  return scheme;
}

// A scheme, and the same with room.
struct PaddingCheck {
  KernelCheck plain;
  Scheme padded;
  std::string what;
};

// Of an op that takes no room in an object of any width: where it lets its operands have some, its
// results have what it infers from them.
inline std::vector<PaddingCheck> inferred_padding_checks(const OpDef& op) {
  std::vector<PaddingCheck> checks;
  for (Sample sample : op.samples ? op.samples() : std::vector<Sample>{}) {
    const Scheme plain = sample_scheme(op.name, sample, Dtype::kF32);
    for (Type& t : sample.inputs) {
      if (is_float(t.dtype) && t.rank() >= 2) t.axes.back().padded = t.axes.back().size + 3;
    }
    try {
      Scheme padded = sample_scheme(op.name, sample, Dtype::kF32);
      if (padded == plain) continue;
      checks.push_back({{plain, sample_numbers(sample, Dtype::kF32, 4), tolerance(plain), false,
                         std::string(op.name)},
                        std::move(padded),
                        "inferred room"});
    } catch (const Error&) {  // it refuses padding
    }
  }
  return checks;
}

// Every sample with all kinds of room, each in one dtype: a body is compiled anew for every layout.
// On a GPU kernels by hand have ways of their own for 16 bits, so they are run in both dtypes.
inline std::vector<PaddingCheck> padding_checks(const OpDef& op, Target target) {
  std::vector<PaddingCheck> checks;
  if (!takes_padding(op)) return inferred_padding_checks(op);
  const std::vector<Dtype> both = {Dtype::kF32, Dtype::kBF16};
  const std::vector<Sample> samples = op.samples ? op.samples() : std::vector<Sample>{};
  for (const KernelCheck& plain : kernel_checks(op, samples, both)) {
    const bool narrow = plain.tolerance > 4 * tolerance(Dtype::kF32);
    for (size_t i = 0; i < std::size(kPaddings); ++i) {
      const bool both_dtypes = target == Target::kCuda && !op.body;
      if (plain.is_gradient || (narrow != (i % 2 == 0) && !both_dtypes)) continue;
      Scheme padded = with_padding(plain.scheme, kPaddings[i]);
      if (padded == plain.scheme) continue;
      checks.push_back({plain, std::move(padded), kPaddings[i].name});
    }
  }
  return checks;
}

// Inputs have NaNs in their room, as the arena is filled with them.
inline void expect_padding_changes_nothing(const OpDef& op, Target target) {
  for (const PaddingCheck& check : padding_checks(op, target)) {
    SCOPED_TRACE(check.what + "\n" + print(check.padded));
    expect_near_reference(check.plain, run_scheme(check.padded, check.plain.in, false, target),
                          target);
    if (target != Target::kCpu || !takes_padding(op)) continue;
    const std::vector<Numbers> want = run_scheme(check.plain.scheme, check.plain.in, true);
    const std::vector<Numbers> got = run_scheme(check.padded, check.plain.in, true);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_LT(relative_error(got[k], want[k]), 1e-12) << "the reference's result " << k;
    }
  }
}

}  // namespace adjoint

// One test for every op, driven by its samples: shapes, every gradient against finite differences
// in float64, kernels against the reference in every dtype, padding, the index map, refused calls.
// An op is under test the moment its line stands in ops.inc.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "ops/harness.h"

namespace adjoint {

void PrintTo(const OpDef* op, std::ostream* out) { *out << op->name; }

namespace {

class OpContract : public testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op() const { return *GetParam(); }
  std::vector<Sample> samples() const {
    return op().samples ? op().samples() : std::vector<Sample>{};
  }
};

// The gradient of sum_k <weight_k, out_k> by every differentiable operand, as a scheme whose inputs
// are the operands and then the weights.
struct GradientScheme {
  Scheme scheme;
  std::vector<int> of;        // operands, in the order of the outputs
  std::vector<int> weighted;  // outputs of the op that have a weight
};

GradientScheme gradient_scheme(const OpDef& op, const Sample& sample, Dtype dtype) {
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

std::vector<Numbers> weights_for(const GradientScheme& g, size_t operands, Dtype dtype) {
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

TEST_P(OpContract, StatesWhatItMust) {
  EXPECT_FALSE(op().summary.empty());
  EXPECT_TRUE(op().body || (op().infer && op().index_map && op().flops));
  EXPECT_TRUE(op().body || op().grad || !op().differentiable);
  EXPECT_TRUE(op().body || op().cpu);
  EXPECT_TRUE(op().body || op().reference || op().meaning);
  EXPECT_TRUE(op().samples || op().name == "attention_grad") << "driven by attention's samples";
  EXPECT_TRUE(op().refused);
}

TEST_P(OpContract, PrintsAndParsesBack) {
  for (const Sample& sample : samples()) {
    const Scheme s = sample_scheme(op().name, sample, Dtype::kF32);
    verify(s);
    EXPECT_EQ(parse_scheme(print(s)), s) << print(s);
  }
}

TEST_P(OpContract, GradientsAreFiniteDifferences) {
  if (!op().differentiable) GTEST_SKIP() << "no gradient";
  for (const Sample& sample : samples()) {
    const GradientScheme g = gradient_scheme(op(), sample, Dtype::kF64);
    if (g.of.empty()) continue;
    const Scheme forward = sample_scheme(op().name, sample, Dtype::kF64);
    std::vector<Numbers> x = sample_numbers(sample, Dtype::kF64, 1);
    const std::vector<Numbers> weights = weights_for(g, x.size(), Dtype::kF64);
    std::vector<Numbers> all = x;
    all.insert(all.end(), weights.begin(), weights.end());
    const std::vector<Numbers> gradients = run_scheme(g.scheme, all, true);
    const auto loss = [&] {
      const std::vector<Numbers> out = run_scheme(forward, x, true);
      double sum = 0;
      for (size_t k = 0; k < weights.size(); ++k) {
        for (size_t i = 0; i < weights[k].size(); ++i) sum += weights[k][i] * out[g.weighted[k]][i];
      }
      return sum;
    };
    for (size_t k = 0; k < g.of.size(); ++k) {
      Numbers& xs = x[g.of[k]];
      const size_t step = std::max<size_t>(1, xs.size() / 17);  // 17 elements of a large operand
      for (size_t i = 0; i < xs.size(); i += step) {
        const double at = xs[i], h = 1e-5;
        xs[i] = at + h;
        const double up = loss();
        xs[i] = at - h;
        const double down = loss();
        xs[i] = at;
        const double slope = (up - down) / (2 * h);
        EXPECT_NEAR(gradients[k][i], slope, 2e-5 * std::max(1.0, std::abs(slope)))
            << op().name << " by operand " << g.of[k] << ", element " << i << "\n"
            << print(g.scheme);
      }
    }
  }
}

double tolerance(Dtype dtype) {
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
double tolerance(const Scheme& s) {
  double coarsest = 1e-12;
  for (const Object& o : s.objects) {
    if (is_float(o.type.dtype)) coarsest = std::max(coarsest, tolerance(o.type.dtype));
  }
  return coarsest;
}

TEST_P(OpContract, KernelsAgreeWithTheReference) {
  for (const Sample& sample : samples()) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
      const Scheme s = sample_scheme(op().name, sample, dtype);
      const std::vector<Numbers> x = sample_numbers(sample, dtype, 2);
      const auto want = run_scheme(s, x, true), got = run_scheme(s, x, false);
      for (size_t k = 0; k < want.size(); ++k) {
        EXPECT_LT(relative_error(got[k], want[k]), tolerance(s))
            << op().name << " " << name(dtype) << " output " << k << "\n"
            << print(s);
      }
      if (!op().differentiable) continue;
      const GradientScheme g = gradient_scheme(op(), sample, dtype);
      if (g.of.empty()) continue;
      std::vector<Numbers> all = x;
      for (const Numbers& w : weights_for(g, x.size(), dtype)) all.push_back(w);
      const auto want_grad = run_scheme(g.scheme, all, true);
      const auto got_grad = run_scheme(g.scheme, all, false);
      for (size_t k = 0; k < want_grad.size(); ++k) {
        // A gradient that cancels to nearly nothing is held to the size of its terms.
        double size = 0;
        for (const double v : want_grad[k]) size = std::max(size, std::abs(v));
        if (size < 1e-3) continue;
        EXPECT_LT(relative_error(got_grad[k], want_grad[k]), 4 * tolerance(g.scheme))
            << op().name << " " << name(dtype) << " gradient by " << g.of[k] << "\n"
            << print(g.scheme);
      }
    }
  }
}

TEST_P(OpContract, ThreadsDoNotChangeBits) {
  const int threads = num_threads();
  for (const Sample& sample : samples()) {
    const Scheme s = sample_scheme(op().name, sample, Dtype::kF32);
    const std::vector<Numbers> x = sample_numbers(sample, Dtype::kF32, 3);
    set_num_threads(1);
    const auto one = run_scheme(s, x, false);
    set_num_threads(3);
    set_grain(1);
    const auto three = run_scheme(s, x, false);
    set_grain(0);
    set_num_threads(threads);
    // oneDNN's own split of a product is the exception; everything of ours is fixed by the shape.
    if (op().name == "linear" || op().name == "contract") continue;
    EXPECT_EQ(one, three) << op().name;
  }
}

TEST_P(OpContract, PaddingChangesNothing) {
  for (Sample sample : samples()) {
    const Scheme plain = sample_scheme(op().name, sample, Dtype::kF32);
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
      s = sample_scheme(op().name, sample, Dtype::kF32);
    } catch (const Error&) {
      continue;  // an op may refuse padding
    }
    const auto want = run_scheme(plain, x, false), got = run_scheme(s, x, false);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_LT(relative_error(got[k], want[k]), tolerance(Dtype::kF32)) << print(s);
    }
  }
}

// What the index map promises: along a parallel axis the halves of the operands give the halves of
// the result, along a summed axis they give results that add up.
Numbers half(const Numbers& x, const Type& type, const std::string& letters, char letter, int part,
             Type& half_type) {
  half_type = type;
  const size_t axis = letters.find(letter);
  if (axis == std::string::npos) return x;
  int64_t inner = 1, outer = 1;
  for (size_t a = axis + 1; a < type.axes.size(); ++a) inner *= type.axes[a].size;
  for (size_t a = 0; a < axis; ++a) outer *= type.axes[a].size;
  const int64_t size = type.axes[axis].size, cut = size / 2;
  const int64_t from = part == 0 ? 0 : cut, count = part == 0 ? cut : size - cut;
  half_type.axes[axis].size = count;
  Numbers result;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = from; i < from + count; ++i) {
      for (int64_t k = 0; k < inner; ++k) result.push_back(x[(o * size + i) * inner + k]);
    }
  }
  return result;
}

TEST_P(OpContract, IndexMapTellsHowWorkSplits) {
  if (op().effect == Effect::kRandom) GTEST_SKIP() << "random numbers count whole objects";
  for (const Sample& sample : samples()) {
    const Scheme s = sample_scheme(op().name, sample, Dtype::kF64);
    const OpCall call = call_of(s, s.morphisms[0]);
    const IndexMap map = index_map_of(call);
    ASSERT_EQ(map.inputs.size(), call.inputs.size());
    ASSERT_EQ(map.outputs.size(), s.outputs.size());
    std::map<char, int64_t> sizes;
    const auto collect = [&](const std::string& letters, const Type& type) {
      ASSERT_EQ(static_cast<int>(letters.size()), type.rank()) << to_string(map);
      for (size_t i = 0; i < letters.size(); ++i) {
        if (!std::isalpha(letters[i])) continue;
        const auto [at, fresh] = sizes.emplace(letters[i], type.axes[i].size);
        EXPECT_EQ(at->second, type.axes[i].size) << to_string(map) << " letter " << letters[i];
      }
    };
    for (size_t i = 0; i < map.inputs.size(); ++i) collect(map.inputs[i], call.inputs[i]);
    for (size_t k = 0; k < map.outputs.size(); ++k) collect(map.outputs[k], s[s.outputs[k]].type);

    // A shape said in an attribute would have to be cut too.
    if (call.attrs.count("shape") || op().name == "embed_grad") continue;
    const std::vector<Numbers> x = sample_numbers(sample, Dtype::kF64, 6);
    const auto whole = run_scheme(s, x, true);
    for (const auto& [letter, size] : sizes) {
      const bool in_an_operand = std::any_of(map.inputs.begin(), map.inputs.end(), [&](auto& in) {
        return in.find(letter) != std::string::npos;
      });
      if (size < 2 || !in_an_operand || map.whole.find(letter) != std::string::npos) continue;
      std::vector<std::vector<Numbers>> parts;
      for (const int part : {0, 1}) {
        Sample cut = sample;
        std::vector<Numbers> xs;
        for (size_t i = 0; i < x.size(); ++i) {
          xs.push_back(half(x[i], sample.inputs[i], map.inputs[i], letter, part, cut.inputs[i]));
        }
        parts.push_back(run_scheme(sample_scheme(op().name, cut, Dtype::kF64), xs, true));
      }
      for (size_t k = 0; k < whole.size(); ++k) {
        const Type& type = s[s.outputs[k]].type;
        for (const int part : {0, 1}) {
          Type ignored;
          if (map.outputs[k].find(letter) == std::string::npos) continue;
          const Numbers want = half(whole[k], type, map.outputs[k], letter, part, ignored);
          EXPECT_LT(relative_error(parts[part][k], want), 1e-12)
              << to_string(map) << ": " << letter << " is parallel\n"
              << print(s);
        }
        if (map.outputs[k].find(letter) != std::string::npos) continue;
        Numbers sum = parts[0][k];
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[1][k][i];
        EXPECT_LT(relative_error(sum, whole[k]), 1e-12)
            << to_string(map) << ": " << letter << " is summed\n"
            << print(s);
      }
    }
  }
}

TEST_P(OpContract, RefusesWhatDoesNotFit) {
  ASSERT_TRUE(op().refused);
  ASSERT_FALSE(op().refused().empty());
  for (const Sample& sample : op().refused()) {
    try {
      sample_scheme(op().name, sample, Dtype::kF32);
      ADD_FAILURE() << op().name << " took a call that it must refuse";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, OpContract, testing::ValuesIn(all_ops().begin(), all_ops().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Ops, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const OpDef* op : all_ops()) EXPECT_TRUE(names.insert(op->name).second) << op->name;
}

}  // namespace
}  // namespace adjoint

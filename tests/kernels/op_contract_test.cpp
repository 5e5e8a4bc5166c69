// One test for every op, driven by its samples: shapes, every gradient against finite differences
// in float64, kernels against the reference in every dtype, padding, the index map, refused calls.
// An op is under test the moment its line stands in ops.inc.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/harness.h"
#include "kernels/kernel_contract.h"

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

TEST_P(OpContract, StatesWhatItMust) {
  EXPECT_FALSE(op().summary.empty());
  EXPECT_TRUE(op().body || (op().infer && op().index_map && op().flops));
  EXPECT_TRUE(op().body || op().grad || !op().differentiable);
  for (const Target target : {Target::kCpu, Target::kCuda}) {
    EXPECT_TRUE(op().body || backend_of(target).find(op().name)) << name(target);
  }
  EXPECT_TRUE(op().body || op().meaning || reference_backend().find(op().name));
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

// What `linear` and `addend` say is so in numbers.
TEST_P(OpContract, IsLinearWhereItSaysSo) {
  bool says = false;
  for (const Sample& sample : samples()) {
    const Scheme scheme = sample_scheme(op().name, sample, Dtype::kF64);
    const OpCall call = call_of(scheme, scheme.morphisms[0]);
    const Linear linear = op().view     ? Linear::kTogether
                          : op().linear ? op().linear(call)
                                        : Linear::kNo;
    EXPECT_EQ(is_linear_together(call), linear == Linear::kTogether);
    const std::vector<Numbers> x = sample_numbers(sample, Dtype::kF64, 1);
    const std::vector<Numbers> y = sample_numbers(sample, Dtype::kF64, 2);
    // f(.., x + y, ..) = f(.., x, ..) + f(.., y, ..), where the operands in `which` are added.
    const auto expect_linear_in = [&](const std::vector<size_t>& which) {
      const auto is_number = [&](size_t k) { return is_float(call.inputs[k].dtype); };
      if (std::none_of(which.begin(), which.end(), is_number)) return;  // ids are moved, not added
      std::vector<Numbers> other = x, sum = x;
      for (const size_t k : which) {
        if (!is_float(call.inputs[k].dtype)) continue;
        other[k] = y[k];
        for (size_t i = 0; i < sum[k].size(); ++i) sum[k][i] = x[k][i] + y[k][i];
      }
      const auto fx = run_scheme(scheme, x, true), fy = run_scheme(scheme, other, true);
      std::vector<Numbers> want = fx;
      for (size_t o = 0; o < want.size(); ++o) {
        for (size_t i = 0; i < want[o].size(); ++i) want[o][i] += fy[o][i];
      }
      const auto have = run_scheme(scheme, sum, true);
      for (size_t o = 0; o < want.size(); ++o) {
        EXPECT_LT(relative_error(have[o], want[o]), 1e-12) << print(scheme);
      }
      says = true;
    };
    std::vector<size_t> all;
    for (size_t k = 0; k < call.inputs.size(); ++k) all.push_back(k);
    if (linear == Linear::kTogether && !all.empty()) expect_linear_in(all);
    for (const size_t k : all) {
      if (linear == Linear::kEach && is_float(call.inputs[k].dtype)) expect_linear_in({k});
    }
    if (!has_addend(op(), x.size())) continue;
    std::vector<Numbers> without = x;
    for (double& v : without[op().addend]) v = 0;
    Numbers want = run_scheme(scheme, without, true)[0];
    for (size_t i = 0; i < want.size(); ++i) want[i] += x[op().addend][i];
    EXPECT_LT(relative_error(run_scheme(scheme, x, true)[0], want), 1e-12) << print(scheme);
    says = true;
  }
  if (!says) GTEST_SKIP() << "says nothing of the kind";
}

bool rounds_to_whole(const Body& body) {
  return std::any_of(body.nodes.begin(), body.nodes.end(),
                     [](const ExprNode& n) { return n.kind == ExprKind::kWhole; });
}

TEST_P(OpContract, GradientsAreFiniteDifferences) {
  if (!op().differentiable) GTEST_SKIP() << "no gradient";
  for (const Sample& sample : samples()) {
    const GradientScheme g = gradient_scheme(op(), sample, Dtype::kF64);
    if (g.of.empty()) continue;
    const Scheme forward = sample_scheme(op().name, sample, Dtype::kF64);
    // What is rounded has no slope; its gradient goes straight through.
    const Dtype made = forward[forward.outputs[0]].type.dtype;
    if (made == Dtype::kBF16 || made == Dtype::kF16) continue;
    if (op().body && rounds_to_whole(body_of(call_of(forward, forward.morphisms[0])))) continue;
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
        double size = 0;  // of the sums whose last places the differences lose
        const auto slope_over = [&](double step) {
          xs[i] = at + step;
          const double up = loss();
          xs[i] = at - step;
          const double down = loss();
          xs[i] = at;
          size = std::max({size, std::abs(up), std::abs(down)});
          return (up - down) / (2 * step);
        };
        const double slope = slope_over(h);
        // What is small is held to its own size; a difference is no better than what a longer one
        // tells of the curve.
        double allowed = 1e-6 * std::abs(slope) + 0x1p-48 * size / h;
        if (std::abs(gradients[k][i] - slope) > allowed) {
          allowed += std::abs(slope_over(2 * h) - slope);
        }
        EXPECT_NEAR(gradients[k][i], slope, allowed)
            << op().name << " by operand " << g.of[k] << ", element " << i << "\n"
            << print(g.scheme);
      }
    }
  }
}

TEST_P(OpContract, KernelsAgreeWithTheReference) { expect_kernels_agree(op(), Target::kCpu); }

TEST_P(OpContract, ReadsTheDtypesThatItTakes) {
  RecordProperty("calls", expect_reads_what_it_takes(op(), Target::kCpu));
}

TEST_P(OpContract, PaddingChangesNothing) { expect_padding_changes_nothing(op(), Target::kCpu); }

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
    // oneDNN's own split of a product is the exception (of codes too, once their rows are many:
    // they are widened and multiplied there); everything of ours is fixed by the shape.
    if (op().name.starts_with("linear") || op().name.starts_with("expert_linear") ||
        op().name == "contract" || op().name == "code_linear")
      continue;
    EXPECT_EQ(one, three) << op().name;
  }
}

// A cut of a call's work in two halves along one letter of its index map.
struct Cut {
  const IndexMap& map;
  const std::map<char, int64_t>& sizes;  // of all letters
  char letter = 0;
  int part = 0;

  int64_t size() const { return sizes.at(letter); }
  int64_t from() const { return part == 0 ? 0 : size() / 2; }
  int64_t count() const { return part == 0 ? size() / 2 : size() - size() / 2; }

  // Places along an axis that are in this half.
  std::vector<int64_t> kept(char axis, int64_t length) const {
    const MergedAxis* merged = map.merged_axis(axis);
    const std::vector<std::string> segments =
        merged ? merged->segments : std::vector<std::string>{std::string(1, axis)};
    std::vector<int64_t> places;
    int64_t start = 0;
    for (const std::string& segment : segments) {
      int64_t total = 1, inner = 1;
      const size_t at = segment.find(letter);
      for (size_t i = 0; i < segment.size(); ++i) {
        const int64_t n = merged ? sizes.at(segment[i]) : length;
        total *= n;
        if (at != std::string::npos && i > at) inner *= n;
      }
      for (int64_t i = 0; i < total; ++i) {
        const int64_t index = i / inner % size();
        const bool mine = index >= from() && index < from() + count();
        if (at == std::string::npos || mine) places.push_back(start + i);
      }
      start += total;
    }
    EXPECT_EQ(start, length) << to_string(map) << " axis " << axis;
    return places;
  }
};

// What the index map promises: along a parallel axis the halves of the operands give the halves of
// the result, along a summed axis they give results that add up.
Numbers half(Numbers x, Type& type, const std::string& letters, const Cut& cut) {
  for (size_t axis = 0; axis < letters.size(); ++axis) {
    if (!cut.map.has(letters.substr(axis, 1), cut.letter)) continue;
    int64_t inner = 1, outer = 1;
    for (size_t a = axis + 1; a < type.axes.size(); ++a) inner *= type.axes[a].size;
    for (size_t a = 0; a < axis; ++a) outer *= type.axes[a].size;
    const int64_t size = type.axes[axis].size;
    const std::vector<int64_t> kept = cut.kept(letters[axis], size);
    Numbers result;
    for (int64_t o = 0; o < outer; ++o) {
      for (const int64_t i : kept) {
        for (int64_t k = 0; k < inner; ++k) result.push_back(x[(o * size + i) * inner + k]);
      }
    }
    type.axes[axis].size = static_cast<int64_t>(kept.size());
    x = std::move(result);
  }
  return x;
}

// An op with its operands.
struct Call {
  std::string op;
  std::vector<Type> types;
  Attrs attrs;
  std::vector<Numbers> x;

  Scheme scheme() const {
    return sample_scheme(op, {.inputs = types, .attrs = attrs}, Dtype::kF64);
  }
  std::vector<Numbers> run() const { return run_scheme(scheme(), x, true); }
};

Call half_of(const Call& whole, const Cut& cut) {
  Call call = whole;
  for (size_t i = 0; i < call.x.size(); ++i) {
    call.x[i] = half(call.x[i], call.types[i], cut.map.inputs[i], cut);
  }
  // A body that says its space has a letter for each axis of it, from a on.
  if (const auto shape = call.attrs.find("shape"); shape != call.attrs.end()) {
    std::get<std::vector<int64_t>>(shape->second)[cut.letter - 'a'] = cut.count();
  }
  for (const LetterCount& counted : cut.map.counts) {
    const auto attr = call.attrs.find(counted.attribute);
    if (attr == call.attrs.end() || counted.letters.find(cut.letter) == std::string::npos) continue;
    auto& count = std::get<int64_t>(attr->second);
    count = count / cut.size() * cut.count();
  }
  // The second half begins with a later sample.
  for (size_t i = 0; i < call.x.size(); ++i) {
    if (call.types[i] != random_counter_type()) continue;
    EXPECT_EQ(cut.letter, cut.map.inputs[0][0]) << "only samples are known to the random counter";
    call.x[i][2] += static_cast<double>(cut.from());
  }
  return call;
}

void expect_close(const Numbers& got, const Numbers& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double difference = 0, size = 1;
  for (size_t i = 0; i < want.size(); ++i) {
    difference = std::max(difference, std::abs(got[i] - want[i]));
    size = std::max(size, std::abs(want[i]));
  }
  EXPECT_LE(difference, 1e-12 * size) << what;
}

// What a merged axis holds beside letters that are axes elsewhere: one letter of each segment at
// most, whose size is what is left.
void find_merged_sizes(const IndexMap& map, std::map<char, int64_t>& sizes) {
  for (const MergedAxis& axis : map.merged) {
    const auto length = sizes.find(axis.letter);
    if (length == sizes.end()) continue;  // of no operand of this call
    // The length is linear in a letter that all segments or none but the unknown have.
    int64_t known = 0, times = 0;
    char unknown = 0;
    for (const std::string& segment : axis.segments) {
      int64_t n = 1;
      bool has_unknown = false;
      for (const char c : segment) {
        if (const auto size = sizes.find(c); size != sizes.end()) {
          n *= size->second;
        } else {
          ASSERT_TRUE(!unknown || unknown == c) << to_string(map);
          unknown = c;
          has_unknown = true;
        }
      }
      (has_unknown ? times : known) += n;
    }
    if (unknown) sizes[unknown] = (length->second - known) / times;
    sizes.erase(length);
  }
}

// Letters that an attribute counts, where all others of its product are known.
void find_counted_sizes(const IndexMap& map, const Attrs& attrs, std::map<char, int64_t>& sizes) {
  for (size_t left = map.counts.size(); left > 0; --left) {
    for (const LetterCount& counted : map.counts) {
      const auto attr = attrs.find(counted.attribute);
      if (attr == attrs.end() || counted.letters == ".") continue;
      int64_t count = std::get<int64_t>(attr->second);
      std::string unknown;
      for (const char c : counted.letters) {
        if (const auto size = sizes.find(c); size != sizes.end()) {
          count /= size->second;
        } else {
          unknown += c;
        }
      }
      if (unknown.size() == 1) sizes[unknown[0]] = count;
    }
  }
}

// The sizes of all letters, each of which has one.
std::map<char, int64_t> sizes_of(const IndexMap& map, const Attrs& attrs,
                                 const std::vector<Type>& inputs,
                                 const std::vector<Type>& outputs) {
  std::map<char, int64_t> sizes;
  const auto collect = [&](const std::string& letters, const Type& type) {
    ASSERT_EQ(static_cast<int>(letters.size()), type.rank()) << to_string(map);
    for (size_t i = 0; i < letters.size(); ++i) {
      if (!std::isalpha(letters[i])) continue;
      const auto [at, fresh] = sizes.emplace(letters[i], type.axes[i].size);
      EXPECT_EQ(at->second, type.axes[i].size) << to_string(map) << " letter " << letters[i];
    }
  };
  for (size_t i = 0; i < map.inputs.size(); ++i) collect(map.inputs[i], inputs[i]);
  for (size_t k = 0; k < map.outputs.size(); ++k) collect(map.outputs[k], outputs[k]);
  find_counted_sizes(map, attrs, sizes);
  find_merged_sizes(map, sizes);
  return sizes;
}

// Returns along how many letters it was split.
int expect_splits(const Call& call) {
  const Scheme s = call.scheme();
  const IndexMap map = index_map_of(call_of(s, s.morphisms[0]));
  EXPECT_EQ(map.inputs.size(), call.types.size());
  EXPECT_EQ(map.outputs.size(), s.outputs.size());
  std::vector<Type> made;
  for (const Value out : s.outputs) made.push_back(s[out].type);
  const std::vector<Numbers> whole = call.run();
  int splits = 0;
  const std::map<char, int64_t> sizes = sizes_of(map, call.attrs, call.types, made);
  for (const auto& [letter, size] : sizes) {
    const auto has = [&, letter = letter](const std::string& letters) {
      return map.has(letters, letter);
    };
    if (size < 2 || has(map.whole)) continue;
    ++splits;
    std::vector<Numbers> parts[2];
    for (const int part : {0, 1}) parts[part] = half_of(call, {map, sizes, letter, part}).run();
    const std::string what = to_string(map) + ": " + letter;
    for (size_t k = 0; k < whole.size(); ++k) {
      if (has(map.outputs[k])) {
        for (const int part : {0, 1}) {
          Type type = made[k];
          expect_close(parts[part][k],
                       half(whole[k], type, map.outputs[k], {map, sizes, letter, part}),
                       what + " is parallel\n" + print(s));
        }
        continue;
      }
      Numbers sum = parts[0][k];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[1][k][i];
      expect_close(sum, whole[k], what + " is summed\n" + print(s));
    }
  }
  return splits;
}

// Every call of a scheme, on the operands that it has there.
int expect_all_split(Scheme scheme, const std::vector<Numbers>& inputs) {
  std::map<Value, Numbers> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[scheme.inputs[i]] = inputs[i];
  scheme.outputs.clear();
  for (const Morphism& m : scheme.morphisms) {
    scheme.outputs.insert(scheme.outputs.end(), m.outputs.begin(), m.outputs.end());
  }
  const std::vector<Numbers> made = run_scheme(scheme, inputs, true);
  for (size_t k = 0; k < made.size(); ++k) values[scheme.outputs[k]] = made[k];
  int splits = 0;
  for (const Morphism& m : scheme.morphisms) {
    Call call{m.op, {}, m.attrs, {}};
    for (const Value in : m.inputs) {
      call.types.push_back(scheme[in].type);
      call.x.push_back(values[in]);
    }
    splits += expect_splits(call);
  }
  return splits;
}

TEST_P(OpContract, IndexMapTellsHowWorkSplits) {
  int splits = 0;
  for (const Sample& sample : samples()) {
    std::vector<Numbers> x = sample_numbers(sample, Dtype::kF64, 6);
    splits += expect_all_split(sample_scheme(op().name, sample, Dtype::kF64), x);
    if (!op().differentiable) continue;
    // The gradient's morphisms too, which is all that is seen of some ops (attention_grad).
    const GradientScheme g = gradient_scheme(op(), sample, Dtype::kF64);
    for (const Numbers& w : weights_for(g, x.size(), Dtype::kF64)) x.push_back(w);
    splits += expect_all_split(g.scheme, x);
  }
  // One number cannot be split, nor what is made from nothing; a matrix can, one way or another.
  bool has_matrix = false;
  for (const Sample& sample : samples()) {
    for (const Type& type : sample.inputs) has_matrix = has_matrix || type.rank() > 1;
  }
  EXPECT_TRUE(splits > 0 || !has_matrix);
}

bool draws_random_numbers(const Body& body) {
  return std::any_of(body.nodes.begin(), body.nodes.end(),
                     [](const ExprNode& n) { return n.kind == ExprKind::kRandom; });
}

// What the declared effect means for whoever repeats, drops or moves a call.
TEST_P(OpContract, EffectIsWhatItDoes) {
  for (const Sample& sample : samples()) {
    const Scheme s = sample_scheme(op().name, sample, Dtype::kF32);
    const std::vector<Numbers> x = sample_numbers(sample, Dtype::kF32, 7);
    const auto once = run_scheme(s, x, false);
    EXPECT_EQ(run_scheme(s, x, false), once) << "a repetition gives the same bits";
    const OpCall call = call_of(s, s.morphisms[0]);
    const auto counter = std::find(call.inputs.begin(), call.inputs.end(), random_counter_type());
    const bool draws = (op().body && draws_random_numbers(body_of(call))) ||
                       (op().calm && counter != call.inputs.end());
    EXPECT_EQ(effect_of(call) == Effect::kRandom, draws);
    if (draws) {
      ASSERT_NE(counter, call.inputs.end());
      Morphism calmed = s.morphisms[0];
      if (op().calm) {
        op().calm(calmed);
        EXPECT_EQ(effect_of(call_of(s, calmed)), Effect::kPure);
      }
      for (const int entry : {0, 1, 2}) {  // seed, step, first sample
        std::vector<Numbers> other = x;
        other[counter - call.inputs.begin()][entry] += 1;
        EXPECT_NE(run_scheme(s, other, false), once) << "entry " << entry << " of the counter";
      }
    }
    if (op().effect == Effect::kChoosing) {
      EXPECT_FALSE(op().differentiable);
      for (const Value out : s.outputs) EXPECT_FALSE(is_float(s[out].type.dtype));
    }
    // A gang is held to what its calls do.
    const OpDef* of = op().name == "gang" ? find_op(call.text("op")) : &op();
    if (of->effect == Effect::kWritesState) {
      // The new state takes the place of the old one.
      std::set<int> written;
      for (const auto& [output, operand] : overwrites(call)) written.insert(output);
      EXPECT_EQ(written.size(), s.outputs.size());
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

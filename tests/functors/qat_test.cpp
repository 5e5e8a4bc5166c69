// qat: weights as they will be as codes, in the forward pass; gradients as if they had not been
// rounded; and the op that does it.
#include <gtest/gtest.h>

#include <set>

#include "analysis/roles.h"
#include "base/error_text.h"
#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "kernels/quantize.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

std::vector<float> some_weights(int64_t count) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> w(count);
  for (float& x : w) x = normal(random);
  for (int64_t i = 16; i < 32; ++i) w.at(i) = 0;  // a group whose scale is 0
  return w;
}

std::vector<float> through_codes(const std::vector<float>& w, const Type& type,
                                 const std::string& format_text) {
  const CodeFormat format = code_format(format_text).value();
  std::vector<std::byte> codes(codes_type(type, format).bytes().count);
  std::vector<float> scales(scales_type(type, format).num_elements());
  quantize(w.data(), type, format, codes.data(), scales.data());
  std::vector<float> back(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    const int code = load_code(codes.data(), static_cast<int64_t>(i), format.kind);
    back[i] = level_of(code, format.kind) * scales[i / (w.size() / scales.size())];
  }
  return back;
}

// What is trained is what the codes will stand for, bit for bit.
TEST(FakeQuantize, IsWhatCodesStandFor) {
  const Type type{Dtype::kF32, {{"o", 6}, {"i", 32}}};
  const std::vector<float> w = some_weights(type.num_elements());
  const std::pair<const char*, const char*> pairs[] = {
      {"fake_quantize(w)", "int8/channel"},
      {"fake_quantize(w, 8, group=16)", "int8/16"},
      {"fake_quantize(w, whole=yes)", "int8/tensor"},
      {"fake_quantize(w, 4, group=32)", "int4/channel"},
      {"fake_quantize(w, bits=4, group=8)", "int4/8"},
      {"fake_quantize(w, 4, whole=yes)", "int4/tensor"}};
  for (const auto& [call, format] : pairs) {
    const Scheme scheme =
        elaborate_text("axes o=6 i=32\nmodel w f32[o, i]:\n  y = " + std::string(call) + "\n");
    EXPECT_EQ(to_string(scheme[scheme.outputs[0]].type), "f32[o=6, i=32]") << call;
    const Numbers made = run_scheme(scheme, {Numbers(w.begin(), w.end())}, false)[0];
    const std::vector<float> wanted = through_codes(w, type, format);
    EXPECT_EQ(made, Numbers(wanted.begin(), wanted.end())) << call;
  }
}

TEST(FakeQuantize, RefusesInOneSentence) {
  const auto complaint = [](const std::string& call) {
    return error_text(
        [&] { elaborate_text("axes o=6 i=32\nmodel w f32[o, i]:\n  y = " + call + "\n"); });
  };
  EXPECT_EQ(complaint("fake_quantize(w, 4, group=5)"),
            "my.scheme:3:7: fake_quantize: groups of 5 do not divide rows of 32");
  EXPECT_EQ(complaint("fake_quantize(w, 9)"),
            "my.scheme:3:7: fake_quantize: bits must be 2 to 8, found 9");
  EXPECT_EQ(complaint("fake_quantize(w, 4, group=8, whole=yes)"),
            "my.scheme:3:7: fake_quantize: say group=8 or whole=yes, not both");
}

Scheme gpt2() {
  return elaborate_preset("char", {{"layers", 2},
                                   {"hidden", 16},
                                   {"heads", 2},
                                   {"context", 5},
                                   {"vocab", 11},
                                   {"batch", 2},
                                   {"dropout", 0}});
}
Scheme llama() { return elaborate_preset("llama-tiny", {{"context", 5}, {"batch", 2}}); }

std::map<std::string, int64_t> counts(const Scheme& forward, const std::string& item) {
  return build_step(forward, parse_stack(item), {}).applied[0].counts;
}

// With biases and without, and no parameter is new.
TEST(Qat, FindsTheLinearMapsOfEveryModel) {
  using Counts = std::map<std::string, int64_t>;
  EXPECT_EQ(counts(gpt2(), "qat"),
            (Counts{{"attention_in", 2}, {"attention_out", 2}, {"feed_forward", 4}}));
  EXPECT_EQ(counts(llama(), "qat(4, group=8)"),
            (Counts{{"attention_in", 6}, {"attention_out", 2}, {"feed_forward", 6}}));
  EXPECT_EQ(counts(llama(), "qat(on=feed_forward)"), (Counts{{"feed_forward", 6}}));
  for (const Scheme& forward : {gpt2(), llama()}) {
    const Scheme after = apply_functor("qat(4, group=8)", forward);
    EXPECT_EQ(paths_of(after, Role::kParameter), paths_of(forward, Role::kParameter));
    const auto before_kinds = parameter_kinds(forward), after_kinds = parameter_kinds(after);
    for (size_t i = 0; i < forward.inputs.size(); ++i) {
      EXPECT_EQ(after_kinds[after.inputs[i]], before_kinds[forward.inputs[i]])
          << "weight decay goes to the same parameters: "
          << to_string(forward[forward.inputs[i]].source);
    }
  }
}

TEST(Qat, RefusesInOneSentence) {
  const auto complaint = [](const std::string& item) {
    return error_text([&] { build_step(llama(), parse_stack(item), {}); });
  };
  EXPECT_EQ(complaint("qat(9)"), "qat: bits must be 2 to 8, found 9");
  EXPECT_TRUE(has(complaint("qat(4, group=7)"), "groups of 7 do not divide rows of"));
  const Scheme flat = elaborate_text(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  loss = cross_entropy(linear(embed(tokens, vocab), vocab), targets)
)");
  const std::string said = error_text([&] { build_step(flat, parse_stack("qat"), {}); });
  EXPECT_TRUE(has(said, "qat: no 'linear' is what its rules ask for")) << said;
}

// The gradient of every parameter is the plain model's with the rounded weights.
TEST(Qat, GradientsPassStraightThrough) {
  for (const Scheme& forward : {gpt2(), llama()}) {
    const Scheme plain = apply_functor("adjoint", forward);
    const Scheme rounded = apply_functor("adjoint", apply_functor("qat(4, group=8)", forward));
    const Scheme read = apply_functor("qat(4, group=8)", forward);
    std::set<Value> weights;  // that linear maps of the chain read
    for (const Morphism& m : read.morphisms) {
      if (m.op == "split" && read[m.inputs[0]].role == Role::kParameter)
        weights.insert(m.inputs[0]);
    }
    ASSERT_GE(weights.size(), 8u);
    std::mt19937 random(3);
    std::normal_distribution<double> normal(0, 0.3);
    ASSERT_EQ(plain.inputs.size(), rounded.inputs.size());
    std::vector<Numbers> values, coded;
    for (size_t i = 0; i < plain.inputs.size(); ++i) {
      const Object& object = plain[plain.inputs[i]];
      EXPECT_EQ(object.source, rounded[rounded.inputs[i]].source);
      Numbers numbers(object.type.num_elements(), 1.0);
      for (double& x : numbers) {
        if (object.role == Role::kParameter) x = static_cast<float>(normal(random));
        if (object.role == Role::kInput) x = static_cast<double>(random() % 11);
      }
      values.push_back(numbers);
      const auto there = read.find(object.source);
      if (object.role == Role::kParameter && weights.count(*there)) {
        const std::vector<float> w =
            through_codes({numbers.begin(), numbers.end()}, object.type, "int4/8");
        numbers.assign(w.begin(), w.end());
      }
      coded.push_back(std::move(numbers));
    }
    const std::vector<Numbers> want = run_scheme(plain, coded, true),
                               have = run_scheme(rounded, values, true);
    ASSERT_EQ(have.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_LT(relative_error(have[k], want[k]), 1e-5)
          << to_string(plain[plain.outputs[k]].source);
    }
    EXPECT_GT(relative_error(run_scheme(plain, values, true)[0], want[0]), 1e-5)
        << "rounding must matter";
  }
}

}  // namespace
}  // namespace adjoint

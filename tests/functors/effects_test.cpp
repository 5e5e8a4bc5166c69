// What every step keeps to, whatever its stack: a choice is made once and state is written once,
// and all that draws random numbers for one source draws them over the same logical elements. A
// further stack is one line of kStacks.
#include <gtest/gtest.h>

#include <set>

#include "functors/one_step.h"

namespace adjoint {
namespace {

constexpr const char* kStacks[] = {
    "",
    "bf16",
    "accumulate(2)",
    "checkpoint(every=1)",
    "lora(rank=2)",
    "bf16 | accumulate(2) | checkpoint(every=1) | lora(rank=2)",
    "bf16(gradients=bf16) | accumulate(2) | checkpoint(every=1)",
};

using Case = std::tuple<const char*, const char*>;  // model, stack
class Effects : public testing::TestWithParam<Case> {
 protected:
  Scheme step() const {
    return training_step(test_model(std::get<0>(GetParam()), {{"batch", 4}}),
                         {.stack = std::get<1>(GetParam())});
  }
};

TEST_P(Effects, ChoicesAreMadeOnce) {
  const Scheme forward = test_model(std::get<0>(GetParam()), {{"batch", 4}});
  const Scheme s = step();
  std::multiset<std::string> wanted, found;
  for (const Morphism& m : forward.morphisms) {
    if (op_named(m.op).effect == Effect::kChoosing) wanted.insert(m.source.path);
  }
  for (const Morphism& m : s.morphisms) {
    if (op_named(m.op).effect != Effect::kChoosing) continue;
    found.insert(m.source.path);
    EXPECT_EQ(m.epoch, 0) << m.source.path << " is chosen again";
    EXPECT_EQ(m.phase, Phase::kForward);
  }
  EXPECT_EQ(found, wanted);
}

TEST_P(Effects, StateIsWrittenOnce) {
  const Scheme s = step();
  const std::vector<int> made_by = producers(s);
  std::set<Value> written;
  for (const Carry& carry : s.carries) {
    EXPECT_TRUE(written.insert(carry.out).second) << to_string(s[carry.out].source);
    ASSERT_GE(made_by[carry.out], 0) << to_string(s[carry.in].source);
  }
  for (const Morphism& m : s.morphisms) {
    if (op_named(m.op).effect != Effect::kWritesState) continue;
    EXPECT_EQ(m.phase, Phase::kUpdate) << to_string(m.source);
    EXPECT_EQ(m.epoch, 0) << to_string(m.source);
    EXPECT_TRUE(s.parts == 1 || m.section == Section::kEpilogue) << to_string(m.source);
  }
}

TEST_P(Effects, OneSourceDrawsOverTheSameElements) {
  const Scheme s = step();
  std::map<std::string, std::vector<int64_t>> spaces;
  for (const Morphism& m : s.morphisms) {
    if (!op_named(m.op).body) continue;
    const OpCall call = call_of(s, m);
    std::vector<int64_t> sizes;
    for (const Axis& axis : space_of(call)) sizes.push_back(axis.size);
    for (const ExprNode& n : body_of(call).nodes) {
      if (n.kind != ExprKind::kRandom) continue;
      const auto [at, fresh] = spaces.emplace(n.text, sizes);
      EXPECT_EQ(at->second, sizes) << n.text << " in " << m.op << " at " << to_string(m.source);
      EXPECT_EQ(call.inputs[n.index], random_counter_type());
    }
  }
  EXPECT_FALSE(spaces.empty()) << "dropout is on";
}

INSTANTIATE_TEST_SUITE_P(All, Effects,
                         testing::Combine(testing::ValuesIn(kTestModels),
                                          testing::ValuesIn(kStacks)),
                         [](const auto& info) {
                           std::string name =
                               std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                           std::erase_if(name, [](char c) { return !std::isalnum(c) && c != '_'; });
                           return name;
                         });

std::map<std::string, Numbers> after_one_step(const char* model, const std::string& stack,
                                              bool reference) {
  return after_one_step(test_model(model, {{"batch", 6}}), stack, reference);
}

// Every sample draws what it draws in the whole batch, and what is the same for all samples
// (`odd` drops positions out) is drawn once for all parts.
TEST(RandomInParts, PartsOfABatchDrawWhatTheWholeDraws) {
  for (const char* model : kTestModels) {
    const auto whole = after_one_step(model, "", true);
    for (const char* stack : {"accumulate(2)", "accumulate(6)"}) {
      const auto parts = after_one_step(model, stack, true);
      for (const auto& [path, want] : whole) {
        EXPECT_LT(relative_error(parts.at(path), want), 1e-12) << model << " " << path;
      }
    }
  }
}

// A router that chose anew on recomputed scores could choose otherwise; masks are drawn anew, and
// are the same.
TEST(RecomputedStep, HasTheSameBits) {
  for (const char* model : kTestModels) {
    for (const std::string precision : {"", "bf16"}) {
      const auto plain = after_one_step(model, precision, false);
      for (const char* recomputed : {"checkpoint(every=1)", "checkpoint(every=all)"}) {
        const std::string stack = (precision.empty() ? "" : precision + " | ") + recomputed;
        const Scheme step = training_step(test_model(model), {.stack = stack});
        EXPECT_TRUE(std::any_of(step.morphisms.begin(), step.morphisms.end(),
                                [](const Morphism& m) { return m.epoch > 0; }))
            << "nothing is recomputed";
        for (const auto& [path, bits] : after_one_step(model, stack, false)) {
          EXPECT_EQ(bits, plain.at(path)) << model << " under " << stack << ": " << path;
        }
      }
    }
  }
}

}  // namespace
}  // namespace adjoint

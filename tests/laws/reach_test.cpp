// A wrong functor that acts far from the beginning is caught: behind a position, a sample, a count
// of steps, an id or a block that a small copy of the model does not have.
#include "laws/reach.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "functors/functor_text.h"
#include "laws/planted.h"

namespace adjoint {
namespace {

using Of = Reach::Of;

// A model whose steps take milliseconds, with more of everything than a copy has.
ModelText far_model(const std::string& block = "attention(linear(x, 3*hidden), heads, causal)") {
  return {.file = "far.scheme", .text = R"(axes layers=12 hidden=32 heads=2 context=256 vocab=400
numbers near=40
block x[batch, seq, hidden]:
  x = x + linear(gelu(linear(x, hidden, name=up)), hidden, name=down)
  x = x + linear()" + block + R"(, hidden, name=out)
model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, name=wte))
  loss = cross_entropy(linear(rms_norm(x), vocab, bias=no, name=readout), targets)
)"};
}

Functor wrong(const std::string& rule) {
  return parse_functor("functor wrong:\n  law exact\n" + rule, "wrong.functor");
}

// At the copies that go on for longer, and where none is broken at the narrow one: the wide one
// shows no more.
Report checked(const ModelText& model, Functor functor) {
  const Stack stack = with_planted({std::move(functor)});
  Checkup checkup = checkup_for(model, stack, {.seeds = 1});
  std::rotate(checkup.subjects.begin(), checkup.subjects.begin() + 1, checkup.subjects.end());
  checkup.subjects.erase(checkup.subjects.begin());  // the wide one
  Report report;
  for (const Subject& subject : checkup.subjects) {
    if (subject.evaluation) continue;
    report = verify_stack({subject}, checkup.stack);
    if (!report.ok) break;
  }
  report.unseen = checkup.unseen;
  return report;
}

void expect_caught(const std::string& rule, const ModelText& model = far_model()) {
  const Report report = checked(model, wrong(rule));
  EXPECT_FALSE(report.ok) << rule;
  EXPECT_FALSE(report.refused) << report.reason;
  EXPECT_EQ(report.reason.find("law of wrong broken: "), 0u) << rule << report.reason;
}

std::vector<Reach> found(const std::string& rule, const ModelText& model = far_model()) {
  const Stack stack = with_planted({wrong(rule)});
  return reaches_of(said_step(BoundModel(model, {.batch = 64}).forward(), stack, {}),
                    {{"tokens", 400}});
}

std::set<int64_t> places(const std::vector<Reach>& reaches, Of of) {
  std::set<int64_t> at;
  for (const Reach& reach : reaches) {
    if (reach.of == of) at.insert(reach.at);
  }
  return at;
}

constexpr const char* kRule = "  morphism y = gelu(x) where inside chain\n    -> ";

// However a text writes it, a condition is evaluated.
TEST(Reach, ConditionsOnPositionsAreFound) {
  const auto at = [](const std::string& term) {
    return places(found(kRule + term + "\n"), Of::kPositions);
  };
  EXPECT_EQ(at("where(index(y, 1) < 9, y, 0*y)"), std::set<int64_t>{9});
  EXPECT_EQ(at("where(index(y, 1)/2 < 30, y, 0*y)"), std::set<int64_t>{60});
  EXPECT_EQ(at("where(index(y, 1) == 77, 0*y, y)"), std::set<int64_t>{77});
  EXPECT_EQ(at("where(pow(index(y, 1), 2) > 100, 0*y, y)"), std::set<int64_t>{11});
  EXPECT_EQ(at("y*minimum(index(y, 1), 50)"), std::set<int64_t>{50});
  EXPECT_TRUE(at("y*index(y, 1)").empty());
  EXPECT_TRUE(at("where(index(y, 1) < 256, y, 0*y)").empty()) << "the model has 256 positions";
}

TEST(Reach, OtherConditionsAreFound) {
  EXPECT_EQ(places(found(kRule + std::string("where(index(y, 0) < 9, y, 0*y)\n")), Of::kSamples),
            std::set<int64_t>{9});
  EXPECT_EQ(places(found(kRule + std::string("where(index(y, 2) < 20, y, 0*y)\n")), Of::kOther),
            std::set<int64_t>{20});
  const std::string ids =
      "  morphism y = embed(ids, W) where input(ids)\n    -> where(unsqueeze(ids, 2) < 300, y, "
      "0*y)\n";
  EXPECT_EQ(places(found(ids), Of::kIds), std::set<int64_t>{300});
  const std::string steps =
      "  state mask of parameter = 1 -> where(steps < 50, mask, 0*mask)\n"
      "  morphism y = linear(x, W) where parameter(W), inside chain\n    -> y(W=W*mask(W))\n";
  EXPECT_EQ(places(found(steps), Of::kSteps), std::set<int64_t>{50});
}

TEST(Reach, WindowsAndShiftsAreFound) {
  const auto of = [](const std::string& block) {
    const Scheme forward = BoundModel(far_model(block), {}).forward();
    return places(reaches_of(forward), Of::kPositions);
  };
  EXPECT_TRUE(of("attention(linear(x, 3*hidden), heads, causal)").empty());
  EXPECT_EQ(of("attention(linear(x, 3*hidden), heads, causal, window=16)"), std::set<int64_t>{16});
  EXPECT_EQ(of("shift(x, 20)"), std::set<int64_t>{20});
  EXPECT_EQ(of("attention(linear(x, 3*hidden), heads, causal, bias=param(heads, 33, name=far))"),
            std::set<int64_t>{33});
}

// Each of these passed when copies had 8 positions, 6 samples, 61 ids, two steps and four blocks.
TEST(Reach, WrongBehindAPosition) {
  expect_caught(kRule + std::string("where(index(y, 1) < 9, y, 0*y)\n"));
  expect_caught(kRule + std::string("where(index(y, 1)/3 < 40, y, 0*y)\n"));
}

TEST(Reach, WrongBehindASample) {
  expect_caught(kRule + std::string("where(index(y, 0) < 9, y, 0*y)\n"));
}

TEST(Reach, WrongBehindAnId) {
  expect_caught(
      "  morphism y = embed(ids, W) where input(ids)\n    -> where(unsqueeze(ids, 2) < 300, y, "
      "0*y)\n");
  expect_caught(
      "  morphism y = embed(ids, W) where input(ids)\n    -> where(unsqueeze(ids, 2) == 300, 0*y, "
      "y)\n");
}

TEST(Reach, WrongBehindSteps) {
  expect_caught(
      "  state mask of parameter = 1 -> where(steps < 50, mask, 0*mask)\n"
      "  morphism y = linear(x, W) where parameter(W), inside chain\n    -> y(W=W*mask(W))\n");
}

TEST(Reach, WrongBehindABlock) {
  expect_caught(
      "  morphism y = gelu(x) where inside chain when l >= 0\n    -> (1 when l < 9 else 0)*y\n");
}

// A functor of C++ that leaves a window's last position out, which only a longer sample shows; and
// a window that the model's text says as a number is made smaller in the copy.
TEST(Reach, AWindowBites) {
  const auto smaller = [](const Scheme& before, Application& application) {
    Scheme after = before;
    for (Morphism& m : after.morphisms) {
      const auto window = m.attrs.find("window");
      if (window == m.attrs.end()) continue;
      --std::get<int64_t>(window->second);
      ++application.matches;
    }
    return after;
  };
  for (const char* window : {"16", "near"}) {
    const ModelText model = far_model(
        std::string("attention(linear(x, 3*hidden), heads, causal, window=") + window + ")");
    const Report report =
        checked(model, planted("smaller", Law::kExact, FunctorPhase::kStepRules, smaller));
    EXPECT_FALSE(report.ok) << window;
    EXPECT_EQ(report.reason.find("law of smaller broken: "), 0u) << report.reason;
  }
}

// Copies of the library's models show all that the models do, without a longer one.
// ADJOINT_PRESETS=all takes the large ones, too.
TEST(Reach, NothingOfTheLibraryIsFar) {
  const bool all = std::getenv("ADJOINT_PRESETS") != nullptr;
  for (const std::string& preset : known_presets()) {
    if (!all && !preset.ends_with("-tiny") && preset != "char") continue;
    const Checkup checkup = checkup_for(find_model(preset), parse_stack(""), {});
    EXPECT_EQ(checkup.subjects.size(), 3u) << preset;
    for (const std::string& unseen : checkup.unseen) ADD_FAILURE() << preset << ": " << unseen;
  }
}

// What no copy reaches is told, and then a pass proves less.
TEST(Reach, WhatIsTooFarIsTold) {
  ModelText model = far_model();
  model.text.replace(model.text.find("context=256"), 11, "context=9000");
  Report report = checked(model, wrong(kRule + std::string("where(index(y, 1) < 5000, y, 0*y)\n")));
  EXPECT_TRUE(report.ok) << report.reason;
  ASSERT_EQ(report.unseen.size(), 1u);
  EXPECT_NE(report.unseen[0].find("from position 5000 on"), std::string::npos) << report.unseen[0];
  report = checked(far_model(), wrong(kRule + std::string("(1 when width(y) < 32 else 0)*y\n")));
  EXPECT_FALSE(report.ok && report.unseen.empty());
}

}  // namespace
}  // namespace adjoint

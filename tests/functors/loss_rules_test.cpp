// Rules about losses: what becomes of the pair (sum, count), of a loss that is one term of several,
// and of a scheme that is evaluated.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error_text.h"
#include "functors/becomes.h"
#include "functors/functor_text.h"
#include "functors/pipeline.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

constexpr int64_t kRows = 6, kClasses = 3;

// Two losses that ignore the class 2 count different rows; of one loss all.
Scheme model(const std::string& loss) {
  return elaborate_text(
      "axes n=6 c=3\nmodel a f32[n, c], b f32[n, c], t[n], u[n]:\n  loss = " + loss + "\n", {});
}
Scheme with(const Scheme& before, const std::string& lines, bool training = true) {
  const Functor f = parse_functor("functor f:\n  law approximating\n" + lines + "\n", "f.functor");
  const Arguments args("f", {}, Term{});
  const StepOptions options;
  Application::Said said;
  Application application{
      .functor = "f", .args = args, .options = options, .training = training, .said = &said};
  Scheme after = f.rules[0].apply(before, application);
  verify(after);
  return after;
}

// (sum, count) of f over the rows whose target is not 2.
struct Pair {
  double sum = 0, count = 0;
  double mean() const { return sum / count; }
};
template <class F>
Pair over_rows(const Numbers& logits, const Numbers& targets, const F& f) {
  Pair pair;
  for (int64_t i = 0; i < kRows; ++i) {
    if (targets[i] == 2) continue;
    double sum = 0, mean = 0;
    for (int64_t c = 0; c < kClasses; ++c) {
      sum += std::exp(logits[i * kClasses + c]);
      mean += logits[i * kClasses + c] / kClasses;
    }
    const auto target = static_cast<int64_t>(targets[i]);
    pair.sum += f(std::log(sum), logits[i * kClasses + target], mean);
    ++pair.count;
  }
  return pair;
}
double entropy(double z, double logit, double) { return z - logit; }
double square(double z, double, double) { return z * z; }

std::vector<Numbers> ran(const Scheme& s) { return run_scheme(s, numbers_for(s), false); }

void expect_pair(const Scheme& s, double sum, double count) {
  const auto made = ran(s);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_NEAR(made[0][0], sum, 1e-5 * std::max(1.0, std::abs(sum))) << print(s);
  EXPECT_EQ(made[1][0], count);
}

TEST(LossRules, ALossIsMadeAgainWithItsConstants) {
  const Scheme alone = model("cross_entropy(a, t, ignore=2)");
  const std::vector<Numbers> x = numbers_for(alone);
  const Pair ce = over_rows(x[0], x[2], entropy), z = over_rows(x[0], x[2], square);
  ASSERT_LT(ce.count, kRows) << "some rows are ignored";
  expect_pair(apply_functor("z_loss(weight=0.5)", alone), ce.sum + 0.5 * z.sum, ce.count);
  const Pair even =
      over_rows(x[0], x[2], [](double all, double, double mean) { return all - mean; });
  expect_pair(apply_functor("label_smoothing(e=0.25)", alone), 0.75 * ce.sum + 0.25 * even.sum,
              ce.count);
  expect_pair(with(alone, "  morphism y = cross_entropy(a, t) -> y - 0.5*y"), 0.5 * ce.sum,
              ce.count);
  expect_pair(with(alone, "  morphism y = cross_entropy(a, t) -> average(max(a) - max(a), t)"), 0,
              kRows);
}

// What two functors add to a loss is the same whoever comes first: neither changes the other's
// share nor forgets what the model's text says.
TEST(LossRules, OptionsOfALossAddUp) {
  const Scheme before = model("cross_entropy(a, t, ignore=2, cap=1.5, z=0.1, smoothing=0.2)");
  Numbers capped = numbers_for(before)[0];
  for (double& logit : capped) logit = 1.5 * std::tanh(logit / 1.5);
  const Pair wanted =
      over_rows(capped, numbers_for(before)[2], [](double all, double logit, double mean) {
        return 0.6 * (all - logit) + 0.4 * (all - mean) + 0.6 * all * all;
      });
  const char *smoothing = "label_smoothing(e=0.25)", *z = "z_loss(weight=0.5)";
  expect_pair(apply_functor(smoothing, apply_functor(z, before)), wanted.sum, wanted.count);
  expect_pair(apply_functor(z, apply_functor(smoothing, before)), wanted.sum, wanted.count);
}

// A loss of several terms that count different rows: each mean has its own count.
TEST(LossRules, OneTermOfSeveral) {
  const Scheme before = model("cross_entropy(a, t, ignore=2) + 0.5*cross_entropy(b, u, ignore=2)");
  const std::vector<Numbers> x = numbers_for(before);
  const Pair a = over_rows(x[0], x[2], entropy), b = over_rows(x[1], x[3], entropy);
  const Pair za = over_rows(x[0], x[2], square), zb = over_rows(x[1], x[3], square);
  ASSERT_NE(a.count, b.count);
  const auto plain = ran(before), more = ran(apply_functor("z_loss(weight=0.1)", before));
  EXPECT_NEAR(plain[0][0] / plain[1][0], a.mean() + 0.5 * b.mean(), 1e-5);
  EXPECT_NEAR(more[0][0] / more[1][0],
              a.mean() + 0.1 * za.mean() + 0.5 * (b.mean() + 0.1 * zb.mean()), 1e-5);
  EXPECT_EQ(more[1][0], plain[1][0]);
  for (const char* changes : {"y(a, where(index(t, 0) < 2, ignore, t))", "average(max(a), t)",
                              "y + average(max(a), where(index(t, 0) < 2, ignore, t))"}) {
    const std::string said = error_text(
        [&] { with(before, "  morphism y = cross_entropy(a, t) -> " + std::string(changes)); });
    EXPECT_TRUE(
        said.starts_with("f.functor:3:3: this rule changes which targets "
                         "'cross_entropy#1' counts, which is one term of several"))
        << said;
  }
}

TEST(LossRules, MayChangeWhatIsCountedWhereTheyAreAlone) {
  const Scheme before = model("cross_entropy(a, t, ignore=2)");
  std::vector<Numbers> x = numbers_for(before);
  const Scheme after =
      with(before, "  morphism y = cross_entropy(a, t) -> y(a, where(index(t, 0) < 2, ignore, t))");
  x[2][0] = x[2][1] = 2;
  const Pair wanted = over_rows(x[0], x[2], entropy);
  expect_pair(after, wanted.sum, wanted.count);
}

TEST(LossRules, WhatIsTrainedIsNotWhatIsEvaluated) {
  const Scheme before = model("cross_entropy(a, t, ignore=2)");
  const std::string rule = "  morphism y = cross_entropy(a, t) when training -> 2*y";
  EXPECT_EQ(print(with(before, rule, false)), print(before));
  EXPECT_NE(print(with(before, rule, true)), print(before));
  EXPECT_EQ(
      print(with(before, "  morphism y = cross_entropy(a, t) when not training -> 2*y", false)),
      print(with(before, "  morphism y = cross_entropy(a, t) when training == 0 -> 2*y", false)));
  // A model that is sampled from has no loss.
  const Scheme sampled = elaborate_text("axes n=6 c=3\nmodel a f32[n, c]:\n  y = 2*a\n", {});
  EXPECT_EQ(print(with(sampled, rule, false)), print(sampled));
  EXPECT_TRUE(has(error_text([&] { with(sampled, rule); }), "no 'cross_entropy' is what its rule"));
}

TEST(LossRules, MistakesNameTheirPlace) {
  const Scheme before = model("cross_entropy(a, t, ignore=2)");
  const auto said = [&](const std::string& term) {
    return error_text([&] { with(before, "  morphism y = cross_entropy(a, t)\n    -> " + term); });
  };
  EXPECT_EQ(said("2*a"),
            "f.functor:3:3: what replaces 'y' must be a loss, as cross_entropy and average give "
            "it, found an object [n=6, c=3]");
  EXPECT_TRUE(has(said("y*y"), "f.functor:4:8: *: a loss is added to a loss or multiplied by a"))
      << said("y*y");
  EXPECT_TRUE(has(said("y + a"), "f.functor:4:8: +: a loss is added to a loss")) << said("y + a");
  EXPECT_TRUE(has(said("width(y)*y"), "f.functor:4:8: width wants the result or an operand"));
}

}  // namespace
}  // namespace adjoint

// What --fit promises, on real models: no budget is exceeded, a larger one is never answered with a
// slower step, the smallest is the smallest, the answer is a stack that gives the same bytes and
// bits again, and wishes that cannot be met are refused with what could be.
#include "train/fit_budget.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "functors/stage_step.h"
#include "models/test_models.h"
#include "plan/flops_sheet.h"
#include "train/same_steps.h"
#include "train/save.h"

namespace adjoint {
namespace {

struct FitCase {
  std::string name;
  BoundModel model;
  std::string stack;
};

BoundModel bound(const std::string& model, int64_t batch, nlohmann::json settings = {},
                 int64_t context = 0) {
  if (settings.is_null()) settings = nlohmann::json::object();
  return {find_model(model), {.batch = batch, .context = context, .settings = std::move(settings)}};
}
BoundModel small_llama(int layers) {
  return bound("llama-tiny", 4, {{"layers", layers}, {"dropout", 0.1}});
}
BoundModel small_gpt2(int layers) {
  return bound("char", 4, {{"layers", layers}, {"hidden", 64}, {"dropout", 0.1}}, 32);
}
BoundModel hybrid(int layers) {
  return bound(test_model_file("hybrid"), 4, {{"layers", layers}, {"dropout", 0.1}});
}

FitOptions fit_of_options(const BoundModel& model, const std::string& stack,
                          const DeviceSheet& sheet = find_device("cpu")) {
  return {.step = {.stack = stack},
          .costs = {.sheet = sheet, .threads = 1},
          .plan = {.threads = num_threads()},
          .batch = model.batch()};
}
Fit fit_of(const BoundModel& model, const std::string& stack, const DeviceSheet& sheet) {
  return {model.forward(), fit_of_options(model, stack, sheet)};
}

Bytes arena_of(const BoundModel& model, const std::string& stack) {
  return make_plan(training_step(model.forward(), {.stack = stack}), {.threads = num_threads()})
      .arena;
}

// Budgets from the smallest to the plain one, both included.
std::vector<Bytes> budgets_between(Bytes least, Bytes most, int count) {
  std::vector<Bytes> all;
  for (int k = 0; k < count; ++k) {
    all.push_back({least.count + (most.count - least.count) * k / (count - 1)});
  }
  return all;
}

class FitBudgets : public ::testing::TestWithParam<const char*> {
 protected:
  static FitCase fit_case(std::string_view name) {
    if (name == "ref") return {"ref", bound("ref", 8), "accumulate(1)"};
    if (name == "char") return {"char", bound("char", 8), "accumulate(1)"};
    if (name == "llama") return {"llama", small_llama(2), "accumulate(1)"};
    if (name == "hybrid") return {"hybrid", hybrid(3), "accumulate(1)"};
    if (name == "gpt2_in_parts") return {"gpt2 in parts", small_gpt2(2), ""};
    return {"hybrid in parts", hybrid(2), ""};
  }
};

// Of stages the budget is that of each, and none of them exceeds it.
TEST(FitStages, NoStageExceedsTheBudget) {
  const BoundModel model = small_gpt2(6);
  const std::string stack = "pipeline(3, parts=4)";
  FitOptions options{.step = {.stack = stack, .on_mesh = true},
                     .costs = {.sheet = find_device("cpu"), .threads = 1},
                     .plan = {.threads = num_threads()},
                     .batch = model.batch()};
  Fit fit(model.forward(), options);
  const Bytes least = fit.smallest().peak, plain = fit.plain().peak;
  ASSERT_LT(least, plain);
  std::set<std::string> stacks;
  double faster = fit.smallest().seconds;
  for (const Bytes budget : budgets_between(least, plain, 6)) {
    const auto point = fit.best(budget);
    ASSERT_TRUE(point) << "budget " << budget.count;
    EXPECT_LE(point->peak, budget);
    EXPECT_EQ(point->ranks, 3);
    EXPECT_LE(point->seconds, faster * (1 + 1e-9)) << "a larger budget is no slower";
    faster = point->seconds;
    stacks.insert(point->stack);
    StepOptions chosen = options.step;
    chosen.stack = point->stack;
    EXPECT_EQ(point->stack.find("accumulate"), std::string::npos) << "the parts are the pipeline's";
    Bytes largest{0};
    for (const Scheme& step : steps_of_stages(training_step(model.forward(), chosen))) {
      const Plan planned = make_plan(step, options.plan);
      largest = std::max(largest, planned.footprint());
    }
    EXPECT_EQ(largest, point->peak) << point->stack;
  }
  EXPECT_GT(stacks.size(), 1U) << "budgets differ in what they choose";
  EXPECT_FALSE(fit.best({least.count - 1}));
  const std::string refused = error_text([&] { fitted(fit, {.budget = "10000"}); });
  EXPECT_NE(refused.find("no choice needs so little"), std::string::npos) << refused;
}

TEST_P(FitBudgets, AreKeptAndLargerOnesAreNoSlower) {
  const FitCase c = fit_case(GetParam());
  Fit fit = fit_of(c.model, c.stack, find_device("cpu"));
  const Bytes least = fit.smallest().peak, plain = fit.plain().peak;
  ASSERT_LT(least, plain);
  // Largest first: what a smaller budget would find is not known yet.
  std::vector<Bytes> budgets = budgets_between(least, plain, 20);
  std::reverse(budgets.begin(), budgets.end());
  double faster = 0;
  FitPoint last;
  for (const Bytes budget : budgets) {
    const auto point = fit.best(budget);
    ASSERT_TRUE(point) << "budget " << budget.count;
    EXPECT_LE(point->peak, budget);
    // The search is not monotone by construction: for 16 threads one step of this sweep is off by
    // 0.2%.
    EXPECT_GE(point->seconds, 0.995 * faster)
        << "budget " << budget.count << ": " << point->stack << "\nbefore: " << last.stack;
    faster = std::max(faster, point->seconds);
    if (last.stack != point->stack) {
      EXPECT_EQ(arena_of(c.model, point->stack), point->peak) << point->stack;
    }
    last = *point;
  }
  EXPECT_EQ(last.peak, least) << "nothing is smaller than the smallest";
}
INSTANTIATE_TEST_SUITE_P(Models, FitBudgets,
                         ::testing::Values("ref", "char", "llama", "hybrid", "gpt2_in_parts",
                                           "hybrid_in_parts"));

// The answer is a stack: if it is built once more, its plan has the same bytes, and residences keep
// every bit.
TEST(Fit, AnswersGiveTheSameBytesAndBitsAgain) {
  for (const bool llama : {false, true}) {
    const BoundModel model = llama ? small_llama(2) : small_gpt2(2);
    Fit fit = fit_of(model, "accumulate(1)", find_device("cpu"));
    const Scheme plain = training_step(model.forward(), {.stack = "accumulate(1)"});
    const Bytes least = fit.smallest().peak, most = fit.plain().peak;
    std::set<std::string> seen;
    for (const Bytes budget : budgets_between(least, most, 4)) {
      const auto point = fit.best(budget);
      ASSERT_TRUE(point);
      if (!seen.insert(point->stack).second) continue;
      SCOPED_TRACE(point->stack);
      const Stack parsed = parse_stack(point->stack);
      EXPECT_EQ(arena_of(model, point->stack), point->peak);
      EXPECT_EQ(arena_of(model, print(parsed)), point->peak) << "printed again: " << print(parsed);
      expect_same_bits(plain, training_step(model.forward(), {.stack = point->stack}), 37, 2);
    }
    EXPECT_GE(seen.size(), 3u);
  }
}

TEST(Fit, SmallerThanTheSmallestIsRefusedWithIt) {
  const BoundModel model = hybrid(2);
  const std::string stack = "accumulate(1)";
  const auto wish = [](Bytes bytes) { return FitWish{.budget = std::to_string(bytes.count)}; };
  Bytes least;
  {
    Fit fit = fit_of(model, stack, find_device("cpu"));
    least = fit.smallest().peak;
    const std::string said = error_text([&] { fitted(fit, wish({least.count - 1})); });
    EXPECT_NE(
        said.find("the smallest that --fit can choose is " + with_commas(least.count) + " bytes"),
        std::string::npos)
        << said;
  }
  // The smallest budget that the message names is indeed enough.
  Fit fresh = fit_of(model, stack, find_device("cpu"));
  EXPECT_EQ(fitted(fresh, wish(least)).peak, least);
  Fit tiny = fit_of(model, stack, find_device("cpu"));
  EXPECT_NE(error_text([&] { fitted(tiny, wish({10'000})); }).find(with_commas(least.count)),
            std::string::npos);
}

// A tuned model on a GPU, whose frozen matrices are most of its bytes.
BoundModel wide_llama() {
  return bound("llama-tiny", 2, {{"layers", 2}, {"hidden", 256}, {"heads", 4}, {"ffn", 1024}}, 32);
}
FitOptions tuned(const BoundModel& model, bool may_approximate) {
  return fit_options({.may_approximate = may_approximate, .seconds = 0, .device = "h100"}, model,
                     {.stack = "accumulate(1) | lora(4)"}, 1);
}

// Where precision may be lowered, frozen parameters in 16, 8 and 4 bits are tried: the answer is no
// slower than the stacks that people write, and within a budget that no float32 base fits.
TEST(Fit, TriesNarrowAndCodedBases) {
  const BoundModel model = wide_llama();
  const FitOptions options = tuned(model, true);
  Looks looks(model.forward(), options);
  const auto by_hand = [&](const std::string& stack) {
    return *looks.at("accumulate(1) | " + stack);
  };
  const FitPoint narrow = by_hand("bf16(frozen=bf16) | lora(4) | checkpoint(block)");
  const FitPoint coded = by_hand("qlora(4)");
  ASSERT_LT(coded.peak, narrow.peak);
  Fit fit(model.forward(), options);
  for (const FitPoint& theirs : {narrow, coded}) {
    const auto found = fit.best(theirs.peak);
    ASSERT_TRUE(found);
    EXPECT_LE(found->peak, theirs.peak);
    EXPECT_LE(found->seconds, theirs.seconds * (1 + 1e-9)) << found->stack;
    EXPECT_FALSE(fit.cut_off());
  }
  // Not so where nobody allowed it.
  Fit exact(model.forward(), tuned(model, false));
  exact.best({exact.plain().peak.count * 9 / 10});
  for (const FitPoint& p : exact.considered()) {
    EXPECT_EQ(p.stack.find("bf16"), std::string::npos) << p.stack;
    EXPECT_EQ(p.stack.find("quantize"), std::string::npos) << p.stack;
  }
}

// A base that the stack itself holds in codes stays so.
TEST(Fit, WhatTheStackSaysOfItsBaseStays) {
  const BoundModel model = wide_llama();
  FitOptions options = tuned(model, true);
  options.step.stack = "bf16 | quantize(int8) | lora(4)";
  Fit fit(model.forward(), options);
  ASSERT_TRUE(fit.best(fit.plain().peak));
  for (const FitPoint& p : fit.considered()) {
    EXPECT_EQ(p.stack.find("nf4"), std::string::npos) << p.stack;
    EXPECT_EQ(p.stack.find("frozen=bf16"), std::string::npos) << p.stack;
  }
}

// Options of a long chain are read off one step, each in another block; the numbers are those of
// steps in which all blocks take the same option.
TEST(Fit, OfALongChainTheChoiceIsNoWorse) {
  const BoundModel model = small_gpt2(18);
  Looks looks(model.forward(), fit_of_options(model, "accumulate(1)"));
  std::vector<FitPoint> by_hand;
  for (const char* every : {"1", "2", "3", "6", "9"}) {
    by_hand.push_back(*looks.at(fmt::format("accumulate(1) | checkpoint(every={})", every)));
  }
  Fit fit = fit_of(model, "accumulate(1)", find_device("cpu"));
  const Bytes budget = by_hand[2].peak;
  const auto found = fit.best(budget);
  ASSERT_TRUE(found);
  EXPECT_LE(found->peak, budget);
  for (const FitPoint& theirs : by_hand) {
    if (theirs.peak <= budget) {
      EXPECT_LE(found->seconds, theirs.seconds) << theirs.stack;
    }
  }
  EXPECT_LT(fit.considered().size(), 60U) << "a step or two say what all options cost";
}

// Whoever searches with few threads gets the same stack as with many.
TEST(Fit, AnswersDoNotDependOnTheThreadsThatSearch) {
  const BoundModel model = wide_llama();
  const FitOptions options = tuned(model, false);
  const int before = num_threads();
  std::set<std::string> stacks;
  std::set<size_t> plans;
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    Fit fit(model.forward(), options);
    stacks.insert(fit.best(Bytes{fit.plain().peak.count / 2}).value_or(FitPoint{}).stack);
    plans.insert(fit.considered().size());
  }
  set_num_threads(before);
  EXPECT_EQ(stacks.size(), 1U);
  EXPECT_EQ(plans.size(), 1U);
}

// A search that is told that it is enough answers with the best that it has, and says so.
TEST(Fit, EndsWithItsBestSoFar) {
  const BoundModel model = small_llama(2);
  FitOptions options = fit_of_options(model, "");
  Bytes middle;
  double whole = 0;
  {
    Fit fit(model.forward(), options);
    middle = {(fit.plain().peak.count * 3 + fit.smallest().peak.count) / 4};
    whole = fit.best(middle)->seconds;
    EXPECT_FALSE(fit.cut_off());
  }
  const FitWish wish{.budget = std::to_string(middle.count), .seconds = 7};
  bool found = false;
  for (int most : {1, 2, 4, 8, 16, 32}) {
    int plans = 0;
    FitPoint best_told{.seconds = 1e300};
    options.say = [&](const FitPoint& p) {
      ++plans;
      if (p.peak <= middle && p.seconds < best_told.seconds) best_told = p;
    };
    options.enough = [&] { return plans >= most; };
    const int before = num_threads();
    set_num_threads(1);
    Fit fit(model.forward(), options);
    const auto point = fit.best(middle);
    set_num_threads(before);
    EXPECT_TRUE(fit.cut_off()) << most;
    EXPECT_LE(plans, most);
    EXPECT_NE(told_if_cut_off(fit, wish).find("cut off after 7 s"), std::string::npos);
    if (point) {
      EXPECT_EQ(point->seconds, best_told.seconds);
      EXPECT_GE(point->seconds, whole);
      EXPECT_LE(point->peak, middle);
    } else {
      const std::string said = error_text([&] { fitted(fit, wish); });
      EXPECT_NE(said.find("nothing that needs so little was found in 7 s"), std::string::npos);
      EXPECT_NE(said.find("--fit-seconds"), std::string::npos) << said;
    }
    found = found || point;
  }
  EXPECT_TRUE(found) << "after 32 plans something fits";
}

TEST(Fit, WishesThatAreNoSizesAreRefused) {
  for (const char* wrong : {"", "0", "-4GB", "much", "12XB", "nan", "1e400GB", "GB", "24 G B"}) {
    const std::string said = error_text([&] { budget_of(wrong); });
    EXPECT_NE(said.find("--fit: wanted a size above 0"), std::string::npos) << wrong << said;
    EXPECT_NE(said.find("'" + std::string(wrong) + "'"), std::string::npos) << said;
  }
  EXPECT_EQ(budget_of("24GB").count, 24'000'000'000);
  EXPECT_EQ(budget_of("512MiB").count, 512 << 20);
}

TEST(Fit, UnknownDevicesAreRefusedWithTheKnown) {
  const std::string said = error_text([&] { costs_for({.device = "abacus"}, hybrid(2), 1); });
  for (const std::string& known : device_names()) {
    EXPECT_NE(said.find(known), std::string::npos) << said;
  }
  EXPECT_FALSE(device_names().empty());
}

TEST(Fit, ProfilesOfOtherModelsAreRefused) {
  const TempFolder folder;
  const BoundModel model = hybrid(2), other = hybrid(3);
  const auto wish = [&] { return FitWish{.profile = (folder / "").string()}; };
  const auto refused = [&](const BoundModel& m) {
    return error_text([&] { costs_for(wish(), m, 1); });
  };
  EXPECT_NE(refused(model).find("no profile.json"), std::string::npos) << refused(model);
  const std::filesystem::path file = folder / "profile.json";
  write_file_atomically(file, "{\"calls_s\": 3}");
  EXPECT_NE(refused(model).find("damaged"), std::string::npos) << refused(model);
  // One product is known; the others are of its kind.
  const Scheme step = training_step(model.forward(), {});
  const auto product = std::find_if(step.morphisms.begin(), step.morphisms.end(),
                                    [](const Morphism& m) { return is_product(m.op); });
  const nlohmann::json profile = {
      {"calls_s", {{call_key(step, *product), 7.0}}},
      {"slower", {{product->op, 3.0}}},
      {"fingerprint", fingerprint(without_randomness(model.forward(1, model.context())))},
      {"model", model.name()},
      {"context", model.context()},
      {"peak_flops_per_s", 1e9},
      {"peak_bytes_per_s", 1e9},
      {"threads", 1}};
  write_file_atomically(file, profile.dump());
  EXPECT_EQ(costs_for(wish(), model, 1).seconds(step, *product), 7.0);
  // With other threads a measured call says only how its kind is beside the sheet.
  const Costs two = costs_for(wish(), model, 2);
  EXPECT_DOUBLE_EQ(two.seconds(step, *product), 3 * two.by_sheet(step, *product));
  EXPECT_NE(refused(other).find("a profile of another model"), std::string::npos) << refused(other);
}

// What fit wrote for one model says nothing of another.
TEST(Fit, ResidencesOfWhatIsNotThereAreRefused) {
  const BoundModel model = small_gpt2(2);
  const auto refused = [&](const std::string& stack) {
    return error_text([&] { training_step(model.forward(), {.stack = stack}); });
  };
  const std::string far = refused(R"(reside(kept=["block[0..2].up"]))");
  EXPECT_EQ(far, "") << "blocks beyond the last are no mistake of a range";
  const std::string said = refused(R"(reside(kept=["block[0..1].upp"]))");
  EXPECT_NE(said.find("makes no 'block[0..1].upp'"), std::string::npos) << said;
  EXPECT_NE(refused(R"(reside(again=["nothing"]))").find("'nothing'"), std::string::npos);
  EXPECT_NE(refused(R"(reside(host=["block[7].up"]))").find("'block[7].up'"), std::string::npos);
}

}  // namespace
}  // namespace adjoint

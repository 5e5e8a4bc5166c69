// The optimizer's state in fewer bits: what becomes codes and what does not, steps against float32
// moments and against the code's own definition, and the steps that must change nothing.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "ops/block_codes.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

// One matrix that is large enough to be encoded, one that is not; rows of 300 are 256 and 44.
constexpr const char* kModel = R"(scheme model:
  input %0 x: f32[b=6, h=300]
  input %1 targets: i32[b=6]
  parameter %2 up.weight: f32[i=16, h=300] init=normal(0.1)
  parameter %3 out.weight: f32[c=4, i=16] init=normal(0.1)
  %4 a: f32[b=6, i=16] = linear(%0, %2) @a
  %5 t: f32[b=6, i=16] = tanh(%4) @t
  %6 y: f32[b=6, c=4] = linear(%5, %3) @y
  %7 loss: f32[] metric, %8 loss.count: f32[] metric, %9 loss.lse: f32[b=6] = cross_entropy(%6, %1) {ignore=-1} @loss
  return %7, %8
)";

class Steps {
 public:
  explicit Steps(const std::string& stack, const std::string& optimizer = "adamw")
      : step(training_step(parse_scheme(kModel), {.optimizer = optimizer, .stack = stack})),
        run(step, make_plan(step, {.threads = num_threads()}), {.poison = true}) {
    initialize(run, 3);
  }
  void take(int number, bool counted = true) {
    std::mt19937 random(number);
    std::normal_distribution<double> normal;
    Numbers x(6 * 300), targets(6);
    for (double& each : x) each = static_cast<float>(normal(random));
    for (double& each : targets) each = counted ? static_cast<double>(random() % 4) : -1;
    run.set_values(at("x"), x);
    run.set_values(at("targets"), targets);
    run.set_number(at("rate"), 0.01);
    run.step();
  }
  Value at(const std::string& path, const std::string& facet = "") const {
    return step.find({path, facet}).value();
  }
  Numbers weight() const { return run.values(at("up.weight")); }

  Scheme step;
  Run run;
};

TEST(Moments, LevelsRiseFromZeroToOneByDecades) {
  for (const bool is_signed : {true, false}) {
    const DynamicLevels& levels = dynamic_levels(is_signed);
    EXPECT_EQ(levels.count, is_signed ? 128 : 256);
    EXPECT_EQ(levels.level[0], 0);
    EXPECT_EQ(levels.level[levels.count - 1], 1);
    EXPECT_NEAR(levels.level[1], is_signed ? 1e-6 : 1e-7, 1e-12);
    for (int i = 1; i < levels.count; ++i) EXPECT_LT(levels.level[i - 1], levels.level[i]);
    // Every float finds the level that is nearest to it, by its bits as by halving.
    for (double y = 1; y > 1e-9; y *= 0.99937) {
      const auto single = static_cast<float>(y);
      ASSERT_EQ(nearest_level(levels, single), nearest_level(levels, static_cast<double>(single)))
          << y;
    }
    for (int i = 1; i + 1 < levels.count; ++i) {
      for (const float y : {std::nextafter(levels.border[i], 0.0f), levels.border[i],
                            std::nextafter(levels.border[i], 2.0f)}) {
        ASSERT_EQ(nearest_level(levels, y), nearest_level(levels, static_cast<double>(y)));
        ASSERT_EQ(nearest_level(levels, y), y > levels.border[i] ? i + 1 : i);
      }
    }
  }
}

TEST(Moments, LargeStatesAreCodesAndThoseThatAreNeverNegativeHaveNoSign) {
  const Scheme step = Steps("moments").step;
  std::map<std::string, std::string> states;
  for (const Value in : step.inputs) {
    if (step[in].role == Role::kState)
      states[to_string(step[in].source)] = to_string(step[in].type);
  }
  const std::map<std::string, std::string> wanted = {
      {"optimizer:adamw.steps", "f32[]"},
      {"up.weight:adamw.m.codes", "i8[i=16, h=300]"},
      {"up.weight:adamw.m.scales", "f32[i=16, blocks=2]"},
      {"up.weight:adamw.v.codes", "u8[i=16, h=300]"},
      {"up.weight:adamw.v.scales", "f32[i=16, blocks=2]"},
      {"out.weight:adamw.m", "f32[c=4, i=16]"},
      {"out.weight:adamw.v", "f32[c=4, i=16]"}};
  EXPECT_EQ(states, wanted);
  const Scheme narrow = Steps("moments(bf16)").step;
  EXPECT_EQ(to_string(narrow[*narrow.find({"up.weight", "adamw.m"})].type), "bf16[i=16, h=300]");
  EXPECT_EQ(to_string(narrow[*narrow.find({"optimizer", "adamw.steps"})].type), "f32[]");
  // A text's states are states; those of lion may be negative, adafactor's rows may not.
  const Scheme lion = Steps("moments", "lion").step;
  EXPECT_EQ(to_string(lion[*lion.find({"up.weight", "lion.m.codes"})].type), "i8[i=16, h=300]");
}

// An average moves by a thousandth of its distance in a step, which codes would lose, and whoever
// samples by it looks for its numbers.
TEST(Moments, WhatFollowsParametersStaysFloat32) {
  for (const char* stack : {"ema | moments", "moments(bf16) | ema"}) {
    for (const char* optimizer : {"adamw", "lion"}) {
      const Scheme step = Steps(stack, optimizer).step;
      const auto average = step.find({"up.weight", "ema.average"});
      ASSERT_TRUE(average) << stack << " " << optimizer;
      EXPECT_EQ(to_string(step[*average].type), "f32[i=16, h=300]") << stack << " " << optimizer;
    }
  }
}

// After each step the stored moments are the nearest that codes can say, of those that AdamW makes
// of the stored ones before.
TEST(Moments, StoreTheNearestLevelOfWhatAdamMakesOfTheStoredOnes) {
  Steps ours("moments");
  const auto decoded = [&](const char* name) {
    const Numbers codes = ours.run.values(ours.at("up.weight", std::string(name) + ".codes"));
    const Numbers scales = ours.run.values(ours.at("up.weight", std::string(name) + ".scales"));
    const DynamicLevels& levels = dynamic_levels(std::string(name) == "adamw.m");
    Numbers x(codes.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double level = levels.level[static_cast<int>(std::abs(codes[i]))];
      x[i] = (codes[i] < 0 ? -level : level) * scales[i / 300 * 2 + i % 300 / 256];
    }
    return x;
  };
  for (int step = 0; step < 4; ++step) {
    const Numbers m = decoded("adamw.m"), v = decoded("adamw.v"), p = ours.weight();
    ours.take(step);
    const Numbers next_m = decoded("adamw.m"), next_v = decoded("adamw.v"), next_p = ours.weight();
    double largest_m = 0, largest_v = 0;
    for (size_t i = 0; i < m.size(); ++i) {
      largest_m = std::max(largest_m, std::abs(next_m[i]));
      largest_v = std::max(largest_v, next_v[i]);
    }
    for (size_t i = 0; i < m.size(); ++i) {
      // What the step did tells g, for m' and v' are both functions of it; the moments that were
      // stored must be as near as half a level: 0.9/64 and 0.9/128 of the largest of the block.
      const double g = (next_m[i] - 0.9 * m[i]) / 0.1;
      EXPECT_NEAR(next_v[i], 0.99 * v[i] + 0.01 * g * g,
                  largest_v * 0.9 / 128 / 2 +
                      0.02 * std::abs(g) * (largest_m * 0.9 / 64 / 2 / 0.1) +
                      0.01 * std::pow(largest_m * 0.9 / 64 / 2 / 0.1, 2));
      EXPECT_GE(next_v[i], 0);
    }
    EXPECT_NE(next_p, p);
  }
}

TEST(Moments, FollowThoseOfFloat32) {
  for (const char* stack : {"moments", "moments(bf16)"}) {
    Steps plain(""), ours(stack);
    const Numbers first = plain.weight();
    for (int step = 0; step < 8; ++step) plain.take(step), ours.take(step);
    Numbers moved = plain.weight();
    for (size_t i = 0; i < moved.size(); ++i) moved[i] -= first[i];
    Numbers ours_moved = ours.weight();
    for (size_t i = 0; i < moved.size(); ++i) ours_moved[i] -= first[i];
    const double error = relative_error(ours_moved, moved);
    EXPECT_LT(error, 0.08) << stack;
    EXPECT_GT(error, 1e-5) << stack << ": something was rounded";
  }
}

TEST(Moments, AStepThatIsNotTakenChangesNoBit) {
  for (const char* stack : {"moments", "moments(bf16)", "moments | offload(optimizer)"}) {
    for (const char* optimizer : {"adamw", "lion", "momentum"}) {
      Steps ours(stack, optimizer);
      ours.take(0);
      ours.take(1);
      ours.run.set_number(ours.at("rate"), 0.01);
      const Numbers weight = ours.weight();
      std::map<std::string, Numbers> states;
      for (const Value in : ours.step.inputs) {
        if (ours.step[in].role != Role::kState) continue;
        states[to_string(ours.step[in].source)] = ours.run.values(in);
      }
      ours.take(2, /*counted=*/false);
      EXPECT_EQ(ours.weight(), weight);
      for (const auto& [source, numbers] : states) {
        for (const Value in : ours.step.inputs) {
          if (to_string(ours.step[in].source) == source) {
            EXPECT_EQ(ours.run.values(in), numbers) << stack << " " << optimizer << " " << source;
          }
        }
      }
      ours.take(3);
      EXPECT_NE(ours.weight(), weight) << "and the next step goes on";
    }
  }
}

TEST(Moments, OtherObjectsCannotBeSo) {
  Scheme step = parse_scheme(kModel);
  step[2].attributes.precision = "dyn8";
  try {
    training_step(step, {});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'up.weight' cannot be dyn8"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace adjoint

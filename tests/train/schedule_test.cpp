// Rates at the places where a schedule's promises can be read off.
#include "train/schedule.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

RateSchedule schedule(const nlohmann::json& options) {
  return RateSchedule(make_config(std::span(&options, 1)));
}

TEST(Schedule, WarmsUpLinearlyThenFallsAlongACosine) {
  const RateSchedule s = schedule(
      {{"steps", 1100}, {"lr", 1.0}, {"min_lr", 0.1}, {"warmup", 99}, {"schedule", "cosine"}});
  EXPECT_DOUBLE_EQ(s.rate(0), 0.01);
  EXPECT_DOUBLE_EQ(s.rate(49), 0.5);
  EXPECT_DOUBLE_EQ(s.rate(99), 1.0);
  EXPECT_NEAR(s.rate(99 + 1000 / 2), 0.55, 1e-12);  // half way between 1 and 0.1
  EXPECT_NEAR(s.rate(1099), 0.1, 1e-12);
  for (int64_t i = 100; i < 1100; ++i) EXPECT_LT(s.rate(i), s.rate(i - 1));
}

TEST(Schedule, StaysConstantThenCoolsDown) {
  const RateSchedule s = schedule({{"steps", 1000},
                                   {"lr", 2.0},
                                   {"min_lr", 0.0},
                                   {"warmup", 10},
                                   {"schedule", "wsd"},
                                   {"cooldown", 0.2}});
  EXPECT_DOUBLE_EQ(s.rate(10), 2.0);
  EXPECT_DOUBLE_EQ(s.rate(799), 2.0);
  EXPECT_DOUBLE_EQ(s.rate(899), 1.0);
  EXPECT_DOUBLE_EQ(s.rate(999), 0.0);
  for (int64_t i = 800; i < 1000; ++i) EXPECT_LT(s.rate(i), s.rate(i - 1));
}

// The last step of a run, which is one before --steps, has the rate that --min-lr says.
TEST(Schedule, TheLastStepHasTheLastRate) {
  for (const char* shape : {"wsd", "cosine"}) {
    for (const int64_t steps : {3, 4, 20, 1000}) {
      for (const double cooldown : {0.2, 0.5, 1.0}) {
        const RateSchedule s = schedule({{"steps", steps},
                                         {"lr", 1.0},
                                         {"min_lr", 0.1},
                                         {"schedule", shape},
                                         {"cooldown", cooldown}});
        EXPECT_NEAR(s.rate(steps - 1), 0.1, 1e-12) << shape << ", " << steps << ", " << cooldown;
      }
    }
  }
}

TEST(Schedule, ScalesWithTheBatch) {
  const nlohmann::json base = {
      {"lr", 1.0}, {"batch", 48}, {"base_batch", 12}, {"warmup", 0}, {"schedule", "constant"}};
  nlohmann::json linear = base, root = base;
  linear["lr_scaling"] = "linear";
  root["lr_scaling"] = "sqrt";
  EXPECT_DOUBLE_EQ(schedule(base).rate(5), 1.0);
  EXPECT_DOUBLE_EQ(schedule(linear).rate(5), 4.0);
  EXPECT_DOUBLE_EQ(schedule(root).rate(5), 2.0);
}

}  // namespace
}  // namespace adjoint

#include "train/step_rate.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

StepRate::Time at(double seconds) {
  return StepRate::Time(
      std::chrono::duration_cast<StepRate::Time::duration>(std::chrono::duration<double>(seconds)));
}

TEST(StepRate, LeavesTheFirstStepOut) {
  StepRate rate(100);
  rate.begin(at(10));
  EXPECT_FALSE(rate.per_second()) << "no step is done";
  rate.done(at(15));
  EXPECT_DOUBLE_EQ(*rate.per_second(), 20) << "there is no other yet";
  rate.done(at(16));
  EXPECT_DOUBLE_EQ(*rate.per_second(), 100);
  rate.done(at(18));
  EXPECT_NEAR(*rate.per_second(), 200.0 / 3, 1e-9);
}

TEST(StepRate, LeavesOutWhatIsNoStep) {
  StepRate rate(100);
  rate.begin(at(0));
  for (const double t : {3, 4, 5}) rate.done(at(t));
  EXPECT_DOUBLE_EQ(*rate.take(), 100);
  rate.begin(at(60));  // an evaluation took so long
  EXPECT_DOUBLE_EQ(*rate.per_second(), 100) << "as it was before";
  rate.done(at(60.5));
  EXPECT_DOUBLE_EQ(*rate.take(), 200);
}

// A line of metrics after every step: the second one must not be told as the first was.
TEST(StepRate, TakenAfterEveryStep) {
  StepRate rate(10);
  rate.begin(at(0));
  rate.done(at(5));
  EXPECT_DOUBLE_EQ(*rate.take(), 2);
  rate.done(at(6));
  EXPECT_DOUBLE_EQ(*rate.take(), 10);
  rate.done(at(8));
  EXPECT_DOUBLE_EQ(*rate.take(), 5);
}

}  // namespace
}  // namespace adjoint

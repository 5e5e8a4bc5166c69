// How a search uses the cores: every index once, and of several failures always the same one.
#include "plan/looks.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "base/error_text.h"
#include "device/parallel.h"

namespace adjoint {
namespace {

class OnAllCores : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_num_threads(GetParam()); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_P(OnAllCores, EveryIndexOnce) {
  for (const size_t count : {0, 1, 2, 7, 100}) {
    std::vector<std::atomic<int>> done(count);
    on_all_cores(count, [&](size_t i) { ++done[i]; });
    for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
  }
}

TEST_P(OnAllCores, TheFirstFailureIsThrownAndTheRestIsDone) {
  std::atomic<int> done = 0;
  const std::string error = error_text([&] {
    on_all_cores(20, [&](size_t i) {
      ++done;
      if (i % 5 == 3) fail("number ", i);
    });
  });
  EXPECT_EQ(error, "number 3");
  EXPECT_EQ(done, 20);
}
INSTANTIATE_TEST_SUITE_P(Threads, OnAllCores, ::testing::Values(1, 2, 8));

}  // namespace
}  // namespace adjoint

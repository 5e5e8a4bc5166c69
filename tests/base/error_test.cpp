#include "base/error.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace adjoint {
namespace {

TEST(Error, FailJoinsItsParts) {
  EXPECT_EQ(error_text([] { fail("w has ", 3, " rows, x has ", 2.5, " columns"); }),
            "w has 3 rows, x has 2.5 columns");
}

TEST(CheckDeathTest, AbortsWithTheClaimAndTheReason) {
  const int rows = 3;
  CHECK(rows == 3, "a true claim goes on");
  EXPECT_DEATH(CHECK(rows == 2, "the planner lost a row"),
               "error_test.cpp.*rows == 2.*the planner lost a row");
}

}  // namespace
}  // namespace adjoint

// Tests that run kernels here want the compiler that compiled them to be there still.
#pragma once
#include <gtest/gtest.h>

namespace adjoint {

bool has_compiler();

class KernelsOnCpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_compiler()) GTEST_SKIP() << "no compiler: " HOST_COMPILER;
  }
};

}  // namespace adjoint

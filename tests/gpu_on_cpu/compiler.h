// Tests that run generated kernels need the host's compiler; they are skipped without it.
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

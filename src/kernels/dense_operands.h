// What kernels of ops that want dense operands rely on: the plan copies the views that they read.
#pragma once
#include "base/error.h"
#include "kernels/kernel.h"

namespace adjoint {

inline void check_operands_are_dense(const KernelCall& call) {
  for (size_t i = 0; i < call.call.inputs.size(); ++i) {
    CHECK(call.in_strides[i] == dense_strides(call.call.inputs[i]),
          "operands of " + std::string(call.call.op) + " are dense");
  }
}

}  // namespace adjoint

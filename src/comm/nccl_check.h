// The status of a call of NCCL's.
#pragma once
#include "base/error.h"
#include "comm/nccl_functions.h"

namespace adjoint {

inline void check_nccl(nccl::Result result, const char* what) {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return;
  throw MachineError(join_parts("NCCL failed at ", what, ": ", nccl::error_text(result)));
}

}  // namespace adjoint

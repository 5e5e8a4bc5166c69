// What a kernel asks of the machine that runs it. Kernels are compiled by themselves and loaded, so
// this is plain data and functions.
#pragma once

namespace adjoint {

struct KernelMachine {
  struct Index {
    unsigned x = 0, y = 0;
  };
  Index thread = {}, block = {}, grid = {};
  void (*meet_block)() = nullptr;
  void (*meet_warp)(unsigned mask) = nullptr;
  // The number of the thread whose lane differs from ours in the bits of `distance`.
  double (*exchange)(unsigned mask, int distance, double mine) = nullptr;
};

}  // namespace adjoint

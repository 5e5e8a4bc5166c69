// What a kernel calls on the simulated machine. Kernels are compiled separately and loaded, so this
// is plain data and function pointers.
#pragma once

namespace adjoint {

struct KernelMachine {
  struct Index {
    unsigned x = 0, y = 0;
  };
  Index thread = {}, block = {}, grid = {};
  void (*meet_block)() = nullptr;
  void (*meet_warp)(unsigned mask) = nullptr;
  // A warp shuffle: the value of the thread whose lane differs from ours in the bits of `distance`.
  double (*exchange)(unsigned mask, int distance, double mine) = nullptr;
};

}  // namespace adjoint

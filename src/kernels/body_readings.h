// The readings of a body, a folder each: kernels/reference, kernels/cpu, kernels/cuda/codegen.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// Elements of a body worth a thread: some microseconds, as much as waking it takes.
inline constexpr int64_t kWorthAThread = 16384;

Launch prepare_body_reference(const KernelCall& call, const Pointers& at);
Launch prepare_body_cpu(const KernelCall& call, const Pointers& at);
Bytes body_workspace(const KernelCall& call);
Launch prepare_body_cuda(const KernelCall& call, const Pointers& at);
// The same, computed in float64 before it is rounded to what is stored.
Launch prepare_wide_body_cuda(const KernelCall& call, const Pointers& at);
Bytes body_cuda_workspace(const KernelCall& call);

// A body that sums nothing and draws nothing, in units that may run in any order and at the same
// time, each on registers that nobody else uses meanwhile.
struct BodyUnits {
  int64_t count = 0, elements = 0;  // elements of one unit
  std::function<void(int64_t begin, int64_t end, std::byte* registers)> run = {};
};
BodyUnits prepare_body_units(const KernelCall& call, const Pointers& at);
Bytes body_unit_registers(const KernelCall& call);

}  // namespace adjoint

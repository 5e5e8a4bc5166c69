// The ways to run a body, a folder each: kernels/reference, kernels/cpu, kernels/cuda/codegen.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// Elements of a body that are worth a thread: some microseconds, about what waking a thread takes.
inline constexpr int64_t kWorthAThread = 16384;

Launch prepare_body_reference(const KernelCall& call, const Pointers& at);
Launch prepare_body_cpu(const KernelCall& call, const Pointers& at);
Bytes body_workspace(const KernelCall& call);
Launch prepare_body_cuda(const KernelCall& call, const Pointers& at);
// The same, computed in float64 and rounded once, when a result is stored.
Launch prepare_wide_body_cuda(const KernelCall& call, const Pointers& at);
Bytes body_cuda_workspace(const KernelCall& call);

// A body without sums over leading axes and without random numbers, cut into units that may run in
// any order and concurrently, each with registers of its own.
struct BodyUnits {
  int64_t count = 0, elements = 0;  // elements of one unit
  std::function<void(int64_t begin, int64_t end, std::byte* registers)> run = {};
};
BodyUnits prepare_body_units(const KernelCall& call, const Pointers& at);
Bytes body_unit_registers(const KernelCall& call);

}  // namespace adjoint

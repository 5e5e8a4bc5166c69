// A backend is all that a target can do: kernels written by hand, and a way to run any body for the
// ops without one. A new target is a folder beside kernels/cpu, and a line in backend.cpp.
#pragma once
#include <span>

#include "kernels/kernel.h"
#include "ops/fusion_limits.h"

namespace adjoint {

struct Backend {
  std::span<const Kernel* const> kernels;  // by hand; every other op has a body
  Launch (*prepare_body)(const KernelCall&, const Pointers&) = nullptr;
  Bytes (*body_workspace)(const KernelCall&) = nullptr;  // null: none
  // Whether products need dense operands and results. oneDNN chooses its algorithm, and so the
  // order of sums, by strides too: with other strides the same product would have other bits
  // wherever a plan places its operands inside other objects.
  bool dense_products = false;
  FusionLimits limits = {};

  const Kernel* find(std::string_view op) const;  // null: the op's body is run
  bool wants_dense(const OpDef& op) const {
    return op.wants_dense || (op.multiplies && dense_products);
  }
  Bytes workspace(const KernelCall& call) const;
  Launch prepare(const KernelCall& call, const Pointers& at) const;
};
const Backend& backend_of(Target target);
const Backend& reference_backend();  // float64, in plain loops; tests compare the others with it

extern const Backend cpu_backend, cuda_backend;

// The same, by the target of the call.
Bytes workspace_bytes(const KernelCall& call);
Launch prepare(const KernelCall& call, const Pointers& at);
Launch prepare_reference(const KernelCall& call, const Pointers& at);
// Waits until all CUDA kernels are compiled, which began when their calls were prepared. To be
// called before any launch. Throws a MachineError.
void finish_kernels();

}  // namespace adjoint

// A backend is all that a target can do: its kernels by hand, and one reading of bodies for the ops
// that have none. A new target is a folder beside kernels/cpu, and a line in backend.cpp.
#pragma once
#include <span>

#include "kernels/kernel.h"
#include "ops/fusion_limits.h"

namespace adjoint {

struct Backend {
  std::span<const Kernel* const> kernels;  // by hand; every other op has a body
  Launch (*prepare_body)(const KernelCall&, const Pointers&) = nullptr;
  Bytes (*body_workspace)(const KernelCall&) = nullptr;  // null: none
  // Its products take dense operands and make dense results. The CPU's library chooses how to
  // multiply by strides too, and with that the order of the sums: the same product would have other
  // bits wherever a plan lays its operands inside other objects.
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
const Backend& reference_backend();  // float64, in plain loops: what the others are held to

extern const Backend cpu_backend, cuda_backend;

// The same, by the target of the call.
Bytes workspace_bytes(const KernelCall& call);
Launch prepare(const KernelCall& call, const Pointers& at);
Launch prepare_reference(const KernelCall& call, const Pointers& at);
// Waits for kernels of CUDA that are being compiled, all at the same time, since their calls were
// prepared; before any launch. MachineError.
void finish_kernels();

}  // namespace adjoint

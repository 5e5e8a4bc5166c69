#include "kernels/backend.h"

#include "base/error.h"
#include "device/library_threads.h"

namespace adjoint {

KernelCall kernel_call(const OpCall& call, const Scheme& scheme, const Morphism& morphism,
                       const KernelTerms& terms, const std::function<Strides(Value)>& strides) {
  KernelCall k(call, terms);
  for (const Value in : morphism.inputs) k.in_strides.push_back(strides(in));
  for (const Value out : morphism.outputs) {
    k.outputs.push_back(scheme[out].type);
    k.out_strides.push_back(strides(out));
  }
  return k;
}

const Kernel* Backend::find(std::string_view op) const {
  for (const Kernel* kernel : kernels) {
    if (kernel->op == op) return kernel;
  }
  return nullptr;
}

Bytes Backend::workspace(const KernelCall& call) const {
  const LibraryThreads counted_on(call.threads);
  if (const Kernel* kernel = find(call.call.op)) {
    return kernel->workspace ? kernel->workspace(call) : Bytes{0};
  }
  return body_workspace ? body_workspace(call) : Bytes{0};
}

Launch Backend::prepare(const KernelCall& call, const Pointers& at) const {
  const LibraryThreads counted_on(call.threads);
  if (const Kernel* kernel = find(call.call.op)) return kernel->prepare(call, at);
  CHECK(op_named(call.call.op).body, "an op has a kernel or a body: " + std::string(call.call.op));
  return prepare_body(call, at);
}

const Backend& backend_of(Target target) {
  return target == Target::kCuda ? cuda_backend : cpu_backend;
}

const FusionLimits& fusion_limits(Target target) { return backend_of(target).limits; }

Bytes workspace_bytes(const KernelCall& call) { return backend_of(call.target).workspace(call); }

Launch prepare(const KernelCall& call, const Pointers& at) {
  return backend_of(call.target).prepare(call, at);
}

Launch prepare_reference(const KernelCall& call, const Pointers& at) {
  return reference_backend().prepare(call, at);
}

}  // namespace adjoint

// The list of CUDA's kernels by hand (kernels.inc), and its reading of bodies.
#include "kernels/backend.h"

#include "kernels/body_readings.h"
#include "kernels/cuda/codegen/body.h"
#include "kernels/cuda/contraction.h"

namespace adjoint {

#define KERNEL(name) extern const Kernel cuda_##name;
#include "kernels/cuda/kernels.inc"
#undef KERNEL

namespace {

const Kernel* const kKernels[] = {
#define KERNEL(name) &cuda_##name,
#include "kernels/cuda/kernels.inc"
#undef KERNEL
};

Launch prepare_body(const KernelCall& call, const Pointers& at) {
  const bool wide = op_named(call.call.op).wide;
  if (const auto sum = wide ? std::nullopt : lone_sum_for_cuda(call)) {
    return prepare_lone_sum_cuda(*sum, call, at);
  }
  return wide ? prepare_wide_body_cuda(call, at) : prepare_body_cuda(call, at);
}

Bytes body_workspace_of(const KernelCall& call) {
  const bool wide = op_named(call.call.op).wide;
  const auto sum = wide ? std::nullopt : lone_sum_for_cuda(call);
  return sum ? lone_sum_workspace(*sum, call) : body_cuda_workspace(call);
}

}  // namespace

extern const Backend cuda_backend = {
    .kernels = kKernels,
    .prepare_body = prepare_body,
    .body_workspace = body_workspace_of,
    // Deterministic products take no epilogue with gelu's gradient. On an H200 it costs 1.3 times
    // as much as the pass that it spares at sums of 256 terms, the same or a little less at 768;
    // where it turns is a guess.
    .limits = {.product_end = product_epilogue_takes,
               .exact_product_end = false,
               .product_end_terms = 512}};

}  // namespace adjoint

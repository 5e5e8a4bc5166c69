// The CPU's kernels written by hand (kernels.inc), and how it runs bodies.
#include "kernels/backend.h"

#include "body/facts.h"
#include "kernels/body_layout.h"
#include "kernels/body_readings.h"

namespace adjoint {

#define KERNEL(name) extern const Kernel cpu_##name;
#include "kernels/cpu/kernels.inc"
#undef KERNEL

namespace {

const Kernel* const kKernels[] = {
#define KERNEL(name) &cpu_##name,
#include "kernels/cpu/kernels.inc"
#undef KERNEL
};

Launch prepare_body(const KernelCall& call, const Pointers& at) {
  bool wide = op_named(call.call.op).wide;
  for (const Type& t : call.outputs) wide = wide || t.dtype == Dtype::kF64;
  return wide ? prepare_body_reference(call, at) : prepare_body_cpu(call, at);
}

}  // namespace

extern const Backend cpu_backend = {
    .kernels = kKernels,
    .prepare_body = prepare_body,
    .body_workspace = body_workspace,
    .dense_products = true,
    .limits = {.piece = kPiece,
               .sum_blocks = kMaxBlocks,
               .wide_suffix = kWideSuffix,
               // The product and then the body: nothing is gained, so nobody asks by default.
               .product_end = [](const Body& body, Dtype) { return is_elementwise(body); }}};

}  // namespace adjoint

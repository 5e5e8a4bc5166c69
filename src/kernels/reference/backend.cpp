// The reference: arithmetic in float64 and plain loops. It shares with the CPU the ops that only
// move elements, and the plain contraction that the CPU falls back to; an op with a meaning in
// smaller ops has no kernel of its own here.
#include "kernels/backend.h"

#include "kernels/body_readings.h"

namespace adjoint {

#define KERNEL(name) extern const Kernel name;
#include "kernels/reference/kernels.inc"
#undef KERNEL

const Backend& reference_backend() {
  static const Kernel* const kernels[] = {
#define KERNEL(name) &(name),
#include "kernels/reference/kernels.inc"
#undef KERNEL
  };
  static const Backend backend = {.kernels = kernels, .prepare_body = prepare_body_reference};
  return backend;
}

}  // namespace adjoint

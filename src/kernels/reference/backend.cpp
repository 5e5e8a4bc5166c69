// The reference: every op in float64 and plain loops. It shares nothing with the fast kernels but
// what an op is; an op with a meaning in smaller ops has none of its own.
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

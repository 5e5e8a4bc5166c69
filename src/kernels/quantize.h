// A matrix turned into codes and scales (ops/quantize.h has the formats).
#pragma once
#include "ops/quantize.h"

namespace adjoint {

// Turns `matrix`, which is dense, into codes and scales.
void quantize(const float* matrix, const Type& type, const CodeFormat& format, void* codes,
              float* scales);

}  // namespace adjoint

// Copies for ops that only say where elements are, where a view cannot say it.
#pragma once
#include "kernels/kernel.h"

namespace adjoint {

// Element k of one, in row-major order of its own axes, becomes element k of the other.
Launch prepare_copy(const Type& from_type, const Strides& from_strides, const void* from,
                    const Type& to_type, const Strides& to_strides, void* to);
Launch prepare_reshape(const KernelCall& call, const Pointers& at);

}  // namespace adjoint

// Copies for ops that only say where elements are, where a view cannot say it.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// Element k of one, in row-major order of its own axes, becomes element k of the other.
Launch prepare_copy(const Type& from_type, const Strides& from_strides, const void* from,
                    const Type& to_type, const Strides& to_strides, void* to);
// Letters for all axes but the last `untouched`, for index maps.
std::string leading_letters(const Type& type, int untouched);
Launch prepare_reshape(const KernelCall& call, const Pointers& at);

}  // namespace adjoint

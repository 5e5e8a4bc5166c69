// Operands are copied into the result, except those that the plan has placed there.
#include "kernels/concat_pieces.h"
#include "kernels/cpu/copy.h"

namespace adjoint {

namespace {

Launch copy(const KernelCall& call, const Pointers& at) {
  return concat_pieces(call, at,
                       [&](const Type& type, const Strides& strides, const void* from, void* to) {
                         return prepare_copy(type, strides, from, type, call.out_strides[0], to);
                       });
}

}  // namespace

extern const Kernel cpu_concat = {
    .op = "concat",
    .prepare = copy,
};

}  // namespace adjoint

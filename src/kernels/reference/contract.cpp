// A contraction in plain loops.
#include "kernels/reference/naive_contraction.h"

namespace adjoint {

namespace {

Launch reference(const KernelCall& k, const Pointers& at) {
  return prepare_naive_contract(k.call.text("map"), k, at);
}

}  // namespace

extern const Kernel reference_contract = {
    .op = "contract",
    .prepare = reference,
};

}  // namespace adjoint

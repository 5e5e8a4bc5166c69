// The process's table of tuned products: read from the user's cache folder when it is first asked
// for, and written back when it has learnt something, whole, under a lock, beside what other
// processes have learnt meanwhile.
#pragma once
#include "kernels/cuda/cublaslt/tuned_products.h"

namespace adjoint {

TunedProducts& product_table();
// These come before what the table knows, in this process: the user's file stays without them.
void borrow_products(const TunedProducts& others);
// A cache folder that cannot be written is no reason to stop: products are then timed again in the
// next run.
void save_product_table() noexcept;

}  // namespace adjoint

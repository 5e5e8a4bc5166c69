// The process's table of tuned products. It is read from the user's cache folder on first use, and
// written back when it has new entries: as a whole, under a lock, merged with what other processes
// have added meanwhile.
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

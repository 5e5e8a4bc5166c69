// The process's table of tuned products. It is read from the user's cache folder on first use, and
// written back when it has new entries: as a whole, under a lock, merged with what other processes
// have added meanwhile.
#pragma once
#include <mutex>

#include "kernels/cuda/cublaslt/tuned_products.h"

namespace adjoint {

TunedProducts& product_table();
// Ranks of one process share the table: whoever prepares a run, or reads or changes the table while
// others may, holds this.
[[nodiscard]] std::unique_lock<std::mutex> lock_products();
// These come before what the table knows, in this process: the user's file stays without them.
void borrow_products(const TunedProducts& others);
// A cache folder that cannot be written is no reason to stop: products are then timed again in the
// next run.
void save_product_table() noexcept;

}  // namespace adjoint

// The process's table of tuned products: read from a file when it is first asked for, and written
// back when it has learnt something.
#pragma once
#include "ops/tuned_products.h"

namespace adjoint {

// Which file: said before the table is first asked for, or the user's cache folder. Empty: none.
void set_product_file(std::filesystem::path path);
std::filesystem::path product_file();

TunedProducts& product_table();  // Error where a file that was said is not what was written
// A cache folder that cannot be written is no reason to stop: what was learnt is learnt again.
void save_product_table() noexcept;

}  // namespace adjoint

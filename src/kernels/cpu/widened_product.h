// A dtype that oneDNN does not multiply on this machine is widened to float32 in the workspace,
// piece by piece, and the result narrowed when its sum is done.
#pragma once
#include "kernels/cpu/product_tiles.h"

namespace adjoint {

Bytes widened_workspace(const Product& product, const Tile& tile);
Launch prepare_widened(const Product& product, const Tile& tile, const void* a, const void* b,
                       const void* bias, void* c, void* workspace);

}  // namespace adjoint

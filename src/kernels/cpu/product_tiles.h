// A product in pieces of m, n and k, for where the whole would take too large a workspace.
#pragma once
#include <algorithm>

#include "kernels/product.h"

namespace adjoint {

// How much of m, n and k one piece of a product takes.
struct Tile {
  int64_t m, n, k;
};

// The first piece along k begins the sum, the others add to it.
Product piece_of(const Product& product, const Tile& tile, bool first);

// The most that a piece of any shape asks of oneDNN: the last ones may go by another algorithm.
Bytes most_workspace(const Product& product, const Tile& tile);

// Calls f(corner, tile) for every piece; those of one sum follow each other.
template <class F>
void for_each_tile(const Product& p, const Tile& tile, const F& f) {
  for (int64_t m = 0; m < p.m; m += tile.m) {
    for (int64_t n = 0; n < p.n; n += tile.n) {
      for (int64_t k = 0; k < p.k; k += tile.k) {
        f(Tile{m, n, k},
          Tile{std::min(tile.m, p.m - m), std::min(tile.n, p.n - n), std::min(tile.k, p.k - k)});
      }
    }
  }
}

}  // namespace adjoint

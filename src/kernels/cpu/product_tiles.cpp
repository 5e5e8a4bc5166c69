#include "kernels/cpu/product_tiles.h"

#include "base/error.h"
#include "kernels/cpu/onednn_matmul.h"

namespace adjoint {

namespace {

// What a side is cut into: whole pieces, and maybe a last one.
std::vector<int64_t> pieces(int64_t whole, int64_t part) {
  return whole % part ? std::vector<int64_t>{part, whole % part} : std::vector<int64_t>{part};
}

}  // namespace

Product piece_of(const Product& p, const Tile& tile, bool first) {
  Product piece = p;
  piece.m = tile.m, piece.n = tile.n, piece.k = tile.k;
  piece.accumulate = p.accumulate || !first;
  piece.bias = p.bias && first;
  return piece;
}

Bytes most_workspace(const Product& p, const Tile& tile) {
  Bytes most{0};
  for (const int64_t m : pieces(p.m, tile.m)) {
    for (const int64_t n : pieces(p.n, tile.n)) {
      for (const int64_t k : pieces(p.k, tile.k)) {
        for (const bool first : {true, false}) {
          if (!first && tile.k == p.k) continue;
          const auto taken = matmul_workspace(piece_of(p, {m, n, k}, first));
          CHECK(taken, "oneDNN multiplies a part of what it multiplies");
          most = std::max(most, *taken);
        }
      }
    }
  }
  return most;
}

}  // namespace adjoint

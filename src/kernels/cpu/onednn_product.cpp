// How a product is multiplied: by loops of our own where it has few rows (thin_product.h), else by
// oneDNN where that takes the dtype, else widened to float32. Where the workspace would exceed its
// cap batches go one by one, then pieces of m, n and k.
#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/onednn_matmul.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/product_tiles.h"
#include "kernels/cpu/thin_product.h"
#include "kernels/cpu/widened_product.h"

namespace adjoint {

namespace {

constexpr int64_t kLeastTile = 32;  // below this a product is mostly overhead
// oneDNN's kernels count a side in 32 bits: a side of 2^32 is one of 0 to them, and they divide by
// it.
constexpr int64_t kLongestSide = int64_t{1} << 30;

// What oneDNN may be asked for at once.
Tile countable_tile(const Product& p) {
  return {std::min(p.m, kLongestSide), std::min(p.n, kLongestSide), std::min(p.k, kLongestSide)};
}

bool is_whole(const Product& p, const Tile& tile) {
  return tile.m == p.m && tile.n == p.n && tile.k == p.k;
}

bool is_native(const Product& p) {
  const Tile tile = countable_tile(p);
  // The sum over a longer side is one of several, which are added in float32.
  if (tile.k < p.k && p.out_dtype != Dtype::kF32) return false;
  Product asked = is_whole(p, tile) ? p : piece_of(p, tile, true);
  // Which dtypes oneDNN multiplies does not depend on how many products there are.
  for (int64_t& size : asked.batch) size = std::min(size, kLongestSide);
  return matmul_workspace(asked).has_value();
}

Bytes tile_workspace(const Product& p, const Tile& tile, bool native) {
  return native ? most_workspace(p, tile) : widened_workspace(p, tile);
}

// The whole, or the longest side halved until the workspace is within the cap or nothing is left to
// halve. Sums stay float32: along k only where the result, or its widened copy, is that.
Tile tile_within(const Product& p, bool native) {
  Tile tile = countable_tile(p);
  while (tile_workspace(p, tile, native) > p.workspace_cap) {
    std::vector<int64_t*> sides = {&tile.m, &tile.n};
    if (!native || p.out_dtype == Dtype::kF32) sides.push_back(&tile.k);
    int64_t& longest = **std::max_element(sides.begin(), sides.end(),
                                          [](int64_t* x, int64_t* y) { return *x < *y; });
    if (longest <= kLeastTile) break;
    longest = (longest + 1) / 2;
  }
  return tile;
}

// Too large as a batch: one matrix after the other.
std::optional<Product> unbatched(const Product& p, bool native) {
  if (p.batch.empty()) return std::nullopt;
  double products = 1;
  for (const int64_t size : p.batch) products *= static_cast<double>(size);
  const bool countable =
      is_whole(p, countable_tile(p)) && products <= static_cast<double>(kLongestSide);
  if (countable && tile_workspace(p, {p.m, p.n, p.k}, native) <= p.workspace_cap) {
    return std::nullopt;
  }
  Product q = p;
  q.outer.push_back({p.batch[0], p.a_batch[0], p.b_batch[0], p.c_batch[0], false});
  for (std::vector<int64_t>* list : {&q.batch, &q.a_batch, &q.b_batch, &q.c_batch}) {
    list->erase(list->begin());
  }
  return q;
}

// The first axis of `outer` taken one step at a time; a summed one adds to what its first step
// made.
Product inner_of(const Product& p, bool first) {
  Product inner = p;
  inner.outer.erase(inner.outer.begin());
  inner.accumulate = p.accumulate || (p.outer[0].summed && !first);
  return inner;
}

Launch prepare_outer(const Product& p, const void* a, const void* b, const void* bias, void* c,
                     void* workspace) {
  const Product::Outer axis = p.outer[0];
  const int64_t size = size_of(p.dtype).count, out_size = size_of(p.out_dtype).count;
  std::vector<Launch> steps;
  for (int64_t i = 0; i < axis.size; ++i) {
    steps.push_back(prepare_product(inner_of(p, i == 0),
                                    static_cast<const char*>(a) + i * axis.a * size,
                                    static_cast<const char*>(b) + i * axis.b * size, bias,
                                    static_cast<char*>(c) + i * axis.c * out_size, workspace));
  }
  return [steps] {
    for (const Launch& step : steps) step();
  };
}

Launch prepare_tiles(const Product& p, const Tile& tile, const void* a, const void* b,
                     const void* bias, void* c, void* workspace) {
  const int64_t size = size_of(p.dtype).count, out_size = size_of(p.out_dtype).count;
  std::vector<Launch> steps;
  for_each_tile(p, tile, [&](const Tile& at, const Tile& sizes) {
    steps.push_back(prepare_matmul(
        piece_of(p, sizes, at.k == 0),
        static_cast<const char*>(a) + (at.m * p.a_m + at.k * p.a_k) * size,
        static_cast<const char*>(b) + (at.k * p.b_k + at.n * p.b_n) * size,
        static_cast<const char*>(bias) + (p.bias ? at.n * out_size : 0),
        static_cast<char*>(c) + (at.m * p.c_m + at.n * p.c_n) * out_size, workspace));
  });
  if (steps.size() == 1) return steps[0];
  return [steps] {
    for (const Launch& step : steps) step();
  };
}

}  // namespace

Bytes product_workspace(const Product& p) {
  if (!p.outer.empty()) {
    return std::max(product_workspace(inner_of(p, true)), product_workspace(inner_of(p, false)));
  }
  if (is_thin(p)) return thin_workspace(p);
  const bool native = is_native(p);
  if (const auto apart = unbatched(p, native)) return product_workspace(*apart);
  return tile_workspace(p, tile_within(p, native), native);
}

Launch prepare_product(const Product& p, const void* a, const void* b, const void* bias, void* c,
                       void* workspace) {
  CHECK(p.epilogue == Product::Epilogue::kNone, "an epilogue is for a device that has it");
  if (!p.outer.empty()) return prepare_outer(p, a, b, bias, c, workspace);
  if (is_thin(p)) return prepare_thin(p, a, b, bias, c, workspace);
  const bool native = is_native(p);
  CHECK(native || p.dtype != Dtype::kF32 || p.out_dtype != Dtype::kF32,
        "oneDNN multiplies float32");
  if (const auto apart = unbatched(p, native)) {
    return prepare_product(*apart, a, b, bias, c, workspace);
  }
  const Tile tile = tile_within(p, native);
  return native ? prepare_tiles(p, tile, a, b, bias, c, workspace)
                : prepare_widened(p, tile, a, b, bias, c, workspace);
}

}  // namespace adjoint

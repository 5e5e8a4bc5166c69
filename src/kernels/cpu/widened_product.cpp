#include "kernels/cpu/widened_product.h"

#include <array>
#include <memory>

#include "device/parallel.h"
#include "kernels/cpu/onednn_matmul.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// The product in float32, dense: a[batch, m, k], b[batch, k, n], bias, c[batch, m, n].
struct Widened {
  Product product;
  Bytes a, b, bias, c;
  Bytes total() const { return a + b + bias + c; }
};
Widened widen(const Product& p) {
  Widened w{.product = p, .a = {}, .b = {}, .bias = {}, .c = {}};
  w.product.dtype = w.product.out_dtype = Dtype::kF32;
  w.product.accumulate = false;  // what was in c is added when the product is narrowed
  int64_t batch = 1;
  const auto dense = [&](std::vector<int64_t>& strides, int64_t inner) {
    int64_t next = inner;
    for (size_t i = p.batch.size(); i-- > 0;) {
      strides[i] = next;
      next *= p.batch[i];
    }
  };
  for (const int64_t size : p.batch) batch *= size;
  dense(w.product.a_batch, p.m * p.k);
  dense(w.product.b_batch, p.k * p.n);
  dense(w.product.c_batch, p.m * p.n);
  w.product.a_m = p.k, w.product.a_k = 1;
  w.product.b_k = p.n, w.product.b_n = 1;
  w.product.c_m = p.n, w.product.c_n = 1;
  w.a = round_up({batch * p.m * p.k * 4}, {64});
  w.b = round_up({batch * p.k * p.n * 4}, {64});
  w.c = round_up({batch * p.m * p.n * 4}, {64});
  w.bias = p.bias ? round_up({p.n * 4}, {64}) : Bytes{0};
  return w;
}

// Visits every (row, column) of every matrix of a batch with the offsets in two layouts.
template <class F>
void for_each_element(const std::vector<int64_t>& batch, int64_t rows, int64_t columns,
                      const std::vector<int64_t>& from_batch, int64_t from_row, int64_t from_column,
                      const std::vector<int64_t>& to_batch, int64_t to_row, int64_t to_column,
                      const F& f) {
  int64_t count = rows;
  for (const int64_t size : batch) count *= size;
  parallel_for(count, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t rest = unit / rows, from = unit % rows * from_row, to = unit % rows * to_row;
      for (size_t i = batch.size(); i-- > 0;) {
        from += rest % batch[i] * from_batch[i];
        to += rest % batch[i] * to_batch[i];
        rest /= batch[i];
      }
      for (int64_t c = 0; c < columns; ++c) f(from + c * from_column, to + c * to_column);
    }
  });
}

}  // namespace

Bytes widened_workspace(const Product& p, const Tile& tile) {
  const Widened w = widen(piece_of(p, tile, true));
  Product wide = w.product;
  wide.m = p.m, wide.n = p.n, wide.k = p.k;  // so that a part of a side is known to be one
  return w.total() + most_workspace(wide, tile);
}

// Pieces of a and b are widened when they change, and a piece of c narrowed when its sum is done.
Launch prepare_widened(const Product& p, const Tile& tile, const void* a, const void* b,
                       const void* bias, void* c, void* workspace) {
  const Widened w = widen(piece_of(p, tile, true));
  auto* at = static_cast<char*>(workspace);
  auto* wide_a = reinterpret_cast<float*>(at);
  auto* wide_b = reinterpret_cast<float*>(at += w.a.count);
  auto* wide_c = reinterpret_cast<float*>(at += w.b.count);
  auto* wide_bias = reinterpret_cast<float*>(at += w.c.count);
  at += w.bias.count;
  // One prepared product per shape that a piece can have.
  const auto which = [=](const Tile& sizes, bool first) {
    return (sizes.m == tile.m) + 2 * (sizes.n == tile.n) + 4 * (sizes.k == tile.k) + 8 * first;
  };
  auto products = std::make_shared<std::array<Launch, 16>>();
  for_each_tile(p, tile, [&](const Tile& corner, const Tile& sizes) {
    Launch& launch = (*products)[which(sizes, corner.k == 0)];
    if (launch) return;
    launch = prepare_matmul(piece_of(w.product, sizes, corner.k == 0), wide_a, wide_b, wide_bias,
                            wide_c, at);
  });
  return [=] {
    const Product& q = w.product;
    Tile in_a{-1, -1, -1}, in_b{-1, -1, -1};
    for_each_tile(p, tile, [&](const Tile& corner, const Tile& sizes) {
      if (in_a.m != corner.m || in_a.k != corner.k) {
        const int64_t from = corner.m * p.a_m + corner.k * p.a_k;
        for_each_element(p.batch, sizes.m, sizes.k, p.a_batch, p.a_m, p.a_k, q.a_batch, q.a_m,
                         q.a_k, [&](int64_t i, int64_t to) {
                           wide_a[to] = static_cast<float>(load_element(a, p.dtype, from + i));
                         });
        in_a = corner;
      }
      if (in_b.k != corner.k || in_b.n != corner.n) {
        const int64_t from = corner.k * p.b_k + corner.n * p.b_n;
        for_each_element(p.batch, sizes.k, sizes.n, p.b_batch, p.b_k, p.b_n, q.b_batch, q.b_k,
                         q.b_n, [&](int64_t i, int64_t to) {
                           wide_b[to] = static_cast<float>(load_element(b, p.dtype, from + i));
                         });
        in_b = corner;
      }
      for (int64_t i = 0; p.bias && corner.k == 0 && i < sizes.n; ++i) {
        wide_bias[i] = static_cast<float>(load_element(bias, p.out_dtype, corner.n + i));
      }
      (*products)[which(sizes, corner.k == 0)]();
      if (corner.k + sizes.k < p.k) return;
      const int64_t to = corner.m * p.c_m + corner.n * p.c_n;
      for_each_element(p.batch, sizes.m, sizes.n, q.c_batch, q.c_m, q.c_n, p.c_batch, p.c_m, p.c_n,
                       [&](int64_t from, int64_t i) {
                         const double before =
                             p.accumulate ? load_element(c, p.out_dtype, to + i) : 0;
                         store_element(c, p.out_dtype, to + i, before + wide_c[from]);
                       });
    });
  };
}

}  // namespace adjoint

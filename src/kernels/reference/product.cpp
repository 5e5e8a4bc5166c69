#include "kernels/reference/product.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "device/parallel.h"

namespace adjoint {

namespace {

constexpr int64_t kRows = 4, kColumns = 8;  // of a tile whose sums stay in registers

// Where the steps of some letters lie in each tensor, the last letter fastest.
struct Offsets {
  std::vector<int64_t> a = {0}, b = {0}, c = {0}, addend = {0};
  int64_t size() const { return static_cast<int64_t>(a.size()); }

  void step(const ProductLetter& l) {
    const auto grow = [&](std::vector<int64_t>& offsets, int64_t stride) {
      std::vector<int64_t> longer;
      longer.reserve(offsets.size() * l.size);
      for (const int64_t from : offsets) {
        for (int64_t x = 0; x < l.size; ++x) longer.push_back(from + x * stride);
      }
      offsets = std::move(longer);
    };
    grow(a, l.a), grow(b, l.b), grow(c, l.c), grow(addend, l.addend);
  }
};

int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// `width` rows of a matrix beside one another, step by step of k; past the end zeros.
void pack(const double* from, const std::vector<int64_t>& rows, const std::vector<int64_t>& k,
          int64_t first, int64_t width, double* to) {
  const int64_t count = std::min<int64_t>(width, static_cast<int64_t>(rows.size()) - first);
  for (size_t t = 0; t < k.size(); ++t, to += width) {
    for (int64_t r = 0; r < width; ++r) to[r] = r < count ? from[rows[first + r] + k[t]] : 0;
  }
}

// One tile: its sums begin with what is in `sums`.
ADJOINT_SIMD void multiply(int64_t k, const double* a, const double* b, double* sums) {
  double tile[kRows][kColumns];
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) tile[i][j] = sums[i * kColumns + j];
  }
  for (int64_t t = 0; t < k; ++t) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        tile[i][j] += a[t * kRows + i] * b[t * kColumns + j];
      }
    }
  }
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) sums[i * kColumns + j] = tile[i][j];
  }
}

struct Float64Product {
  const double *a, *b, *addend;
  double* c;
  double *packed_a, *packed_b;
  Offsets batch, m, n, k;  // letters of both operands, of the first, of the second, summed

  int64_t row_tiles() const { return pieces(m.size(), kRows); }
  int64_t column_tiles() const { return pieces(n.size(), kColumns); }

  void run() {
    const int64_t depth = k.size();
    const int64_t grain = 1 + 4096 / (depth * kRows);
    parallel_for(batch.size() * row_tiles(), grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        pack(a + batch.a[i / row_tiles()], m.a, k.a, i % row_tiles() * kRows, kRows,
             &packed_a[i * kRows * depth]);
      }
    });
    parallel_for(batch.size() * column_tiles(), grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        pack(b + batch.b[i / column_tiles()], n.b, k.b, i % column_tiles() * kColumns, kColumns,
             &packed_b[i * kColumns * depth]);
      }
    });
    const int64_t tiles = batch.size() * row_tiles() * column_tiles();
    parallel_for(tiles, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) tile(i);
    });
  }

  void tile(int64_t i) {
    const int64_t columns = i % column_tiles(), rows = i / column_tiles();  // of all batches
    const int64_t which = rows / row_tiles(), row = rows % row_tiles() * kRows;
    const int64_t column = columns * kColumns;
    const int64_t height = std::min(kRows, m.size() - row);
    const int64_t width = std::min(kColumns, n.size() - column);
    double sums[kRows * kColumns] = {};
    const auto each = [&](const auto& visit) {
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t s = 0; s < width; ++s) visit(row + r, column + s, sums[r * kColumns + s]);
      }
    };
    if (addend) {
      each([&](int64_t r, int64_t s, double& sum) {
        sum = addend[batch.addend[which] + m.addend[r] + n.addend[s]];
      });
    }
    multiply(k.size(), &packed_a[rows * kRows * k.size()],
             &packed_b[(which * column_tiles() + columns) * kColumns * k.size()], sums);
    each([&](int64_t r, int64_t s, double& sum) { c[batch.c[which] + m.c[r] + n.c[s]] = sum; });
  }
};

enum class Group : uint8_t { kBatch, kRows, kColumns };
Group group_of(const ProductLetter& kept) {
  return kept.a && kept.b ? Group::kBatch : kept.b ? Group::kColumns : Group::kRows;
}

// Numbers in the panels of each operand.
struct Panels {
  int64_t a = 1, b = 1;
};
Panels panels_of(const std::vector<ProductLetter>& kept, const std::vector<ProductLetter>& summed) {
  int64_t batch = 1, rows = 1, columns = 1, depth = 1;
  for (const ProductLetter& l : kept) {
    const Group group = group_of(l);
    (group == Group::kBatch ? batch : group == Group::kColumns ? columns : rows) *= l.size;
  }
  for (const ProductLetter& l : summed) depth *= l.size;
  return {.a = batch * pieces(rows, kRows) * kRows * depth,
          .b = batch * pieces(columns, kColumns) * kColumns * depth};
}

}  // namespace

Bytes float64_product_workspace(const std::vector<ProductLetter>& kept,
                                const std::vector<ProductLetter>& summed) {
  const Panels panels = panels_of(kept, summed);
  return {(panels.a + panels.b) * static_cast<int64_t>(sizeof(double))};
}

Launch prepare_float64_product(const std::vector<ProductLetter>& kept,
                               const std::vector<ProductLetter>& summed, const Pointers& at) {
  auto product = std::make_shared<Float64Product>();
  product->a = static_cast<const double*>(at.in[0]);
  product->b = static_cast<const double*>(at.in[1]);
  product->addend = at.in.size() > 2 ? static_cast<const double*>(at.in[2]) : nullptr;
  product->c = static_cast<double*>(at.out[0]);
  CHECK(at.workspace, "the panels of a float64 product are planned");
  product->packed_a = static_cast<double*>(at.workspace);
  product->packed_b = product->packed_a + panels_of(kept, summed).a;
  for (const ProductLetter& l : kept) {
    const Group group = group_of(l);
    (group == Group::kBatch     ? product->batch
     : group == Group::kColumns ? product->n
                                : product->m)
        .step(l);
  }
  for (const ProductLetter& l : summed) product->k.step(l);
  return [product] { product->run(); };
}

}  // namespace adjoint

// y[b, i] = x[b, at[b] + i]: a few rows of every sample, from a row on that is data. Rows past the
// last are the last one again: a kernel has no way to complain.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2) fail("rows_at: wants rows and where they begin");
  const Type &x = call.inputs[0], &at = call.inputs[1];
  if (x.rank() != 2 && x.rank() != 3) {
    fail("rows_at: wants x[batch, rows] or x[batch, rows, width], found ", shape_string(x));
  }
  if (at.rank() != 1 || at.dtype != Dtype::kI32 || at.dim(0) != x.dim(0)) {
    fail("rows_at: rows begin at i32[", x.dim(0), "], found ", to_string(at));
  }
  const int64_t size = call.integer("size");
  if (size < 1 || size > x.dim(1)) {
    fail("rows_at: wants 1 to ", x.dim(1), " rows, found ", size);
  }
  Type y = x;
  y.axes[1] = {x.axes[1].name, size};
  return {y};
}

std::vector<Sample> samples() {
  const auto with = [](Type x, int64_t size) {
    const int64_t batch = x.dim(0);
    return Sample{.inputs = {std::move(x), of({batch}, Dtype::kI32)},
                  .attrs = {{"size", size}},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = 5};
  };
  // Of the first, some begin so late that their last rows are past the end.
  return {with(of({3, 6, 4}), 3), with(of({2, 7}), 2), with(of({1, 5, 33}), 1)};
}

std::vector<Sample> refused() {
  const Type at = of({2}, Dtype::kI32);
  return {{.inputs = {of({2, 5, 3}), at}, .attrs = {{"size", int64_t{6}}}},
          {.inputs = {of({2, 5, 3}), at}, .attrs = {{"size", int64_t{0}}}},
          {.inputs = {of({3, 5, 3}), at}, .attrs = {{"size", int64_t{1}}}},
          {.inputs = {of({2, 5, 3}), of({2})}, .attrs = {{"size", int64_t{1}}}},
          {.inputs = {of({2}), at}, .attrs = {{"size", int64_t{1}}}}};
}

}  // namespace

extern const OpDef op_rows_at = {
    .name = "rows_at",
    .summary = "`size` rows of every sample, from the row on that an operand says",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string letters = letters_but(call.inputs[0], 1);
          return IndexMap{{letters, "a"}, {letters}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

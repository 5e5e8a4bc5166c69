// y = x, but for y[b, from + at[b] + i] = rows[b, i]: what a few positions leave for later ones, in
// the place of the sequence where they stand. Rows that would be past the last are dropped; of a
// ring they begin again at the first.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 3) fail("put_rows: wants x, rows and where they begin");
  const Type &x = call.inputs[0], &rows = call.inputs[1], &at = call.inputs[2];
  const bool ranks = (x.rank() == 2 || x.rank() == 3) && rows.rank() == x.rank();
  if (!ranks || rows.dtype != x.dtype || rows.dim(0) != x.dim(0) || rows.dim(1) > x.dim(1) ||
      (x.rank() == 3 && rows.dim(2) != x.dim(2))) {
    fail("put_rows: wants x[batch, rows, width] and rows[batch, some of them, width], found ",
         to_string(x), " and ", to_string(rows));
  }
  if (at.rank() != 1 || at.dtype != Dtype::kI32 || at.dim(0) != x.dim(0)) {
    fail("put_rows: rows begin at i32[", x.dim(0), "], found ", to_string(at));
  }
  if (call.integer("ring", 0) != 0 && call.integer("from", 0) != 0) {
    fail("put_rows: a ring has no rows before the first, found 'from' ", call.integer("from", 0));
  }
  if (call.integer("from", 0) < 0) {
    fail("put_rows: 'from' must be 0 or more, found ", call.integer("from", 0));
  }
  return {x};
}

std::vector<Sample> samples() {
  const auto with = [](Type x, int64_t rows, Attrs attrs) {
    Type few = x;
    few.axes[1].size = rows;
    const int64_t batch = x.dim(0);
    return Sample{.inputs = {std::move(x), few, of({batch}, Dtype::kI32)},
                  .attrs = std::move(attrs),
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = 5};
  };
  // Of the first, some begin so late that their last rows are dropped.
  return {with(of({3, 6, 4}), 3, {}), with(of({2, 7}), 1, {}),
          with(of({1, 9, 33}), 2, {{"from", int64_t{3}}}),
          with(of({3, 3, 4}), 2, {{"ring", int64_t{1}}}),
          with(of({4, 3, 5}), 3, {{"ring", int64_t{1}}})};
}

std::vector<Sample> refused() {
  const Type at = of({2}, Dtype::kI32);
  return {{.inputs = {of({2, 5, 3}), of({2, 6, 3}), at}},
          {.inputs = {of({2, 5, 3}), of({2, 2, 4}), at}},
          {.inputs = {of({2, 5, 3}), of({2, 2, 3}, Dtype::kBF16), at}},
          {.inputs = {of({2, 5, 3}), of({2, 2, 3}), of({2})}},
          {.inputs = {of({2, 5, 3}), of({2, 2, 3}), at}, .attrs = {{"from", int64_t{-1}}}},
          {.inputs = {of({2, 5, 3}), of({2, 2, 3}), at},
           .attrs = {{"from", int64_t{1}}, {"ring", int64_t{1}}}},
          {.inputs = {of({2}), of({2}), at}}};
}

}  // namespace

extern const OpDef op_put_rows = {
    .name = "put_rows",
    .summary = "x with other rows, from the row on that an operand says for every sample",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string letters = letters_but(call.inputs[0], 1);
          return IndexMap{{letters, letters, "a"}, {letters}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .one_dtype = true,
    .may_overwrite = {{0, 0}},
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

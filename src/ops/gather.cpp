// y[..., j] = x[..., ids[..., j]]: elements of the last axis by their ids. A router's text says
// with it what its chosen experts weigh: softmax(gather(scores, choice)), or
// gather(softmax(scores), ...). Ids outside of the axis are read as the nearest, as embed reads
// them.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer_gather(const OpCall& call) {
  if (call.inputs.size() != 2)
    fail("gather: wants x and ids, found ", call.inputs.size(), " operands");
  const Type &x = call.inputs[0], &ids = call.inputs[1];
  bool fits = is_float(x.dtype) && ids.dtype == Dtype::kI32 && x.rank() > 0 && x.rank() <= 8 &&
              x.rank() == ids.rank() && x.dim(-1) > 0;
  for (int i = 0; fits && i + 1 < x.rank(); ++i) fits = x.dim(i) == ids.dim(i);
  if (!fits) {
    fail("gather: ids ", to_string(ids), " do not fit x ", to_string(x),
         ": i32 indices into the last axis are wanted, some for each row");
  }
  Type y = x;
  y.axes.back() = ids.axes.back();
  return {y};
}

std::vector<Sample> gather_samples() {
  const auto at = [](std::vector<int64_t> rows, int64_t from, int64_t k) {
    Type x = of(rows), ids = of(rows, Dtype::kI32);
    x.axes.push_back({"n", from});
    ids.axes.push_back({"k", k});
    return Sample{.inputs = {x, ids},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = from};
  };
  return {at({}, 4, 2), at({7}, 5, 1), at({2, 70}, 8, 3), at({3, 2}, 1, 1), at({3}, 2, 9)};
}

}  // namespace

extern const OpDef op_gather = {
    .name = "gather",
    .summary = "elements of the last axis, by their ids",
    .params = {{"x"}, {"ids"}},
    .infer = infer_gather,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = leading_letters(call.inputs[0], 1);
          return IndexMap{{rows + ".", rows + "k"}, {rows + "k"}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          if (!g.wants[0]) return;
          g.input_grads[0] = g.builder.emit("gather_grad", {g.dout(), g.inputs[1]},
                                            {{"size", g.call.inputs[0].dim(-1)}});
        },
    .constants = {1},
    .one_dtype = true,
    .wants_dense = true,
    .linear = [](const OpCall&) { return Linear::kEach; },
    .samples = gather_samples,
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 4})}},
                                     {.inputs = {of({3, 4}), of({3, 2})}},
                                     {.inputs = {of({3, 4}), of({2, 2}, Dtype::kI32)}},
                                     {.inputs = {of({3, 4}), of({2}, Dtype::kI32)}},
                                     {.inputs = {of({}), of({}, Dtype::kI32)}}};
        },
};

}  // namespace adjoint

// dx[..., i] = sum of dy[..., j] over the j with ids[..., j] = i, in the order of j; 0 where no id
// points. The gradient of gather, whose own gradient is gather again.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer_gather_grad(const OpCall& call) {
  if (call.inputs.size() != 2) {
    fail("gather_grad: wants the gradient of the elements and their ids, found ",
         call.inputs.size(), " operands");
  }
  const Type &dy = call.inputs[0], &ids = call.inputs[1];
  const bool fits = is_float(dy.dtype) && ids.dtype == Dtype::kI32 && dy.rank() > 0 &&
                    dy.rank() <= 8 && same_shape(dy, ids);
  if (!fits) {
    fail("gather_grad: ids ", to_string(ids), " do not fit ", to_string(dy),
         ": one i32 id for each floating number is wanted");
  }
  const int64_t size = call.integer("size");
  if (size < 1) fail("gather_grad: size must be at least 1, found ", size);
  Type dx = dy;
  dx.axes.back() = {"size", size};
  return {dx};
}

std::vector<Sample> gather_grad_samples() {
  const auto at = [](const std::vector<int64_t>& sizes, int64_t size) {
    return Sample{.inputs = {of(sizes), of(sizes, Dtype::kI32)},
                  .attrs = {{"size", size}},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = size};
  };
  return {at({2}, 4), at({7, 1}, 5), at({2, 70, 3}, 8), at({3, 9}, 2)};
}

}  // namespace

extern const OpDef op_gather_grad = {
    .name = "gather_grad",
    .summary = "sums along the last axis by ids: the gradient of gather",
    .infer = infer_gather_grad,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = leading_letters(call.inputs[0], 1);
          return IndexMap{{rows + "k", rows + "k"}, {rows + "."}};
        },
    .flops = [](const OpCall& call) { return call.inputs[0].num_elements(); },
    .grad =
        [](GradCall& g) {
          if (g.wants[0]) g.input_grads[0] = g.builder.emit("gather", {g.dout(), g.inputs[1]});
        },
    .constants = {1},
    .one_dtype = true,
    .wants_dense = true,
    .linear = [](const OpCall&) { return Linear::kEach; },
    .samples = gather_grad_samples,
    .refused =
        [] {
          const Attrs four = {{"size", int64_t{4}}};
          return std::vector<Sample>{
              {.inputs = {of({3, 2}), of({3, 2}, Dtype::kI32)}},
              {.inputs = {of({3, 2}), of({3, 2}, Dtype::kI32)}, .attrs = {{"size", int64_t{0}}}},
              {.inputs = {of({3, 2}), of({3, 2})}, .attrs = four},
              {.inputs = {of({3, 2}), of({3, 3}, Dtype::kI32)}, .attrs = four},
              {.inputs = {of({3, 2})}, .attrs = four}};
        },
};

}  // namespace adjoint

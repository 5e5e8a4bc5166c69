// Part `index` of a batch, or a rank's piece of an object: [index*size, index*size + size) of an
// axis, the first unless `axis` says another. What is past its end is `fill`, so that all parts
// have one size. The index is a tensor: one launch serves every iteration of a step's body, and all
// ranks.

#include "base/error.h"
#include "ops/axes.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2 || call.inputs[0].rank() < 1) {
    fail("part: wants an object with a batch axis and the index of the part");
  }
  const Type& index = call.inputs[1];
  if (index.rank() != 0 || index.dtype != Dtype::kI32) {
    fail("part: the index must be one i32, found ", to_string(index));
  }
  const int64_t size = call.integer("size");
  if (size < 1) fail("part: a part has at least 1 sample, found ", size);
  call.number("fill", 0);
  Type t = call.inputs[0];
  Axis& axis = t.axes[axis_attr(call, 0)];
  axis = {axis.name, size};
  return {t};
}

std::vector<Sample> samples() {
  const auto at = [](Type x, int64_t size, double fill) {
    return Sample{.inputs = {std::move(x), of({}, Dtype::kI32)},
                  .attrs = {{"size", size}, {"fill", fill}},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = 3};
  };
  std::vector<Sample> all = {at(of({6, 5}), 2, 0), at(of({5, 2, 3}), 2, -1), at(of({7}), 3, 0.5),
                             at(of({1}), 1, 0),    at(of({2, 5, 3}), 2, 0),  at(of({4, 7}), 3, -2)};
  all[4].attrs["axis"] = all[5].attrs["axis"] = int64_t{1};
  return all;
}

std::vector<Sample> refused() {
  return {{.inputs = {of({6, 5}), of({})}, .attrs = {{"size", int64_t{2}}}},
          {.inputs = {of({6, 5}), of({}, Dtype::kI32)}, .attrs = {{"size", int64_t{0}}}},
          {.inputs = {of({6, 5}), of({}, Dtype::kI32)},
           .attrs = {{"size", int64_t{1}}, {"axis", int64_t{2}}}},
          {.inputs = {of({}), of({}, Dtype::kI32)}, .attrs = {{"size", int64_t{1}}}}};
}

}  // namespace

extern const OpDef op_part = {
    .name = "part",
    .summary = "part `index` of a batch: `size` rows of an axis, padded with `fill`",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string letters = letters_but(call.inputs[0], axis_attr(call, 0));
          return IndexMap{{letters, ""}, {letters}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .wants_dense = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint

// Part of an axis, the last unless `axis` is said: [..., n] -> [..., size], from `start`. A view.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/carry.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1) fail("slice: wants one operand");
  Type t = call.inputs[0];
  Axis& axis = t.axes[slice_axis(call)];
  const int64_t start = call.integer("start"), size = call.integer("size");
  if (start < 0 || size < 1 || start > axis.size - size) {
    fail("slice: [", start, ", ", start, "+", size, ") is not inside ", axis.name, "=", axis.size);
  }
  axis = {axis.name, size};
  return {t};
}

// Of positions with rows before them: as many rows less as there are positions less.
std::vector<Value> carry_slice(CarryCall& carry) {
  const int64_t size = carry.call.integer("size");
  if (size < carry.context) fail("slice: leaves positions out, and they come a few at a time");
  const int rank = carry.builder.type(carry.inputs[0]).rank();
  return {carry.builder.emit("slice", {carry.inputs[0]},
                             slice_attrs(rank, carry.axis, carry.call.integer("start"),
                                         size - carry.context + carry.count))};
}

}  // namespace

extern const OpDef op_slice = {
    .name = "slice",
    .summary = "part of an axis (the last, unless said), from `start`",
    .params = slice_params(),
    .surface = [](SurfaceCall& call) { return slice_surface(call, "slice"); },
    .infer = infer,
    .index_map = [](const OpCall& call) { return slice_letters(call, false); },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad = [](GradCall& g) { slice_gradient(g, "pad"); },
    .view = [](const OpCall& call, const Strides& in, int64_t& offset) -> std::optional<Strides> {
      offset = call.integer("start") * in[slice_axis(call)];
      return in;
    },
    .carry = carry_slice,
    .lies = LiesWithin::kSlice,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 7})}, .attrs = {{"start", int64_t{2}}, {"size", int64_t{3}}}},
              {.inputs = {of({5, 3, 2})},
               .attrs = {{"axis", int64_t{0}}, {"start", int64_t{1}}, {"size", int64_t{3}}}},
              {.inputs = {of({2, 7, 3})},
               .attrs = {{"axis", int64_t{1}}, {"start", int64_t{2}}, {"size", int64_t{4}}}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 7})}, .attrs = {{"start", int64_t{5}}, {"size", int64_t{3}}}},
              {.inputs = {of({3, 7})},
               .attrs = {{"axis", int64_t{2}}, {"start", int64_t{0}}, {"size", int64_t{1}}}}};
        },
};

}  // namespace adjoint

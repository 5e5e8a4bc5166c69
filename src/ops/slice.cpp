// Part of an axis, the last unless `axis` is said: [..., n] -> [..., size], from `start`. A view.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

int axis_of(const OpCall& call) { return axis_attr(call, call.inputs[0].rank() - 1); }

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1) fail("slice: wants one operand");
  Type t = call.inputs[0];
  Axis& axis = t.axes[axis_of(call)];
  const int64_t start = call.integer("start"), size = call.integer("size");
  if (start < 0 || size < 1 || start > axis.size - size) {
    fail("slice: [", start, ", ", start, "+", size, ") is not inside ", axis.name, "=", axis.size);
  }
  axis = {axis.name, size};
  return {t};
}

}  // namespace

extern const OpDef op_slice = {
    .name = "slice",
    .summary = "part of an axis (the last, unless said), from `start`",
    .params = {{"x"},
               {"start", Param::Kind::kSize},
               {"size", Param::Kind::kSize},
               {"axis", Param::Kind::kAxis, "-1"}},
    .surface =
        [](SurfaceCall& call) {
          const int rank = call.type("x").rank(), axis = static_cast<int>(call.size("axis"));
          return std::vector<Value>{
              call.builder.emit("slice", {call.tensor("x")},
                                slice_attrs(rank, axis, call.size("start"), call.size("size")))};
        },
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string letters = letters_but(call.inputs[0], axis_of(call));
          return IndexMap{{letters}, {letters}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          const Type& x = g.call.inputs[0];
          const int axis = axis_of(g.call);
          g.input_grads[0] = g.builder.emit(
              "pad", {g.dout()}, slice_attrs(x.rank(), axis, g.call.integer("start"), x.dim(axis)));
        },
    .view = [](const OpCall& call, const Strides& in, int64_t& offset) -> std::optional<Strides> {
      offset = call.integer("start") * in[axis_of(call)];
      return in;
    },
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

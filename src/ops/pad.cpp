// Zeros around the operand along an axis, the last unless `axis` is said: [..., n] -> [..., size],
// the operand at `start`. The gradient of slice.

#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

int axis_of(const OpCall& call) { return axis_attr(call, call.inputs[0].rank() - 1); }

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1) fail("pad: wants one operand");
  Type t = call.inputs[0];
  Axis& axis = t.axes[axis_of(call)];
  const int64_t start = call.integer("start"), size = call.integer("size");
  if (start < 0 || start > size - axis.size) {
    fail("pad: ", axis.name, "=", axis.size, " at ", start, " is not inside ", size);
  }
  axis = {axis.name, size};
  return {t};
}

}  // namespace

extern const OpDef op_pad = {
    .name = "pad",
    .summary = "zeros around an axis (the last, unless said), the operand at `start`",
    .params = {{"x"},
               {"start", Param::Kind::kSize},
               {"size", Param::Kind::kSize},
               {"axis", Param::Kind::kAxis, "-1"}},
    .surface =
        [](SurfaceCall& call) {
          const int rank = call.type("x").rank(), axis = static_cast<int>(call.size("axis"));
          return std::vector<Value>{
              call.builder.emit("pad", {call.tensor("x")},
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
          g.input_grads[0] =
              g.builder.emit("slice", {g.dout()},
                             slice_attrs(x.rank(), axis, g.call.integer("start"), x.dim(axis)));
        },
    .linear = [](const OpCall&) { return Linear::kTogether; },
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 4})}, .attrs = {{"start", int64_t{2}}, {"size", int64_t{7}}}},
              {.inputs = {of({2, 3, 2})},
               .attrs = {{"axis", int64_t{0}}, {"start", int64_t{1}}, {"size", int64_t{4}}}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 7})}, .attrs = {{"start", int64_t{0}}, {"size", int64_t{3}}}}};
        },
};

}  // namespace adjoint

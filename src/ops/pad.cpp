// Zeros around the operand along an axis, the last unless `axis` is said: [..., n] -> [..., size],
// the operand at `start`. The gradient of slice.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/carry.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1) fail("pad: wants one operand");
  Type t = call.inputs[0];
  Axis& axis = t.axes[slice_axis(call)];
  const int64_t start = call.integer("start"), size = call.integer("size");
  if (start < 0 || start > size - axis.size) {
    fail("pad: ", axis.name, "=", axis.size, " at ", start, " is not inside ", size);
  }
  axis = {axis.name, size};
  return {t};
}

// Rows before the first position become rows of earlier positions.
std::vector<Value> carry_pad(CarryCall& carry) {
  const int64_t before = carry.call.integer("start");
  const Type& rows = carry.builder.type(carry.inputs[0]);
  if (carry.axis != 1 || rows.rank() > 3 || before < 1 ||
      carry.call.integer("size") != carry.context + before) {
    fail("pad: only rows before the first position can be earlier positions");
  }
  const Value all = carry.keep(carry.inputs[0], "rows", {.before = before});
  return {carry.builder.emit("rows_at", {all, carry.origin}, {{"size", carry.count + before}})};
}

}  // namespace

extern const OpDef op_pad = {
    .name = "pad",
    .summary = "zeros around an axis (the last, unless said), the operand at `start`",
    .params = slice_params(),
    .surface = [](SurfaceCall& call) { return slice_surface(call, "pad"); },
    .infer = infer,
    .index_map = [](const OpCall& call) { return slice_letters(call, true); },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad = [](GradCall& g) { slice_gradient(g, "slice"); },
    .carry = carry_pad,
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

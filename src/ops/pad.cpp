// Zeros around the operand along an axis, the last unless `axis` is said: [..., n] -> [..., size],
// the operand at `start`. The gradient of slice.
#include "base/error.h"
#include "ops/axes.h"
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

}  // namespace

extern const OpDef op_pad = {
    .name = "pad",
    .summary = "zeros around an axis (the last, unless said), the operand at `start`",
    .params = slice_params(),
    .surface = [](SurfaceCall& call) { return slice_surface(call, "pad"); },
    .infer = infer,
    .index_map = slice_letters,
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad = [](GradCall& g) { slice_gradient(g, "slice"); },
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

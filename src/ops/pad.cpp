// Zeros around the last axis: [..., n] -> [..., size], the operand at `start`. The gradient of
// slice.
#include <cstring>

#include "base/error.h"
#include "ops/builder.h"
#include "ops/elements.h"
#include "ops/movement.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1) fail("pad: wants one operand");
  Type t = call.inputs[0];
  const int64_t start = call.integer("start"), size = call.integer("size");
  if (start < 0 || start > size - t.dim(-1)) {
    fail("pad: ", t.axes.back().name, "=", t.dim(-1), " at ", start, " is not inside ", size);
  }
  t.axes.back() = {t.axes.back().name, size};
  return {t};
}

Launch copy(const KernelCall& call, const Pointers& at) {
  const Type out = call.outputs[0];
  const int64_t skip = call.call.integer("start") * call.out_strides[0].back();
  auto* to = static_cast<char*>(at.out[0]);
  const Launch move =
      prepare_copy(call.call.inputs[0], call.in_strides[0], at.in[0], call.call.inputs[0],
                   call.out_strides[0], to + skip * size_of(out.dtype).count);
  return [move, to, bytes = out.bytes()] {
    std::memset(to, 0, bytes.count);
    move();
  };
}

}  // namespace

extern const OpDef op_pad = {
    .name = "pad",
    .summary = "zeros around the last axis, the operand at `start`",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string leading = leading_letters(call.inputs[0], 1);
          return IndexMap{{leading + "."}, {leading + "."}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          g.input_grads[0] = g.builder.emit(
              "slice", {g.dout()},
              {{"start", g.call.integer("start")}, {"size", g.call.inputs[0].dim(-1)}});
        },
    .reference = copy,
    .cpu = copy,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 4})}, .attrs = {{"start", int64_t{2}}, {"size", int64_t{7}}}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 7})}, .attrs = {{"start", int64_t{0}}, {"size", int64_t{3}}}}};
        },
};

}  // namespace adjoint

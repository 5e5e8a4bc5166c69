// Part of the last axis: [..., n] -> [..., size], from `start`. A view.
#include "base/error.h"
#include "ops/builder.h"
#include "ops/movement.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1) fail("slice: wants one operand");
  Type t = call.inputs[0];
  const int64_t start = call.integer("start"), size = call.integer("size");
  if (start < 0 || size < 1 || start > t.dim(-1) - size) {
    fail("slice: [", start, ", ", start, "+", size, ") is not inside ", t.axes.back().name, "=",
         t.dim(-1));
  }
  t.axes.back() = {t.axes.back().name, size};
  return {t};
}

Launch copy(const KernelCall& call, const Pointers& at) {
  const int64_t skip = call.call.integer("start") * call.in_strides[0].back();
  const auto* from =
      static_cast<const char*>(at.in[0]) + skip * size_of(call.call.inputs[0].dtype).count;
  return prepare_copy(call.outputs[0], call.in_strides[0], from, call.outputs[0],
                      call.out_strides[0], at.out[0]);
}

}  // namespace

extern const OpDef op_slice = {
    .name = "slice",
    .summary = "part of the last axis, from `start`",
    .params = {{"x"}, {"start", Param::Kind::kSize}, {"size", Param::Kind::kSize}},
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
              "pad", {g.dout()},
              {{"start", g.call.integer("start")}, {"size", g.call.inputs[0].dim(-1)}});
        },
    .view = [](const OpCall& call, const Strides& in, int64_t& offset) -> std::optional<Strides> {
      offset = call.integer("start") * in.back();
      return in;
    },
    .reference = copy,
    .cpu = copy,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 7})}, .attrs = {{"start", int64_t{2}}, {"size", int64_t{3}}}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 7})}, .attrs = {{"start", int64_t{5}}, {"size", int64_t{3}}}}};
        },
};

}  // namespace adjoint

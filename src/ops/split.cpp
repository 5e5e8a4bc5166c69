// The last axis in two: [..., parts*n] -> [..., parts, n]. A view.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1) fail("split: wants one operand");
  Type t = call.inputs[0];
  const int64_t parts = call.integer("parts");
  const Axis last = t.axes.back();
  if (parts < 1 || last.size % parts) {
    fail("split: ", last.name, "=", last.size, " does not split into ", parts, " parts");
  }
  t.axes.back() = {"parts", parts};
  t.axes.push_back({last.name, last.size / parts});
  return {t};
}

}  // namespace

extern const OpDef op_split = {
    .name = "split",
    .summary = "the last axis in two: [..., parts*n] -> [..., parts, n]",
    .params = {{"x"}, {"parts", Param::Kind::kSize}},
    .surface =
        [](SurfaceCall& call) {
          const Value made =
              call.builder.emit("split", {call.tensor("x")}, {{"parts", call.size("parts")}});
          // The axis is called as the text calls it: split(x, heads).
          std::vector<Axis>& axes = call.builder.scheme()[made].type.axes;
          axes[axes.size() - 2].name = call.axis("parts").name;
          return std::vector<Value>{made};
        },
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string leading = leading_letters(call.inputs[0], 1);
          return IndexMap{.inputs = {leading + "M"},
                          .outputs = {leading + "yz"},
                          .merged = {{'M', {"yz"}}},
                          .counts = {{"parts", "y"}}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad = [](GradCall& g) { g.input_grads[0] = g.builder.emit("merge", {g.dout()}); },
    .view = [](const OpCall& call, const Strides& in, int64_t&) -> std::optional<Strides> {
      Strides out = in;
      const int64_t inner = call.inputs[0].dim(-1) / call.integer("parts");
      out.back() = in.back() * inner;
      out.push_back(in.back());
      return out;
    },
    .lies = LiesWithin::kSplits,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {of({2, 6})}, .attrs = {{"parts", int64_t{3}}}},
                                     {.inputs = {of({2, 3, 5})}, .attrs = {{"parts", int64_t{1}}}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({2, 7})}, .attrs = {{"parts", int64_t{3}}}}};
        },
};

}  // namespace adjoint

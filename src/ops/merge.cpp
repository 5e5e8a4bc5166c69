// The last two axes in one: [..., parts, n] -> [..., parts*n]. A view where they are adjacent.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 2) {
    fail("merge: wants one operand of at least two axes");
  }
  Type t = call.inputs[0];
  const Axis last = t.axes.back();
  t.axes.pop_back();
  t.axes.back() = {last.name, t.axes.back().size * last.size};
  return {t};
}

}  // namespace

extern const OpDef op_merge = {
    .name = "merge",
    .summary = "the last two axes in one: [..., parts, n] -> [..., parts*n]",
    .params = {{"x"}},
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string leading = leading_letters(call.inputs[0], 2);
          return IndexMap{
              .inputs = {leading + "yz"}, .outputs = {leading + "M"}, .merged = {{'M', {"yz"}}}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          g.input_grads[0] =
              g.builder.emit("split", {g.dout()}, {{"parts", g.call.inputs[0].dim(-2)}});
        },
    .view = [](const OpCall& call, const Strides& in, int64_t&) -> std::optional<Strides> {
      const size_t rank = in.size();
      if (in[rank - 2] != in[rank - 1] * call.inputs[0].dim(-1)) return std::nullopt;
      Strides out(in.begin(), in.end() - 2);
      out.push_back(in.back());
      return out;
    },
    .lies = LiesWithin::kMerges,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {of({2, 3, 5})}}, {.inputs = {of({4, 1})}}};
        },
    .refused = [] { return std::vector<Sample>{{.inputs = {of({4})}}}; },
};

}  // namespace adjoint

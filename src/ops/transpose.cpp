// The axes in another order: axis i of the result is axis order[i] of the operand. A view.
#include <algorithm>

#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<int64_t> order_of(const OpCall& call) {
  const std::vector<int64_t> order = call.list("order");
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool fits = call.inputs.size() == 1 && static_cast<int>(order.size()) == call.inputs[0].rank();
  for (size_t i = 0; fits && i < sorted.size(); ++i) fits = sorted[i] == static_cast<int64_t>(i);
  if (!fits) fail("transpose: wants one object and an order of all its axes");
  return order;
}

std::vector<Value> surface(SurfaceCall& call) {
  std::vector<int64_t> order;
  for (int i = 0; i < call.type("x").rank(); ++i) order.push_back(i);
  std::swap(order[call.size("a")], order[call.size("b")]);
  return {call.builder.emit("transpose", {call.tensor("x")}, {{"order", order}})};
}

}  // namespace

extern const OpDef op_transpose = {
    .name = "transpose",
    .summary = "two axes exchanged",
    .params = {{"x"}, {"a", Param::Kind::kAxis, "-2"}, {"b", Param::Kind::kAxis, "-1"}},
    .surface = surface,
    .infer =
        [](const OpCall& call) {
          Type t = call.inputs.empty() ? Type{} : call.inputs[0];
          const std::vector<int64_t> order = order_of(call);
          for (size_t i = 0; i < order.size(); ++i) t.axes[i] = call.inputs[0].axes[order[i]];
          return std::vector<Type>{t};
        },
    .index_map =
        [](const OpCall& call) {
          const std::string letters = leading_letters(call.inputs[0], 0);
          std::string moved;
          for (const int64_t from : order_of(call)) moved += letters[from];
          return IndexMap{{letters}, {moved}};
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad =
        [](GradCall& g) {
          const std::vector<int64_t> order = order_of(g.call);
          std::vector<int64_t> back(order.size());
          for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
          g.input_grads[0] = g.builder.emit("transpose", {g.dout()}, {{"order", back}});
        },
    .view = [](const OpCall& call, const Strides& in, int64_t&) -> std::optional<Strides> {
      Strides out;
      for (const int64_t from : order_of(call)) out.push_back(in[from]);
      return out;
    },
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> sizes, std::vector<int64_t> order) {
            return Sample{.inputs = {of(std::move(sizes))}, .attrs = {{"order", std::move(order)}}};
          };
          return std::vector<Sample>{at({3, 5}, {1, 0}), at({2, 3, 4}, {2, 0, 1}),
                                     at({2, 3, 4, 5}, {0, 2, 1, 3}), at({4}, {0})};
        },
    .refused =
        [] {
          const auto at = [](std::vector<int64_t> order) {
            return Sample{.inputs = {of({3, 5})}, .attrs = {{"order", std::move(order)}}};
          };
          return std::vector<Sample>{at({0}), at({0, 0}), at({1, 2}), at({})};
        },
};

}  // namespace adjoint

// Operands side by side along an axis, the first unless `axis` is said: [n, ...], [m, ...] ->
// [n+m, ...]. The plan lays what it can straight into its part of the result, so that there is
// nothing to run; the kernel copies the rest.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

extern const OpDef op_concat;

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.empty() || call.inputs[0].rank() < 1) {
    fail("concat: wants operands that have an axis to join them by");
  }
  Type out = call.inputs[0];
  const int at = axis_attr(call, 0);
  int64_t size = 0;
  for (const Type& t : call.inputs) {
    bool fits = t.dtype == out.dtype && t.rank() == out.rank();
    for (int a = 0; fits && a < t.rank(); ++a) {
      fits = t.axes[a].physical() == t.axes[a].size && (a == at || t.dim(a) == out.dim(a));
    }
    if (!fits) {
      fail("concat: ", to_string(t), " does not fit beside ", to_string(call.inputs[0]),
           ": all but axis ", at, " must be the same, and nothing padded");
    }
    size += t.dim(at);
  }
  out.axes[at] = {out.axes[at].name, size};
  return {out};
}

void grad(GradCall& g) {
  const int at = axis_attr(g.call, 0), rank = g.call.inputs[0].rank();
  int64_t start = 0;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const int64_t size = g.call.inputs[i].dim(at);
    if (g.wants[i]) {
      g.input_grads[i] = g.builder.emit("slice", {g.dout()}, slice_attrs(rank, at, start, size));
    }
    start += size;
  }
}

}  // namespace

std::optional<std::vector<std::vector<int64_t>>> operand_starts(const Scheme& scheme,
                                                                const Morphism& morphism) {
  if (morphism.op != op_concat.name) return std::nullopt;
  const OpCall call = call_of(scheme, morphism);
  const int axis = axis_attr(call, 0);
  std::vector<std::vector<int64_t>> starts;
  std::vector<int64_t> next(call.inputs[0].axes.size(), 0);
  for (const Type& type : call.inputs) {
    starts.push_back(next);
    next[axis] += type.dim(axis);
  }
  return starts;
}

extern const OpDef op_concat = {
    .name = "concat",
    .summary = "operands side by side along an axis",
    .params = {{"xs", Param::Kind::kTensors}, {"axis", Param::Kind::kAxis, "-1"}},
    .surface =
        [](SurfaceCall& call) {
          const int64_t axis = call.size("axis");
          return std::vector<Value>{call.builder.emit("concat", call.tensors("xs"),
                                                      axis ? Attrs{{"axis", axis}} : Attrs{})};
        },
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const int axis = axis_attr(call, 0);
          const std::string letters = letters_but(call.inputs[0], axis);
          IndexMap map{std::vector<std::string>(call.inputs.size(), letters), {letters}};
          map.beside.outputs.emplace_back();
          for (const Type& type : call.inputs) {
            const auto number = static_cast<int>(map.beside.sizes.size());
            map.beside.inputs.push_back({number});
            map.beside.outputs[0].push_back(number);
            map.beside.sizes.push_back(type.dim(axis));
          }
          return map;
        },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .grad = grad,
    .one_dtype = true,
    .linear = [](const OpCall&) { return Linear::kTogether; },
    .lies = LiesWithin::kJoins,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({1, 5}), of({4, 5})}},
              {.inputs = {of({2, 3}), of({2, 4})}, .attrs = {{"axis", int64_t{1}}}},
              {.inputs = {of({2, 1, 3}), of({2, 2, 3})}, .attrs = {{"axis", int64_t{1}}}},
              {.inputs = {of({7})}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {}},
                                     {.inputs = {of({3, 5}), of({3, 4})}},
                                     {.inputs = {of({3, 5}), of({3, 5}, Dtype::kBF16)}},
                                     {.inputs = {of({3, 5})}, .attrs = {{"axis", int64_t{2}}}},
                                     {.inputs = {of({}), of({})}}};
        },
};

}  // namespace adjoint

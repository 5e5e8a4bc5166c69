// gelu(linear(x, W, b))  ->  linear_act(x, W, b), with the linear map's own result beside it where
// the gradient reads that. A device with epilogues spares a pass over the activation; the CPU does
// the two one after the other. The CPU keeps the bits; an epilogue may apply the function to the
// product's sums before they are rounded and added as they would be alone, so the promise is no
// more than the same sums in another order.
#include "analysis/pattern.h"
#include "body/facts.h"
#include "functors/functor.h"
#include "functors/remove_morphisms.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// The body of an elementwise op of one operand, of the operand's dtype; else nothing. One that is
// folded to a constant (0 * x) is no function of what the map gives.
std::optional<Body> activation(const Scheme& scheme, const Morphism& m) {
  if (!op_named(m.op).body || m.inputs.size() != 1 || m.outputs.size() != 1) return std::nullopt;
  if (op_named(m.op).effect != Effect::kPure) return std::nullopt;
  if (scheme[m.inputs[0]].type != scheme[m.outputs[0]].type) return std::nullopt;
  const Body body = body_of(call_of(scheme, m));
  return is_elementwise(body) && without_dead_nodes(body).num_inputs() == 1 ? std::optional(body)
                                                                            : std::nullopt;
}

// By one matrix for all rows: an expert's rows are not known before a step runs.
bool is_linear_map(const Graph& graph, const Morphism& m) {
  const int weight = op_named(m.op).weight;
  return weight >= 0 && graph.scheme()[m.inputs[weight]].type.rank() == 2;
}

// The activation and its operand have the same phase and attributes; otherwise joining them would
// keep one alive because of the other.
bool is_activation(const Graph& graph, const Morphism& m) {
  const Scheme& scheme = graph.scheme();
  if (!activation(scheme, m) || graph.maker(m.inputs[0]) < 0) return false;
  return m.phase == graph.call(graph.maker(m.inputs[0])).phase &&
         scheme[m.outputs[0]].attributes == scheme[m.inputs[0]].attributes;
}

Scheme fuse_epilogues(Scheme scheme, Application& application) {
  const Pattern pattern = {is_activation, {{.made_by = {is_linear_map}}}};
  const Graph graph(scheme);
  std::vector<bool> gone(scheme.morphisms.size(), false);
  for (const Match& found : find_joins(graph, pattern)) {
    Morphism &act = scheme.morphisms[found[0]], &fused = scheme.morphisms[found[1]];
    const Value pre = fused.outputs[0];
    fused.attrs["body"] = print(*activation(scheme, act));
    fused.op = "linear_act";
    fused.outputs = act.outputs;
    if (!graph.only_reader(pre)) {
      fused.outputs.push_back(pre);
      fused.attrs["keep"] = int64_t{1};
    }
    gone[found[0]] = true;
    ++application.matches;
  }
  return without(std::move(scheme), gone);
}

}  // namespace

extern const Functor functor_fuse_epilogue = {
    .name = "fuse_epilogue",
    .summary = "a linear map and the elementwise function behind it become one morphism",
    .law = Law::kReassociating,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kBitChanging, fuse_epilogues}},
};

}  // namespace adjoint

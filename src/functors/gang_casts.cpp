// w' = cast(w), once per parameter  ->  all of them = gang(w0, w1, ...), where the first one was.
// A GPU casts the parameters of a step in one launch. Bits stay.
//
// All results are there from the first cast on. So only those join that the backward pass reads:
// they are there together in any case when the forward ends, which is where a step's peak is. And
// vectors, whose copies take next to nothing and which are gone by then. A CPU starts a call for
// next to nothing, and its steps are left alone.
#include <algorithm>

#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

bool is_read_in_backward(const Graph& graph, Value v) {
  const std::vector<int>& readers = graph.readers(v);
  return std::any_of(readers.begin(), readers.end(), [&](int reader) {
    const Morphism& m = graph.call(reader);
    return m.phase == Phase::kBackward ||
           (op_named(m.op).view && is_read_in_backward(graph, m.outputs[0]));
  });
}

// A cast of a parameter as the step finds it, which is there from the start. One that is held back
// until something else has run stays so, as does one in another tier.
bool casts_parameter(const Graph& graph, const Morphism& m) {
  const Scheme& scheme = graph.scheme();
  if (m.epoch != 0 || !m.after.empty() || m.inputs.size() != 1) return false;
  const Object &in = scheme[m.inputs[0]], &out = scheme[m.outputs[0]];
  if (graph.maker(m.inputs[0]) >= 0 || in.role != Role::kParameter) return false;
  if (in.attributes.tier != Tier::kDevice || out.attributes.tier != Tier::kDevice) return false;
  if (!is_cast(call_of(scheme, m))) return false;
  // A parameter that is held in 16 bits is wide only where it is read.
  const bool widens = size_of(out.type.dtype) > size_of(in.type.dtype);
  return out.type.rank() <= 1 || (!widens && is_read_in_backward(graph, m.outputs[0]));
}

Scheme gang_casts(Scheme scheme, Application& application) {
  const Graph graph(scheme);
  GangKinds kinds(scheme);
  for (int m = 0; m < graph.num_calls(); ++m) {
    if (!casts_parameter(graph, graph.call(m))) continue;
    kinds.add(m, operand_dtypes(scheme, graph.call(m)));
  }
  std::vector<Gang> gangs;
  for (const auto& [kind, casts] : kinds.all()) {
    if (casts.size() < 2) continue;
    gangs.push_back({.calls = casts, .at = casts.front(), .source = {"parameters", "cast"}});
  }
  return with_gangs(std::move(scheme), gangs, application);
}

}  // namespace

extern const Functor functor_gang_casts = {
    .name = "gang_casts",
    .summary = "parameters are cast in one launch, where that costs no memory",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact, gang_casts}},
};

}  // namespace adjoint

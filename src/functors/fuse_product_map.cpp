// map(contract(a, b), x)  ->  contract_map(a, b, x), where the GPU's library of products has an
// epilogue for the map's body: the gradient of gelu behind the product that it is fed with. The
// product is then not written and read again, and not rounded to 16 bits before the function: the
// same sums, rounded elsewhere. After precision is realized, for epilogues are of 16 bits.
#include <algorithm>

#include "analysis/pattern.h"
#include "body/join.h"
#include "functors/functor.h"
#include "functors/remove_morphisms.h"
#include "ops/fusion_limits.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// How many terms each of its sums has.
int64_t terms(const Scheme& scheme, const Morphism& product) {
  const int64_t results = scheme[product.outputs[0]].type.num_elements();
  return count_flops(call_of(scheme, product)) / std::max<int64_t>(2 * results, 1);
}

// The body of a map of the product and of objects like it, with the product first.
struct Behind {
  Body body;
  std::vector<Value> others;
};

std::optional<Behind> behind(const Scheme& scheme, Value product, const Morphism& m) {
  if (scheme[m.outputs[0]].type != scheme[product].type) return std::nullopt;
  Behind found;
  std::vector<JoinOperand> operands;
  for (const Value in : m.inputs) {
    if (scheme[in].type != scheme[product].type) return std::nullopt;
    if (in != product) found.others.push_back(in);
    operands.push_back({.number = in == product ? 0 : static_cast<int>(found.others.size())});
  }
  if (found.others.size() + 1 != m.inputs.size()) return std::nullopt;  // it reads it twice
  if (found.others.empty()) return std::nullopt;  // contract_map has operands beside the product
  found.body = join({}, body_of(call_of(scheme, m)), operands);
  if (found.body.num_inputs() != static_cast<int>(m.inputs.size())) return std::nullopt;
  found.body.outputs[0].dtype = std::nullopt;  // the product's, as it was
  return found;
}

bool has_body(const Graph&, const Morphism& m) {
  const OpDef& def = op_named(m.op);
  return def.body && def.effect == Effect::kPure && m.outputs.size() == 1;
}

// A product that could have an end, of one dtype.
bool is_product(const Graph& graph, const Morphism& m) {
  const Scheme& scheme = graph.scheme();
  return may_take_addend(op_named(m.op), m.inputs.size()) &&
         scheme[m.inputs[0]].type.dtype == scheme[m.outputs[0]].type.dtype;
}

Scheme fuse_products(Scheme scheme, Application& application) {
  const FusionLimits& limits = fusion_limits(application.options.target);
  if (!limits.product_end) return scheme;
  if (application.options.deterministic && !limits.exact_product_end) return scheme;
  const auto is_long = [&](const Graph& graph, const Morphism& m) {
    return is_product(graph, m) && terms(graph.scheme(), m) >= limits.product_end_terms;
  };
  // A sum over parts grows in place, which this op cannot.
  std::vector<bool> is_carried(scheme.objects.size(), false);
  for (const std::vector<Carry>* carries : {&scheme.loop, &scheme.carries}) {
    for (const Carry& c : *carries) is_carried[c.out] = true;
  }
  const auto ends_product = [&](const Graph& graph, const Morphism& map, Value product) {
    if (is_carried[map.outputs[0]]) return false;
    const auto found = behind(graph.scheme(), product, map);
    return found && limits.product_end(found->body, graph.scheme()[product].type.dtype);
  };
  const Pattern pattern = {has_body, {{.made_by = {is_long}, .only = true, .fits = ends_product}}};
  std::vector<bool> gone(scheme.morphisms.size(), false);
  for (const Match& found : find_joins(Graph(scheme), pattern)) {
    const Morphism& product = scheme.morphisms[found[1]];
    // Where the map stood: what it reads beside the product may be made after the product was.
    Morphism& both = scheme.morphisms[found[0]];
    const Behind map = *behind(scheme, product.outputs[0], both);
    both.op = "contract_map";
    both.inputs = product.inputs;
    both.inputs.insert(both.inputs.end(), map.others.begin(), map.others.end());
    both.attrs = product.attrs;
    both.attrs.erase("dtype");
    both.attrs["body"] = print(map.body);
    // Whoever waited for the product waits for what it is made of: what the map reads may be among
    // them.
    take_over_waits(scheme, both, product, product.outputs[0], product.inputs[0]);
    gone[found[1]] = true;
    ++application.matches;
  }
  return without(std::move(scheme), gone);
}

}  // namespace

extern const Functor functor_fuse_product_map = {
    .name = "fuse_product_map",
    .summary = "a product and the gradient of gelu behind it become one morphism",
    .law = Law::kReassociating,
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact, fuse_products}},
};

}  // namespace adjoint

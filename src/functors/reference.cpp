// The scheme that the float64 reference runs: fused ops as their meaning in smaller ops, and every
// floating object as float64. It shares the graph with what it judges, and no kernel.
#include "base/error.h"
#include "functors/functor.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

std::string widened(Dtype dtype) {
  return std::string(name(is_float(dtype) ? Dtype::kF64 : dtype));
}

// Dtypes that stand in attributes.
void widen_attrs(Morphism& m) {
  if (const auto found = m.attrs.find("dtype"); found != m.attrs.end()) {
    auto& word = std::get<std::string>(found->second);
    if (const auto dtype = dtype_named(word)) word = widened(*dtype);
  }
  if (m.op != "map") return;
  auto& text = std::get<std::string>(m.attrs["body"]);
  Body body = parse_body(text);
  for (BodyOutput& out : body.outputs) {
    if (out.dtype && is_float(*out.dtype)) out.dtype = Dtype::kF64;
  }
  text = print(body);
}

}  // namespace

Scheme to_reference(const Scheme& scheme) {
  Scheme result = expand_meanings(
      scheme, [](const OpDef& op) { return op.meaning && !op.reference && !op.body; });
  for (Object& object : result.objects) {
    if (is_float(object.type.dtype)) object.type.dtype = Dtype::kF64;
  }
  for (Morphism& m : result.morphisms) {
    // An op without operands makes float32 unless told otherwise.
    if (m.inputs.empty() && is_float(result[m.outputs[0]].type.dtype)) {
      m.attrs["dtype"] = std::string("f64");
    }
    widen_attrs(m);
  }
  verify(result);
  return result;
}

Scheme logits_of(const Scheme& forward) {
  Scheme result = forward;
  result.outputs.clear();
  for (const Morphism& m : forward.morphisms) {
    if (m.op == "cross_entropy") result.outputs.push_back(m.inputs[0]);
  }
  if (result.outputs.size() != 1) {
    fail("a model to sample from has one cross_entropy, this one has ", result.outputs.size());
  }
  return without_dead(result);
}

}  // namespace adjoint

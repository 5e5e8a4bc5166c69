// The scheme that the float64 reference runs: fused ops as their meaning in smaller ops, and every
// floating object as float64. An object that is stored in less than float32 is rounded to that
// dtype right after it is made, because a stack of lower precision computes that function on
// purpose. The reference shares the graph with the step that it judges, but no kernel.
#include "functors/reference.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

std::string widened(Dtype dtype) {
  return std::string(name(is_float(dtype) ? Dtype::kF64 : dtype));
}

// Widens dtypes in attributes.
void widen_attrs(Morphism& m) {
  if (const auto found = m.attrs.find("dtype"); found != m.attrs.end()) {
    auto& word = std::get<std::string>(found->second);
    if (const auto dtype = dtype_named(word)) word = widened(*dtype);
  }
  if (!says_body(m)) return;
  auto& text = std::get<std::string>(m.attrs["body"]);
  Body body = parse_body(text);
  for (BodyOutput& out : body.outputs) {
    if (out.dtype && is_float(*out.dtype)) out.dtype = Dtype::kF64;
  }
  text = print(body);
}

// A body whose operands are all whole numbers makes float32 unless its text says otherwise.
void say_result_dtypes(const Scheme& scheme, Morphism& m) {
  const OpDef& def = op_named(m.op);
  const auto is_floating = [&](Value v) { return is_float(scheme[v].type.dtype); };
  if (!def.body || def.wide || m.inputs.empty() ||
      std::any_of(m.inputs.begin(), m.inputs.end(), is_floating)) {
    return;
  }
  Body body = body_of(call_of(scheme, m));
  for (size_t k = 0; k < body.outputs.size(); ++k) {
    if (!body.outputs[k].dtype) body.outputs[k].dtype = scheme[m.outputs[k]].type.dtype;
  }
  say_body(m, body);
}

void widen(Scheme& scheme) {
  for (Morphism& m : scheme.morphisms) say_result_dtypes(scheme, m);
  for (Object& object : scheme.objects) {
    if (is_float(object.type.dtype)) object.type.dtype = Dtype::kF64;
  }
  for (Morphism& m : scheme.morphisms) {
    // An op without operands makes float32 unless told otherwise, and so does one that is told
    // where to begin.
    const OpDef& def = op_named(m.op);
    const bool said = m.inputs.empty() || (def.space && def.says_dtype);
    if (said && is_float(scheme[m.outputs[0]].type.dtype)) {
      m.attrs["dtype"] = std::string("f64");
    }
    widen_attrs(m);
  }
}

// Makes every object of which `rounds` is true exactly and then rounds it. A view of a rounded
// object needs no rounding.
template <class Rounds>
Scheme with_rounding(const Scheme& scheme, const Rounds& rounds) {
  Scheme result = scheme;
  result.morphisms.clear();
  for (Morphism m : scheme.morphisms) {
    std::vector<Morphism> roundings;
    for (Value& out : m.outputs) {
      const Dtype dtype = scheme[out].type.dtype;
      if (!rounds(dtype) || op_named(m.op).view) continue;
      Object exact = scheme[out];
      exact.source.facet += exact.source.facet.empty() ? "exact" : ".exact";
      const Value rounded = std::exchange(out, result.add(std::move(exact)));
      Body body;
      body.outputs = {{.node = round_to(input(body, 0), dtype).node, .dtype = Dtype::kF64}};
      roundings.push_back(m);
      roundings.back().op = "map";
      roundings.back().inputs = {out};
      roundings.back().outputs = {rounded};
      roundings.back().attrs = {{"body", print(body)}};
    }
    result.morphisms.push_back(std::move(m));
    for (Morphism& rounding : roundings) result.morphisms.push_back(std::move(rounding));
  }
  return result;
}

bool is_narrow(Dtype dtype) { return dtype == Dtype::kBF16 || dtype == Dtype::kF16; }

template <class Rounds>
Scheme reference_of(const Scheme& scheme, const Rounds& rounds) {
  // Rounding comes first: inside a fused op nothing is stored, so its meaning must not round.
  Scheme result = with_rounding(scheme, rounds);
  widen(result);
  result = expand_meanings(result, [](const Morphism& m) {
    const OpDef& op = op_named(m.op);
    return op.meaning && !op.body;
  });
  widen(result);
  verify(result);
  return result;
}

}  // namespace

Scheme to_reference(const Scheme& scheme) { return reference_of(scheme, is_narrow); }

Scheme to_rounded_reference(const Scheme& scheme) {
  return reference_of(scheme, [](Dtype d) { return is_narrow(d) || d == Dtype::kF32; });
}

}  // namespace adjoint

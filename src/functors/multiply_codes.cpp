// linear(x, dequantize(codes, scales))  ->  code_linear(x, codes, scales), where x has few rows:
// such a product waits for memory, and codes are the fewest bytes that it can wait for. The matrix
// is summed before it is scaled and never rounded, so results differ from the two calls' in their
// last places. Other readers of the matrix keep it.
#include "base/error.h"
#include "functors/phases.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr int64_t kFewRows = 8;  // more of them are a product that waits for arithmetic

// A linear map and nothing else.
bool is_plain_map(const Morphism& m) {
  const OpDef& def = op_named(m.op);
  return def.multiplies && def.weight == 1 && !says_body(m) && m.outputs.size() == 1;
}

}  // namespace

Scheme multiply_codes(Scheme scheme) {
  const std::vector<int> made_by = producers(scheme);
  for (Morphism& m : scheme.morphisms) {
    if (!is_plain_map(m) || made_by[m.inputs[1]] < 0) continue;
    const Morphism& decode = scheme.morphisms[made_by[m.inputs[1]]];
    const Type& x = scheme[m.inputs[0]].type;
    if (!op_named(decode.op).decodes || x.num_elements() / x.dim(-1) > kFewRows) continue;
    Morphism joined = m;
    joined.op = "code_linear";
    joined.attrs = {{"format", decode.attrs.at("format")}};
    joined.inputs = {m.inputs[0], decode.inputs[0], decode.inputs[1]};
    joined.inputs.insert(joined.inputs.end(), m.inputs.begin() + 2, m.inputs.end());
    // Codes of 4 bits, or of more than two axes, have no such product.
    try {
      const std::vector<Type> made = infer_types(call_of(scheme, joined));
      if (made[0] != scheme[m.outputs[0]].type) continue;
    } catch (const Error&) {
      continue;
    }
    m = std::move(joined);
  }
  return without_dead(std::move(scheme));
}

}  // namespace adjoint

// linear(x, dequantize(codes, scales))  ->  code_linear(x, codes, scales), where x has few rows:
// such a product waits for memory, and codes are the fewest bytes that it can wait for. The matrix
// is summed before it is scaled and never rounded, so results differ from the two calls' in their
// last places. embed(ids, dequantize(codes, scales))  ->  the codes and scales of those rows alone,
// decoded. Other readers of the matrix keep it.
#include "functors/functor.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

constexpr int64_t kFewRows = 8;  // more of them are a product that waits for arithmetic

class Decoding {
 public:
  Decoding(const Scheme& before, Application& application)
      : application_(application),
        before_(before),
        after_(without_morphisms(before)),
        builder_(after_),
        made_by_(producers(before)) {}

  Scheme run() {
    for (const Morphism& m : before_.morphisms) {
      if (multiply(m) || choose_rows(m)) {
        ++application_.matches;
      } else {
        after_.morphisms.push_back(m);
      }
    }
    return without_dead(std::move(after_));
  }

 private:
  // What decodes an operand; null: nothing does.
  const Morphism* decoder_of(const Morphism& m, int operand) const {
    if (operand < 0 || operand >= static_cast<int>(m.inputs.size())) return nullptr;
    const int maker = made_by_[m.inputs[operand]];
    if (maker < 0 || !op_named(before_.morphisms[maker].op).decodes) return nullptr;
    return &before_.morphisms[maker];
  }

  bool multiply(const Morphism& m) {
    const OpDef& def = op_named(m.op);
    // A linear map and nothing else.
    if (!def.multiplies || def.weight != 1 || says_body(m) || m.outputs.size() != 1) return false;
    const Morphism* decode = decoder_of(m, def.weight);
    const Type& x = before_[m.inputs[0]].type;
    // Codes of 4 bits have no such product.
    if (!decode || before_[decode->inputs[0]].type.dtype != Dtype::kI8 ||
        x.num_elements() / x.dim(-1) > kFewRows) {
      return false;
    }
    Morphism joined = m;
    joined.op = "code_linear";
    joined.attrs = {{"format", decode->attrs.at("format")}};
    joined.inputs = {m.inputs[0], decode->inputs[0], decode->inputs[1]};
    joined.inputs.insert(joined.inputs.end(), m.inputs.begin() + 2, m.inputs.end());
    after_.morphisms.push_back(std::move(joined));
    return true;
  }

  bool choose_rows(const Morphism& m) {
    const int table = op_named(m.op).table;
    const Morphism* decode = decoder_of(m, table);
    if (!decode || m.outputs.size() != 1) return false;
    builder_.at(m.source, m.phase, Role::kActivation);
    const auto rows_of = [&](Value v) {
      std::vector<Value> operands = m.inputs;
      operands[table] = v;
      return builder_.emit(m.op, operands, m.attrs);
    };
    Value scales = decode->inputs[1];
    const int rank = before_[scales].type.rank();
    // One scale for all rows, one a row, or several.
    if (rank == 1)
      scales = builder_.emit("split", {scales}, {{"parts", before_[scales].type.dim(0)}});
    Morphism decoded = *decode;
    decoded.inputs = {rows_of(decode->inputs[0]), rank == 0 ? scales : rows_of(scales)};
    decoded.outputs = m.outputs;
    decoded.source = m.source;
    after_.morphisms.push_back(std::move(decoded));
    return true;
  }

  Application& application_;
  const Scheme& before_;
  Scheme after_;
  Builder builder_;
  std::vector<int> made_by_;
};

}  // namespace

extern const Functor functor_multiply_codes = {
    .name = "multiply_codes",
    .summary = "products of few rows multiply codes as they are",
    .law = Law::kReassociating,
    .may_match_none = true,
    .of_forward = true,
    .rules = {{FunctorPhase::kPositions,
               [](Scheme scheme, Application& application) {
                 return Decoding(scheme, application).run();
               }}},
};

}  // namespace adjoint

// optimizer state precision=dyn8  ->  its codes and scales are carried; they are decoded before the
// update and encoded after it. Small ones stay float32: they cost nothing, and those of gains and
// biases matter most. A state that is never negative has codes without a sign, one bit finer;
// whether it is, the body that updates it tells. Numbers (counts of steps, a loss's scale) stay
// float32 whatever was said.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "functors/phases.h"
#include "ops/block_codes.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr std::string_view kDynamicCode = "dyn8";
constexpr int64_t kLeastEncoded = 4096;  // as in the paper, section 2

// Whether a node is at least 0 for any operands, if operand `self` is.
class NeverNegative {
 public:
  NeverNegative(const Body& body, int self) : body_(body), self_(self) {}

  bool operator()(int node) const {
    const ExprNode& n = body_.nodes[node];
    const auto arg = [&](int a) { return (*this)(n.args[a]); };
    switch (n.kind) {
      case ExprKind::kInput:
        return n.index == self_;
      case ExprKind::kConst:
        return n.value >= 0;
      case ExprKind::kMul: {
        std::vector<int> all;
        factors(node, all);
        return is_square_of_the_rest(std::move(all));
      }
      case ExprKind::kAdd:
      case ExprKind::kDiv:
      case ExprKind::kMin:
        return arg(0) && arg(1);
      case ExprKind::kMax:
        return arg(0) || arg(1);
      case ExprKind::kSelect:
        return arg(1) && arg(2);
      case ExprKind::kRound:
      case ExprKind::kRowSum:
      case ExprKind::kRowMax:
        return arg(0);
      case ExprKind::kExp:
      case ExprKind::kSqrt:
      case ExprKind::kSigmoid:
        return true;
      default:
        return false;
    }
  }

 private:
  void factors(int node, std::vector<int>& all) const {
    const ExprNode& n = body_.nodes[node];
    if (n.kind != ExprKind::kMul) {
      all.push_back(node);
      return;
    }
    factors(n.args[0], all);
    factors(n.args[1], all);
  }

  // Factors that come in pairs are squares; the others must not be negative.
  bool is_square_of_the_rest(std::vector<int> all) const {
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < all.size(); ++i) {
      if (i + 1 < all.size() && all[i] == all[i + 1]) {
        ++i;
      } else if (!(*this)(all[i])) {
        return false;
      }
    }
    return true;
  }

  const Body& body_;
  int self_;
};

bool is_never_negative(const Scheme& scheme, const Morphism& update, const Carry& c) {
  if (!op_named(update.op).body) return false;
  const auto self = std::find(update.inputs.begin(), update.inputs.end(), c.in);
  const auto out = std::find(update.outputs.begin(), update.outputs.end(), c.out);
  const Body body = body_of(call_of(scheme, update));
  return NeverNegative(body, static_cast<int>(self - update.inputs.begin()))(
      body.outputs[out - update.outputs.begin()].node);
}

class StateCodes {
 public:
  explicit StateCodes(Scheme scheme) : scheme_(std::move(scheme)), made_by_(producers(scheme_)) {}

  Scheme run() {
    std::vector<Carry> carries;
    for (const Carry& c : scheme_.carries) {
      if (scheme_[c.in].role != Role::kState) {
        carries.push_back(c);
        continue;
      }
      const bool number = scheme_[c.in].type.rank() == 0;
      const bool dynamic = scheme_[c.in].attributes.precision == kDynamicCode;
      if (dynamic && is_worth_it(c)) {
        encode(c, carries);
        continue;
      }
      if (number || dynamic) {
        for (const Value v : {c.in, c.out}) scheme_[v].attributes.precision.clear();
      }
      carries.push_back(c);
    }
    scheme_.carries = std::move(carries);
    place();
    return std::move(scheme_);
  }

 private:
  bool is_worth_it(const Carry& c) const {
    const Object& state = scheme_[c.in];
    const bool zeros = state.init && state.init->kind == Init::Kind::kZeros;
    return zeros && made_by_[c.out] >= 0 && state.type.dtype == Dtype::kF32 &&
           state.type.num_elements() >= kLeastEncoded;
  }

  // The part of a state that is carried in its place.
  Object part(Value of, std::string_view facet, Type type) const {
    Object made = scheme_[of];
    made.type = std::move(type);
    made.source = with_facet(made.source, facet);
    made.attributes.precision.clear();
    return made;
  }

  void encode(const Carry& c, std::vector<Carry>& carries) {
    const Morphism update = scheme_.morphisms[made_by_[c.out]];
    const bool sign = !is_never_negative(scheme_, update, c);
    const Type type = scheme_[c.in].type;
    const Type types[] = {block_codes_type(type, sign), block_scales_type(type)};
    const char* const facets[] = {"codes", "scales"};
    Morphism decode{.op = "block_decode", .outputs = {c.in}, .phase = Phase::kUpdate};
    Morphism encode{.op = "block_encode", .inputs = {c.out}, .phase = Phase::kUpdate};
    for (Morphism* m : {&decode, &encode}) {
      m->attrs["format"] = std::string(sign ? "dyn8" : "dyn8u");
      m->section = update.section;
    }
    std::vector<Value> stored;
    for (int k = 0; k < 2; ++k) {
      stored.push_back(scheme_.add(part(c.in, facets[k], types[k])));
      const Value next = scheme_.add(part(c.out, facets[k], types[k]));
      scheme_[next].init.reset();
      encode.outputs.push_back(next);
      carries.push_back({stored[k], next});
    }
    decode.inputs = stored;
    encode.source = scheme_[encode.outputs[0]].source;
    const auto at = std::find(scheme_.inputs.begin(), scheme_.inputs.end(), c.in);
    scheme_.inputs.insert(scheme_.inputs.erase(at), stored.begin(), stored.end());
    // What is left of the state lives for its update alone.
    const char* const names[] = {"decoded", "next"};
    for (int k = 0; k < 2; ++k) {
      Object& wide = scheme_[k == 0 ? c.in : c.out];
      wide.source = with_facet(wide.source, names[k]);
      wide.role = Role::kMetric;
      wide.init.reset();
      wide.attributes = {};
    }
    decode.source = scheme_[c.in].source;
    decoded_[c.in] = std::move(decode);
    encoded_[c.out] = std::move(encode);
  }

  // Decodes right before the first reader, and encodes right behind the update.
  void place() {
    std::vector<Morphism> before = std::move(scheme_.morphisms);
    scheme_.morphisms.clear();
    for (Morphism& m : before) {
      for (const Value in : m.inputs) {
        if (auto found = decoded_.extract(in)) {
          scheme_.morphisms.push_back(std::move(found.mapped()));
        }
      }
      scheme_.morphisms.push_back(m);
      for (const Value out : m.outputs) {
        if (auto found = encoded_.extract(out)) {
          scheme_.morphisms.push_back(std::move(found.mapped()));
        }
      }
    }
  }

  Scheme scheme_;
  std::vector<int> made_by_;
  std::map<Value, Morphism> decoded_, encoded_;  // by the state before and after the update
};

}  // namespace

Scheme realize_state(Scheme scheme) {
  const auto said = [&](Value in) {
    return scheme[in].role == Role::kState && !scheme[in].attributes.precision.empty();
  };
  if (!std::any_of(scheme.inputs.begin(), scheme.inputs.end(), said)) return scheme;
  return StateCodes(std::move(scheme)).run();
}

}  // namespace adjoint

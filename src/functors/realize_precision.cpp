// object precision=bf16  ->  an object of that dtype, with a cast before readers of another dtype.
// parameter precision=nf4/64  ->  its codes and scales, with a dequantize before its readers. A
// cast or dequantize is made once per object and dtype, right before its first reader: a weight's
// cast serves forward and backward. A dequantized matrix serves one phase only, because keeping it
// would make its codes pointless. Sums stay float32, where the op lets its result's dtype be set. A
// result whose dtype the op fixes (log-sums) keeps that dtype.
// trained parameter precision=bf16/stochastic  ->  held and carried in bf16. Its update computes in
// float32 and rounds up or down at random, each as often as the number is near, so that many steps
// that are too small for bf16 move it as far as they would in float32, on average.
// frozen parameter, read through casts to 16 bits alone  ->  held in these (hold_narrow.h): the
// casts would be the same in every step.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/roles.h"
#include "base/error.h"
#include "functors/hold_narrow.h"
#include "functors/phases.h"
#include "ops/builder.h"
#include "ops/op_def.h"
#include "ops/quantize.h"

namespace adjoint {

namespace {

// The dtype that was set; nothing where the precision is not a dtype: not set, tf32, or codes.
std::optional<Dtype> said_dtype(const Object& object) {
  const auto dtype = dtype_named(object.attributes.precision);
  return dtype && is_float(*dtype) ? dtype : std::nullopt;
}

[[noreturn]] void refuse(const Object& object, std::string_view why) {
  fail("precision: '", to_string(object.source), "' cannot be ", object.attributes.precision, ": ",
       why);
}

constexpr std::string_view kStochastic = "bf16/stochastic";
bool is_stochastic(const Object& object) { return object.attributes.precision == kStochastic; }

// x in bf16: the nearest value y, or its neighbour n on the other side of x with the probability
// (x - y) / (n - y). 0.7 of the largest spacing that bf16 has at y rounds to that neighbour, also
// where the spacing changes at a power of two.
Expr stochastic_bf16(Expr x, Expr uniform) {
  const Expr zero = constant(*x.body, 0);
  const Expr y = round_to(x, Dtype::kBF16), error = x - y;
  const Expr outward = max(y, -y) * (0.7 / 128);
  const Expr n = round_to(y + select(less(error, zero), -outward, outward), Dtype::kBF16);
  // Where there is no neighbour (0, and what is not finite), x is y.
  const Expr away = equal(n, y) + (1.0 - is_finite(error));
  const Expr other = less(uniform * max(n - y, y - n), max(error, -error));
  return select(away, y, select(other, n, y));
}

class Realization {
 public:
  explicit Realization(const Scheme& before) : before_(before), after_(without_morphisms(before)) {
    after_.inputs.clear();
    fixed_ = fixed_dtypes(before);
    carried_.assign(before.objects.size(), false);
    for (const auto* list : {&before.carries, &before.loop}) {
      for (const Carry& c : *list) carried_[c.in] = carried_[c.out] = true;
    }
  }

  Scheme run() {
    for (const Value in : before_.inputs) input(in);
    for (const Morphism& m : before_.morphisms) morphism(m);
    for (const Value out : before_.outputs) {
      if (codes_.count(out)) refuse(before_[out], "the step returns it");
    }
    for (Object& object : after_.objects) object.attributes.precision.clear();
    return compact(std::move(after_));
  }

 private:
  struct Codes {
    CodeFormat format;
    Value codes, scales;
  };

  const Type& type(Value v) const { return after_[v].type; }

  // The dtype that output k is to have: the one that was set, or else that of its type.
  Dtype wanted(const Morphism& m, size_t k) const {
    const Object& object = before_[m.outputs[k]];
    if (is_stochastic(object)) return Dtype::kBF16;
    const auto said = fixed_[m.outputs[k]] ? std::nullopt : said_dtype(object);
    if (said && *said != object.type.dtype && carried_[m.outputs[k]] &&
        object.role != Role::kState) {
      refuse(object, "it is carried on, and state keeps its type");
    }
    // Concats and views of frozen parameters that are held in 16 bits have 16 bits, too.
    if (!said && m.outputs[k] < static_cast<Value>(like_.size()) && like_[m.outputs[k]] >= 0) {
      const auto alike = [&](Value in) { return type(in).dtype == type(m.inputs[0]).dtype; };
      if (std::all_of(m.inputs.begin(), m.inputs.end(), alike)) return type(m.inputs[0]).dtype;
    }
    return said.value_or(object.type.dtype);
  }

  void input(Value v) {
    const Object& object = before_[v];
    const std::string& precision = object.attributes.precision;
    if (const auto format = code_format(precision)) {
      encode(v, *format);
      return;
    }
    after_.inputs.push_back(v);
    if (is_stochastic(object)) {
      if (object.role != Role::kParameter || object.frozen) {
        refuse(object, "only a trained parameter is rounded at random");
      }
      after_[v].type.dtype = Dtype::kBF16;
    } else if (const auto dtype = said_dtype(object)) {
      if (!is_float(object.type.dtype)) refuse(object, "it holds whole numbers");
      if (*dtype != object.type.dtype && carried_[v] && object.role != Role::kState) {
        refuse(object, "it is carried on, and state keeps its type");
      }
      after_[v].type.dtype = *dtype;
    } else if (!precision.empty() && precision != "tf32") {
      refuse(object,
             "wanted bf16, f16, f32, tf32, int8/tensor, int8/channel, int8/64, int4/64 or nf4/64");
    }
  }

  void encode(Value v, const CodeFormat& format) {
    const Object& object = before_[v];
    if (object.role != Role::kParameter || !object.frozen || carried_[v]) {
      refuse(object, "only a frozen parameter can be codes, and this one is trained");
    }
    if (object.type.rank() < 1 || object.type.num_elements() != object.type.num_physical() ||
        !fits(object.type.dim(-1), format)) {
      refuse(object, "its rows do not split into groups of codes");
    }
    const auto part = [&](std::string_view facet, Type part_type) {
      Object made = object;
      made.type = std::move(part_type);
      made.source = with_facet(object.source, facet);
      return after_.add_input(std::move(made));
    };
    const Value codes = part("codes", codes_type(object.type, format));
    codes_[v] = {format, codes, part("scales", scales_type(object.type, format))};
  }

  // Adds an object like `of` with another dtype; the caller adds the morphism that makes it.
  Value add_like(Value of, Dtype dtype, std::string_view suffix) {
    Object made = before_[of];
    made.type.dtype = dtype;
    made.source = with_facet(made.source, suffix);
    made.init.reset();
    return after_.add(std::move(made));
  }

  void emit(std::string op, std::vector<Value> in, Value out, Attrs attrs, const Morphism& like) {
    after_.morphisms.push_back({.op = std::move(op),
                                .inputs = std::move(in),
                                .outputs = {out},
                                .attrs = std::move(attrs),
                                .source = after_[out].source,
                                .phase = like.phase,
                                .epoch = like.epoch,
                                .section = like.section});
  }

  // v in the dtype that `reader` wants.
  Value as(Value v, Dtype dtype, const Morphism& reader) {
    const auto codes = codes_.find(v);
    const auto joined = joined_codes_.find(v);
    const bool shared = codes == codes_.end() && joined == joined_codes_.end();
    if (shared && (type(v).dtype == dtype || !is_float(type(v).dtype))) return v;
    // A parameter is held in 16 bits to save memory, so a wider copy serves one phase only,
    // as with codes.
    const Value parameter = v < static_cast<Value>(like_.size()) ? like_[v] : -1;
    const bool widened = shared && parameter >= 0 && size_of(dtype) > size_of(type(v).dtype);
    const bool for_phase = !shared || widened;
    const auto key = std::tuple(v, dtype, reader.section, reader.epoch,
                                for_phase ? reader.phase : Phase::kForward);
    const auto [found, fresh] = made_.emplace(key, -1);
    if (!fresh) return found->second;
    const std::string word(name(dtype));
    const bool again = for_phase && reader.phase != Phase::kForward;
    const Value made =
        add_like(v, dtype, again ? word + "." + std::string(name(reader.phase)) : word);
    if (shared) {
      emit("cast", {v}, made, {{"dtype", word}}, reader);
    } else if (joined != joined_codes_.end()) {
      std::vector<Value> parts;
      for (const Value part : joined->second.inputs) parts.push_back(as(part, dtype, reader));
      emit("concat", parts, made, joined->second.attrs, reader);
    } else {
      const std::string format(name(codes->second.format.kind));
      emit("dequantize", {codes->second.codes, codes->second.scales}, made,
           {{"format", format}, {"dtype", word}}, reader);
    }
    // Casts of joined parameters inherit the residence of the parameters.
    if (v < static_cast<Value>(like_.size()) && like_[v] >= 0) {
      after_[made].role = Role::kParameter;
      after_[made].attributes.residence = before_[like_[v]].attributes.residence;
    }
    // A dequantized matrix is not kept for the recomputation of its block either.
    Residence& residence = after_[made].attributes.residence;
    if (!shared && residence == Residence::kUnsaid) residence = Residence::kRecomputed;
    return found->second = made;
  }

  // The dtype of operands, for an op whose operands all have one dtype. If the result's dtype can
  // be set apart, the operands keep theirs: a weight's gradient is a float32 sum of bf16 products.
  Dtype operand_dtype(const Morphism& m, const OpDef& def) const {
    const Dtype result = wanted(m, 0);
    if (!def.says_dtype) return result;
    std::optional<Dtype> narrowest;
    for (size_t k = 0; k < m.inputs.size() && k < 2; ++k) {
      const Value in = m.inputs[k];
      const Dtype dtype = type(in).dtype;
      if (!is_float(dtype) || before_[in].role == Role::kParameter || like_[in] >= 0) continue;
      if (!narrowest || size_of(dtype) < size_of(*narrowest)) narrowest = dtype;
    }
    return narrowest.value_or(before_[m.inputs[0]].type.dtype);
  }

  // Concats and views of parameters are treated like the first of those parameters.
  void note_parameters(const Morphism& m, const OpDef& def) {
    if (like_.empty()) {
      like_.assign(before_.objects.size(), -1);
      for (const Value in : before_.inputs) {
        if (before_[in].role == Role::kParameter) like_[in] = in;
      }
    }
    if (def.lies != LiesWithin::kJoins && !def.view) return;
    const bool all =
        std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value in) { return like_[in] >= 0; });
    if (all) like_[m.outputs[0]] = like_[m.inputs[0]];
  }

  void morphism(Morphism m) {
    const OpDef& def = op_named(m.op);
    note_parameters(m, def);
    for (const Value out : m.outputs) check_made(out);
    // A concat of codes is made by every phase that reads it, after dequantizing.
    if (def.lies == LiesWithin::kJoins &&
        std::any_of(m.inputs.begin(), m.inputs.end(),
                    [&](Value in) { return codes_.count(in) > 0; })) {
      joined_codes_[m.outputs[0]] = m;
      return;
    }
    if (before_[m.outputs[0]].attributes.precision == "tf32" && def.rounds_operands) {
      m.attrs["math"] = std::string("tf32");
    }
    const Dtype operands = def.one_dtype ? operand_dtype(m, def) : wanted(m, 0);
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      Value& in = m.inputs[k];
      if (def.multiplies &&
          static_cast<int>(k) == def.addend) {  // an addend has the result's dtype
        in = as(in, wanted(m, 0), m);
        continue;
      }
      const bool cast = def.one_dtype && !(in < static_cast<Value>(fixed_.size()) && fixed_[in]);
      // Bodies read any mixture of dtypes, but no op reads codes.
      if (cast) in = as(in, operands, m);
      if (codes_.count(in) || joined_codes_.count(in))
        in = as(in, def.body ? before_[in].type.dtype : operands, m);
    }
    round_at_random(m, def);
    results(std::move(m), def);
  }

  // The update of a parameter that is held in bf16 draws random numbers, keyed by its path.
  void round_at_random(Morphism& m, const OpDef& def) {
    const auto any = std::find_if(m.outputs.begin(), m.outputs.end(),
                                  [&](Value out) { return is_stochastic(before_[out]); });
    if (any == m.outputs.end()) return;
    if (!def.body || def.wide) refuse(before_[*any], "what updates it is no body");
    Body body = body_of(call_of(after_, m));
    m.inputs.push_back(Builder(after_).control(kRandomCounter, random_counter_type()));
    const int counter = static_cast<int>(m.inputs.size()) - 1;
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      BodyOutput& out = body.outputs[k];
      out.dtype = wanted(m, k);
      if (!is_stochastic(before_[m.outputs[k]])) continue;
      const Expr uniform = random_uniform(body, counter, before_[m.outputs[k]].source.path);
      out.node = stochastic_bf16({&body, out.node}, uniform).node;
    }
    say_body(m, body);
  }

  void check_made(Value out) const {
    const Object& object = before_[out];
    const std::string& precision = object.attributes.precision;
    if (precision.empty() || precision == "tf32" || is_stochastic(object)) return;
    if (!said_dtype(object)) refuse(object, "it is computed, and only a parameter can be codes");
    if (!is_float(object.type.dtype)) refuse(object, "it holds whole numbers");
  }

  // Adds m, whose operands have been replaced, so that its results have the wanted dtypes.
  void results(Morphism m, const OpDef& def) {
    std::vector<Dtype> want;
    for (size_t k = 0; k < m.outputs.size(); ++k) want.push_back(wanted(m, k));
    std::vector<Type> types = infer_types(call_of(after_, m));
    for (size_t k = 1; k < want.size(); ++k) {
      // Where the dtype was not set, or the op fixes it, the result has the dtype that the op
      // gives.
      const bool told = said_dtype(before_[m.outputs[k]]) && !fixed_[m.outputs[k]];
      if (!def.body && !told) want[k] = types[k].dtype;
    }
    const auto differs = [&] {
      for (size_t k = 0; k < want.size(); ++k) {
        if (types[k].dtype != want[k]) return true;
      }
      return false;
    };
    if (differs() && def.says_dtype) {
      m.attrs["dtype"] = std::string(name(want[0]));
      types = infer_types(call_of(after_, m));
    }
    // A body can store its results in the wanted dtypes; only other ops need a cast after them.
    if (differs() && def.body && !def.wide) {
      Body body = body_of(call_of(after_, m));
      for (size_t k = 0; k < want.size(); ++k) body.outputs[k].dtype = want[k];
      say_body(m, body);
      types = infer_types(call_of(after_, m));
    }
    const std::vector<Value> outputs = m.outputs;
    for (size_t k = 0; k < want.size(); ++k) {
      after_[outputs[k]].type.dtype = want[k];
      if (types[k].dtype != want[k]) {
        m.outputs[k] = add_like(outputs[k], types[k].dtype, name(types[k].dtype));
      }
    }
    after_.morphisms.push_back(m);
    for (size_t k = 0; k < want.size(); ++k) {
      if (m.outputs[k] == outputs[k]) continue;
      emit("cast", {m.outputs[k]}, outputs[k], {{"dtype", std::string(name(want[k]))}}, m);
    }
  }

  const Scheme& before_;
  Scheme after_;
  std::vector<bool> fixed_, carried_;
  std::vector<Value>
      like_;  // per object: the parameter that it is, or is a concat or view of; else -1
  std::map<Value, Codes> codes_;
  std::map<Value, Morphism> joined_codes_;  // by the result that a concat of codes would have
  std::map<std::tuple<Value, Dtype, Section, int, Phase>, Value> made_;
};

}  // namespace

Scheme realize_precision(Scheme scheme, const Scheme* beside) {
  scheme = realize_state(std::move(scheme));
  const auto is_said = [](const Object& object) { return !object.attributes.precision.empty(); };
  if (std::none_of(scheme.objects.begin(), scheme.objects.end(), is_said)) return scheme;
  std::set<std::string> free;  // frozen parameters, by source, that may be held as they are read
  for (const Value in : scheme.inputs) {
    const Object& object = scheme[in];
    if (object.role != Role::kParameter || !object.frozen || is_said(object)) continue;
    const auto held = beside ? beside->find(object.source) : std::nullopt;
    if (held && (*beside)[*held].type.dtype == object.type.dtype) continue;
    free.insert(to_string(object.source));
  }
  Scheme realized = Realization(scheme).run();
  if (free.empty()) return realized;
  int64_t held = 0;
  return held_narrow(
      std::move(realized), [&](const Object& o) { return free.count(to_string(o.source)) > 0; },
      held);
}

}  // namespace adjoint

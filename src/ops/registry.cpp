// The list of ops, and the readings of a body that stand in for fields an op leaves out.
#include <map>

#include "base/counts.h"
#include "base/error.h"
#include "body/facts.h"
#include "ops/body_facts.h"
#include "ops/builder.h"
#include "ops/op_def.h"
#include "ops/padded.h"

namespace adjoint {

#define OP(name) extern const OpDef op_##name;
#include "ops/ops.inc"
#undef OP

std::span<const OpDef* const> all_ops() {
  static const OpDef* const ops[] = {
#define OP(name) &op_##name,
#include "ops/ops.inc"
#undef OP
  };
  return ops;
}

const OpDef* find_op(std::string_view name) {
  static const std::map<std::string_view, const OpDef*> by_name = [] {
    std::map<std::string_view, const OpDef*> map;
    for (const OpDef* op : all_ops()) map[op->name] = op;
    return map;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

const OpDef& op_named(std::string_view name) {
  const OpDef* op = find_op(name);
  CHECK(op, "an op that exists: " + std::string(name));
  return *op;
}

namespace {
template <class T>
const T* attr(const OpCall& call, std::string_view key) {
  const auto found = call.attrs.find(key);
  return found == call.attrs.end() ? nullptr : std::get_if<T>(&found->second);
}
}  // namespace

int64_t OpCall::integer(std::string_view key) const {
  const int64_t* value = attr<int64_t>(*this, key);
  if (!value) fail(op, ": wants a whole number '", key, "'");
  return *value;
}
int64_t OpCall::integer(std::string_view key, int64_t otherwise) const {
  const int64_t* value = attr<int64_t>(*this, key);
  return value ? *value : otherwise;
}
double OpCall::number(std::string_view key) const {
  if (const int64_t* whole = attr<int64_t>(*this, key)) return static_cast<double>(*whole);
  const double* value = attr<double>(*this, key);
  if (!value) fail(op, ": wants a number '", key, "'");
  return *value;
}
double OpCall::number(std::string_view key, double otherwise) const {
  return attrs.count(key) ? number(key) : otherwise;
}
std::string OpCall::text(std::string_view key, std::string_view otherwise) const {
  const std::string* value = attr<std::string>(*this, key);
  return value ? *value : std::string(otherwise);
}
std::vector<int64_t> OpCall::list(std::string_view key) const {
  const auto* value = attr<std::vector<int64_t>>(*this, key);
  return value ? *value : std::vector<int64_t>{};
}

std::string_view name(Effect effect) {
  constexpr std::string_view names[] = {"pure", "random", "choosing", "writes state"};
  return names[static_cast<size_t>(effect)];
}

Body body_of(const OpCall& call) { return op_named(call.op).body(call); }

std::vector<Axis> space_of(const OpCall& call) {
  const OpDef& def = op_named(call.op);
  return def.space ? def.space(call) : broadcast(call.op, call.inputs);
}

std::vector<Type> infer_types(const OpCall& call) {
  const OpDef& def = op_named(call.op);
  if (def.infer) return def.infer(call);
  const Body body = def.body(call);
  if (body.num_inputs() > static_cast<int>(call.inputs.size())) {
    fail(call.op, ": wants ", body.num_inputs(), " operands, found ", call.inputs.size());
  }
  const std::vector<Axis> space = space_of(call);
  for (const ExprNode& n : body.nodes) {
    if (n.kind == ExprKind::kIndex && n.index >= static_cast<int>(space.size())) {
      fail(call.op, ": wants at least ", n.index + 1, " axes, found ", space.size());
    }
    // i64 is the random counter's alone: it has axes of its own.
    const bool draws = n.kind == ExprKind::kRandom, reads = n.kind == ExprKind::kInput;
    const Type counter = random_counter_type();
    if (draws && !(same_shape(call.inputs[n.index], counter) &&
                   call.inputs[n.index].dtype == counter.dtype)) {
      fail(call.op, ": draws random numbers by ", to_string(counter), ", found ",
           to_string(call.inputs[n.index]));
    }
    if (reads && call.inputs[n.index].dtype == Dtype::kI64) {
      fail(call.op, ": does not read i64 as a number, found ", to_string(call.inputs[n.index]));
    }
  }
  return output_types(body, space, call.inputs);
}

Effect effect_of(const OpCall& call) {
  const OpDef& def = op_named(call.op);
  return def.effects ? def.effects(call) : def.effect;
}

int64_t count_flops(const OpCall& call) {
  const OpDef& def = op_named(call.op);
  if (def.flops) return def.flops(call);
  if (!def.body) return 0;
  // One per arithmetic node and element, whatever the function.
  int64_t elements = 1, per_element = 0;
  for (const Axis& axis : space_of(call)) elements = product_of({elements, axis.size});
  for (const ExprNode& n : body_of(call).nodes) per_element += facts(n.kind).arity > 0;
  return product_of({elements, per_element});
}

bool is_linear_together(const OpCall& call) {
  const OpDef& def = op_named(call.op);
  return def.view || (def.linear && def.linear(call) == Linear::kTogether);
}

bool is_cast(const OpCall& call) { return is_row_op(op_named(call.op)) && is_cast(body_of(call)); }

bool is_addition(const OpCall& call) {
  return is_row_op(op_named(call.op)) && adds_operands(body_of(call));
}

int64_t ignored_target(const OpCall& call) { return call.integer("ignore", -1); }

bool is_gradient_of_loss(const Scheme& scheme, const Morphism& grad, const Morphism& loss) {
  const OpDef& op = op_named(loss.op);
  // All options, not only the target that is ignored: a gradient of another loss is not this one's.
  const auto said = [&](const Morphism& m) {
    Attrs attrs = m.attrs;
    attrs["ignore"] = ignored_target(call_of(scheme, m));
    return attrs;
  };
  return op.loss && grad.op == op.loss_grad && grad.inputs[0] == loss.inputs[0] &&
         grad.inputs[1] == loss.inputs[1] && grad.inputs[2] == loss.outputs[2] &&
         said(grad) == said(loss);
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OpDef* op : all_ops()) {
    if (op->update) names.emplace_back(op->name);
  }
  return names;
}

IndexMap index_map_of(const OpCall& call) {
  const OpDef& def = op_named(call.op);
  if (def.index_map) return def.index_map(call);
  return body_index_map(call);
}

std::vector<std::pair<int, int>> overwrites(const OpCall& call) {
  const OpDef& def = op_named(call.op);
  if (def.overwrites) return def.overwrites(call);
  if (def.body) return body_may_overwrite(call);
  std::vector<std::pair<int, int>> pairs;
  for (const auto& pair : def.may_overwrite) {
    if (pair.second < static_cast<int>(call.inputs.size())) pairs.push_back(pair);  // it is there
  }
  return pairs;
}

OpCall call_of(const Scheme& scheme, const Morphism& morphism) {
  OpCall call{.op = op_named(morphism.op).name, .inputs = {}, .attrs = morphism.attrs};
  for (const Value in : morphism.inputs) call.inputs.push_back(scheme[in].type);
  return call;
}

void verify(const Scheme& scheme) {
  verify_structure(scheme);
  for (const Morphism& m : scheme.morphisms) {
    CHECK(find_op(m.op), "an op that exists: " + m.op);
    const std::vector<Type> types = infer_types(call_of(scheme, m));
    const auto where = [&m] { return m.op + " at " + to_string(m.source); };
    CHECK(types.size() == m.outputs.size(), "as many outputs as the op gives: " + where());
    for (size_t i = 0; i < types.size(); ++i) {
      const Type& have = scheme[m.outputs[i]].type;
      CHECK(same_shape(types[i], have) && types[i].dtype == have.dtype,
            where() + " makes " + to_string(types[i]) + ", the scheme says " + to_string(have));
      // Kernels of any other op take its operands' room for its results'.
      CHECK(takes_padding(*find_op(m.op)) || same_room(types[i], have),
            where() + " makes " + to_string(types[i]) + ", and another room is said of " +
                to_string(have));
    }
  }
}

}  // namespace adjoint

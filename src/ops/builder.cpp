#include "ops/builder.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ops/gradient_source.h"

namespace adjoint {

std::vector<Value> Builder::emit_all(std::string_view op, std::vector<Value> inputs, Attrs attrs) {
  OpCall call{.op = op, .inputs = {}, .attrs = std::move(attrs)};
  for (const Value in : inputs) call.inputs.push_back(type(in));
  const OpDef& def = op_named(op);
  const std::vector<Type> types = infer_types(call);
  Morphism m{.op = std::string(op),
             .inputs = std::move(inputs),
             .attrs = std::move(call.attrs),
             .source = source_,
             .phase = phase_};
  for (size_t i = 0; i < types.size(); ++i) {
    Source source = source_;
    if (i > 0) {
      const std::string suffix =
          i <= def.output_names.size() ? std::string(def.output_names[i - 1]) : std::to_string(i);
      source.path += "." + suffix;
    }
    m.outputs.push_back(scheme_.add({.type = types[i], .source = source, .role = role_}));
  }
  scheme_.morphisms.push_back(std::move(m));
  return scheme_.morphisms.back().outputs;
}

Value Builder::control(std::string_view path, Type type) {
  for (const Value in : scheme_.inputs) {
    if (scheme_[in].source.path == path && scheme_[in].role == Role::kControl) return in;
  }
  return scheme_.add_input(
      {.type = std::move(type), .source = {std::string(path)}, .role = Role::kControl});
}

namespace {

// The sum over an axis that is not the last, which becomes one of size 1.
Value summed_over(Builder& builder, Value x, int axis) {
  std::vector<int64_t> order;
  for (int i = 0; i < builder.type(x).rank(); ++i) order.push_back(i);
  std::swap(order[axis], order.back());
  const Value sum = builder.emit("sum", {builder.emit("transpose", {x}, {{"order", order}})});
  return builder.emit("transpose", {sum}, {{"order", order}});
}

// The gradient of a body op: one morphism for all wanted operands, or none where the gradient of
// an operand is that of the output itself.
void body_grad(GradCall& g) {
  const Body body = body_of(g.call);
  const std::vector<Axis> space = space_of(g.call);
  std::vector<int> present, wanted;
  std::vector<Value> operands;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (!g.output_grads[i]) continue;
    present.push_back(static_cast<int>(i));
    operands.push_back(*g.output_grads[i]);
  }
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.wants[i]) wanted.push_back(static_cast<int>(i));
  }
  operands.insert(operands.end(), g.inputs.begin(), g.inputs.end());

  // The gradient of an operand that is stretched along an inner axis comes out as long as the space
  // is there, and is summed afterwards; leading axes and the row are summed by the body itself.
  std::vector<Type> inputs = g.call.inputs;
  std::vector<std::vector<int>> stretched(inputs.size());
  for (const int want : wanted) {
    std::vector<Axis>& axes = inputs[want].axes;
    for (size_t a = 0; a + 1 < axes.size(); ++a) {
      const Axis& whole = space[space.size() - axes.size() + a];
      if (axes[a].size == whole.size) continue;
      axes[a] = {axes[a].name, whole.size};
      stretched[want].push_back(static_cast<int>(a));
    }
  }
  Body grad = differentiate(body, space, inputs, present, wanted);
  std::vector<int> rest;
  std::vector<BodyOutput> outputs;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const BodyOutput& out = grad.outputs[k];
    const ExprNode& n = grad.nodes[out.node];
    const Type& want = g.call.inputs[wanted[k]];
    if (n.kind == ExprKind::kInput && g.builder.type(operands[n.index]) == want) {
      g.input_grads[wanted[k]] = operands[n.index];
    } else {
      rest.push_back(wanted[k]);
      outputs.push_back(out);
    }
  }
  if (rest.empty()) return;
  grad.outputs = outputs;
  grad = without_dead_nodes(grad);
  std::vector<Value> used;
  for (const int index : drop_unused_inputs(grad)) used.push_back(operands[index]);
  // The iteration space must come out of the operands that are left; where it would not (the
  // gradient of a sum), the space is said.
  std::vector<Type> types;
  for (const Value v : used) types.push_back(g.builder.type(v));
  Attrs attrs;
  const std::vector<Axis> implied = broadcast("map", types);
  bool same = implied.size() == space.size();
  for (size_t i = 0; same && i < space.size(); ++i) same = implied[i].size == space[i].size;
  if (!same) {
    std::vector<int64_t> sizes;
    for (const Axis& axis : space) sizes.push_back(axis.size);
    attrs["shape"] = sizes;
  }
  attrs["body"] = print(grad);
  const std::vector<Value> made = g.builder.emit_all("map", used, std::move(attrs));
  for (size_t k = 0; k < rest.size(); ++k) {
    Value gradient = made[k];
    for (const int axis : stretched[rest[k]]) gradient = summed_over(g.builder, gradient, axis);
    g.input_grads[rest[k]] = gradient;
  }
}

// Gradients of slices that together are all of an object are the gradient of the object side by
// side: one concat, and no sum of padded ones. Nothing when these are no such parts.
std::optional<Value> joined_slices(Builder& builder, const std::vector<Value>& parts) {
  std::vector<Morphism>& morphisms = builder.scheme().morphisms;
  std::map<int64_t, size_t> pads;  // by start
  for (size_t i = morphisms.size(); i-- > 0 && pads.size() < parts.size();) {
    const Morphism& m = morphisms[i];
    if (std::count(parts.begin(), parts.end(), m.outputs[0]) == 0) continue;
    if (m.op != "pad" || !pads.emplace(call_of(builder.scheme(), m).integer("start"), i).second) {
      return std::nullopt;
    }
  }
  if (pads.size() != parts.size()) return std::nullopt;
  const OpCall first = call_of(builder.scheme(), morphisms[pads.begin()->second]);
  const int64_t axis = first.integer("axis", first.inputs[0].rank() - 1);
  int64_t end = 0;
  std::vector<Value> operands;
  for (const auto& [start, i] : pads) {
    const OpCall pad = call_of(builder.scheme(), morphisms[i]);
    if (start != end || pad.integer("axis", pad.inputs[0].rank() - 1) != axis) return std::nullopt;
    end += pad.inputs[0].dim(static_cast<int>(axis));
    operands.push_back(morphisms[i].inputs[0]);
  }
  if (end != first.integer("size")) return std::nullopt;
  std::vector<size_t> gone;
  for (const auto& [start, i] : pads) gone.push_back(i);
  std::sort(gone.rbegin(), gone.rend());
  for (const size_t i : gone) morphisms.erase(morphisms.begin() + static_cast<int64_t>(i));
  return builder.emit("concat", operands, axis ? Attrs{{"axis", axis}} : Attrs{});
}

}  // namespace

std::vector<std::optional<Value>> backpropagate(Builder& builder, int first, int last,
                                                std::span<const std::pair<Value, Value>> seeds,
                                                std::span<const Value> wanted) {
  // Needed: reachable from what is wanted.
  std::set<Value> needed(wanted.begin(), wanted.end());
  for (int i = first; i < last; ++i) {
    const Morphism& m = builder.scheme().morphisms[i];
    if (!op_named(m.op).differentiable) continue;
    bool leads = false;
    for (const Value in : m.inputs) leads = leads || needed.count(in);
    if (!leads) continue;
    for (const Value out : m.outputs) {
      if (is_float(builder.type(out).dtype)) needed.insert(out);
    }
  }

  std::map<Value, std::vector<Value>> parts;
  for (const auto& [of, gradient] : seeds) parts[of].push_back(gradient);
  const Source outer = builder.source();
  const auto total = [&](Value of) -> std::optional<Value> {
    const auto found = parts.find(of);
    if (found == parts.end()) return std::nullopt;
    std::vector<Value>& list = found->second;
    if (list.size() > 1) {
      builder.at(gradient_source(builder.scheme()[of].source), Phase::kBackward, Role::kGradient);
      if (const auto joined = joined_slices(builder, list)) list = {*joined};
    }
    while (list.size() > 1) {
      // By value: adding a morphism moves the objects.
      const Source all = gradient_source(builder.scheme()[of].source);
      Object& first_part = builder.scheme()[list[0]];
      if (first_part.source == all) first_part.source = with_facet(all, "part1");
      builder.at(all, Phase::kBackward, Role::kGradient);
      const Value sum = builder.emit("add", {list[0], list[1]});
      list.erase(list.begin());
      list[0] = sum;
    }
    return list[0];
  };

  for (int i = last; i-- > first;) {
    const Morphism m = builder.scheme().morphisms[i];
    const OpDef& def = op_named(m.op);
    if (!def.differentiable) continue;
    std::vector<bool> wants;
    bool any_wanted = false, any_given = false;
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Value in = m.inputs[k];
      const bool constant = std::count(def.constants.begin(), def.constants.end(), k) > 0;
      wants.push_back(needed.count(in) && is_float(builder.type(in).dtype) && !constant);
      any_wanted = any_wanted || wants.back();
    }
    std::vector<std::optional<Value>> given;
    if (any_wanted) {
      for (const Value out : m.outputs) {
        given.push_back(needed.count(out) ? total(out) : std::nullopt);
        any_given = any_given || given.back();
      }
    }
    if (!any_wanted || !any_given) continue;
    const OpCall call = call_of(builder.scheme(), m);
    builder.at(gradient_source(m.source), Phase::kBackward, Role::kGradient);
    const Value first_new = static_cast<Value>(builder.scheme().objects.size());
    GradCall g{.builder = builder,
               .call = call,
               .inputs = m.inputs,
               .outputs = m.outputs,
               .output_grads = given,
               .wants = wants,
               .input_grads = std::vector<std::optional<Value>>(m.inputs.size())};
    if (def.grad) {
      def.grad(g);
    } else {
      CHECK(def.body, "an op has a gradient or a body: " + m.op);
      body_grad(g);
    }
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      if (!wants[k] || !g.input_grads[k]) continue;
      const Value of = m.inputs[k], gradient = *g.input_grads[k];
      std::vector<Value>& list = parts[of];
      list.push_back(gradient);
      // A gradient is named after what it is the gradient of, by whoever makes it.
      if (gradient < first_new) continue;
      Source named = gradient_source(builder.scheme()[of].source);
      if (list.size() > 1) named = with_facet(named, "part" + std::to_string(list.size()));
      builder.scheme()[gradient].source = std::move(named);
    }
  }
  std::vector<std::optional<Value>> result;
  for (const Value want : wanted) result.push_back(total(want));
  builder.at(outer, builder.phase(), builder.role());
  return result;
}

Scheme expand_meanings(const Scheme& scheme, const std::function<bool(const Morphism&)>& expand) {
  Scheme result = scheme;
  result.morphisms.clear();
  std::map<Value, Value> renamed;
  for (const Morphism& original : scheme.morphisms) {
    Morphism m = original;
    for (std::vector<Value>* values : {&m.inputs, &m.after}) {
      for (Value& v : *values) {
        if (const auto found = renamed.find(v); found != renamed.end()) v = found->second;
      }
    }
    const OpDef& def = op_named(m.op);
    if (!def.meaning || !expand(original)) {
      result.morphisms.push_back(std::move(m));
      continue;
    }
    Builder builder(result);
    builder.at({m.source.path + ".meaning", m.source.facet}, m.phase, result[m.outputs[0]].role);
    const size_t first = result.morphisms.size();
    // What a recomputed result is made from is recomputed with it.
    const Residence residence = result[m.outputs[0]].attributes.residence;
    const bool again = residence == Residence::kRecomputed || residence == Residence::kApart;
    const std::vector<Value> made = def.meaning(builder, m.inputs, m.attrs);
    for (size_t i = first; i < result.morphisms.size(); ++i) {
      result.morphisms[i].epoch = m.epoch;
      result.morphisms[i].after = m.after;
      result.morphisms[i].section = m.section;
      for (const Value out : result.morphisms[i].outputs) {
        if (again) result[out].attributes.residence = Residence::kRecomputed;
      }
    }
    CHECK(made.size() == m.outputs.size(), "a meaning gives as many outputs as its op: " + m.op);
    for (size_t i = 0; i < made.size(); ++i) {
      renamed[m.outputs[i]] = made[i];
      result[made[i]].source = result[m.outputs[i]].source;
      result[made[i]].role = result[m.outputs[i]].role;
      result[made[i]].attributes = result[m.outputs[i]].attributes;
    }
  }
  const auto rename = [&](Value& v) {
    if (const auto found = renamed.find(v); found != renamed.end()) v = found->second;
  };
  for (Value& out : result.outputs) rename(out);
  for (Carry& carry : result.carries) rename(carry.out);
  for (Carry& carry : result.loop) rename(carry.in), rename(carry.out);
  return compact(std::move(result));
}

}  // namespace adjoint

#include "report/scheme_json.h"

#include <fmt/format.h>

#include <map>

#include "analysis/structure.h"
#include "base/text.h"
#include "body/algebra.h"
#include "edit/document_json.h"
#include "ops/op_def.h"
#include "report/stack_table.h"

namespace adjoint {

namespace {

using nlohmann::json;

// Expressions of bodies, each once; calls refer to them by a key.
class Bodies {
 public:
  // The key of a call's body; none where the op has no body.
  std::optional<std::string> key_of(const Scheme& scheme, const Morphism& m) {
    const OpDef& op = op_named(m.op);
    if (!op.body && !says_body(m)) return std::nullopt;
    const OpCall call = call_of(scheme, m);
    std::string known = m.op;
    for (const auto& [name, value] : m.attrs) known += "|" + name + "=" + to_string(value);
    // Sums over a row are divided by its length, so bodies differ by it.
    for (const Type& type : call.inputs)
      known += type.rank() ? fmt::format("|{}", type.dim(-1)) : "|";
    const auto found = keys_.find(known);
    if (found != keys_.end()) return found->second;
    std::vector<std::string> names;
    if (!says_body(m)) {
      for (const Param& p : op.params) {
        if (p.kind == Param::Kind::kTensor || p.kind == Param::Kind::kMaybeTensor) {
          names.emplace_back(p.name);
        }
      }
      // Parameters that the call brought along are called after what they are.
      for (size_t i = names.size(); i < m.inputs.size(); ++i) {
        const std::string& path = scheme[m.inputs[i]].source.path;
        names.push_back(path.substr(path.rfind('.') + 1));
      }
    }
    const std::string text = algebra(body_of(call), names);
    const auto known_text = by_text_.emplace(text, std::to_string(by_text_.size())).first;
    return keys_[known] = known_text->second;
  }

  json as_json() const {
    json out = json::object();
    for (const auto& [text, key] : by_text_) out[key] = text;
    return out;
  }

 private:
  std::map<std::string, std::string> keys_, by_text_;
};

std::string_view name(Residence residence) {
  switch (residence) {
    case Residence::kKept:
      return "kept";
    case Residence::kRecomputed:
      return "recomputed";
    case Residence::kApart:
      return "apart";
    case Residence::kUnsaid:
      break;
  }
  return "";
}

std::string_view name(Spread spread) {
  return spread == Spread::kSharded   ? "sharded"
         : spread == Spread::kPartial ? "partial"
                                      : "replicated";
}

void add_attributes(json& out, const Attributes& a) {
  if (a.residence != Residence::kUnsaid) out["residence"] = name(a.residence);
  if (a.tier == Tier::kHost) out["tier"] = "host";
  if (!a.precision.empty()) out["precision"] = a.precision;
  if (a.stage > 0) out["stage"] = a.stage;
  if (a.parts > 1) out["parts"] = a.parts;
  for (const Placement& p : a.placement) {
    json one = {{"over", p.mesh_axis}, {"spread", name(p.spread)}};
    if (p.spread == Spread::kSharded) one["axis"] = p.axis;
    if (p.whole > 0) one["whole"] = p.whole;
    if (p.home) one["home"] = true;
    out["placement"].push_back(std::move(one));
  }
}

json attrs_json(const Morphism& m) {
  json out = json::object();
  for (const auto& [key, value] : m.attrs) {
    if (key == "body") continue;  // said as an expression
    std::visit([&out, &key = key](const auto& v) { out[key] = v; }, value);
  }
  return out;
}

}  // namespace

json type_json(const Type& type) {
  json axes = json::array();
  for (const Axis& axis : type.axes) axes.push_back({{"name", axis.name}, {"size", axis.size}});
  return {{"dtype", name(type.dtype)}, {"axes", std::move(axes)}, {"bytes", type.bytes().count}};
}

json scheme_json(const Scheme& scheme, const WrittenIn* written) {
  const Chain chain = find_chain(scheme);
  Bodies bodies;
  const std::optional<TextLines> lines =
      written ? std::optional<TextLines>(written->text) : std::nullopt;
  json objects = json::array(), morphisms = json::array();
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    const Object& o = scheme.objects[v];
    json one = type_json(o.type);
    one["source"] = to_string(o.source);
    one["role"] = name(o.role);
    if (written) {
      const auto called = written->places.names.find(static_cast<Value>(v));
      if (called != written->places.names.end()) one["name"] = called->second;
    }
    if (!chain.block_of.empty() && chain.block_of[v] >= 0) one["block"] = chain.block_of[v];
    if (o.frozen) one["frozen"] = true;
    if (o.init) one["init"] = to_string(*o.init);
    add_attributes(one, o.attributes);
    objects.push_back(std::move(one));
  }
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    json one = {{"op", m.op},
                {"source", to_string(m.source)},
                {"inputs", m.inputs},
                {"outputs", m.outputs},
                {"attrs", attrs_json(m)},
                {"phase", name(m.phase)},
                {"flops", count_flops(call_of(scheme, m))}};
    if (!chain.block_of_morphism.empty() && chain.block_of_morphism[i] >= 0) {
      one["block"] = chain.block_of_morphism[i];
    }
    if (m.epoch > 0) one["epoch"] = m.epoch;
    if (m.section != Section::kBody) one["section"] = name(m.section);
    if (m.slot > 0) one["slot"] = m.slot;
    if (!m.after.empty()) one["after"] = m.after;
    if (const auto key = bodies.key_of(scheme, m)) one["body"] = *key;
    if (written && written->places.calls[i].from.line > 0) {
      if (json at = span_json(*lines, written->places.calls[i]); !at.is_null()) {
        one["at"] = std::move(at);
      }
    }
    morphisms.push_back(std::move(one));
  }
  json carries = json::array(), mesh = json::array();
  for (const Carry& c : scheme.carries) carries.push_back({c.in, c.out});
  for (const MeshAxis& axis : scheme.mesh) {
    mesh.push_back({{"name", axis.name}, {"size", axis.size}});
  }
  json out = {{"name", scheme.name},
              {"objects", std::move(objects)},
              {"morphisms", std::move(morphisms)},
              {"inputs", scheme.inputs},
              {"outputs", scheme.outputs},
              {"carries", std::move(carries)},
              {"chain", {{"states", chain.states}}},
              {"mesh", std::move(mesh)},
              {"parts", scheme.parts},
              {"bodies", bodies.as_json()}};
  if (!scheme.schedule.empty()) out["schedule"] = scheme.schedule;
  return out;
}

json applied_json(const std::vector<Applied>& applied, const Stack& stack,
                  const std::vector<Firing>& firings) {
  std::vector<std::map<std::string, std::vector<std::string>>> rules(applied.size());
  for (const Firing& f : firings) rules[f.functor][f.branch].push_back(f.source);
  json out = json::array();
  for (size_t i = 0; i < applied.size(); ++i) {
    const Applied& a = applied[i];
    if (a.idle) continue;
    json one = {{"functor", a.name},
                {"name", stack.functors[i].functor.name},
                {"law", name(a.law)},
                {"against", a.against},
                {"default", a.by_default},
                {"matches", a.matches},
                {"counts", a.counts},
                {"did", what_it_did(a)},
                {"calls_added", a.calls_added},
                {"rules", json::array()}};
    for (auto& [branch, sources] : rules[i]) {
      one["rules"].push_back({{"branch", branch}, {"sources", sources}});
    }
    if (!a.idle_rules.empty()) one["idle_rules"] = a.idle_rules;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace adjoint

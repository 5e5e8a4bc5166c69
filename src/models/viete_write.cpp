#include <map>

#include "base/error.h"
#include "base/text.h"
#include "models/reads.h"
#include "models/viete.h"

namespace adjoint {

namespace {

using nlohmann::json;

json settings_json(const std::vector<Setting>& settings) {
  json out = json::array();
  for (const Setting& s : settings) out.push_back({{"name", s.name}, {"value", print(s.value)}});
  return out;
}

class BoxDrawer {
 public:
  BoxDrawer(const Document& document, const Box& box, json& edges)
      : document_(document), box_(box), edges_(edges), uses_(names_of(document, box)) {
    for (const NameUse& use : uses_) {
      if (use.kind == NameUse::Kind::kValue) reads_[use.term] = use.value;
    }
  }

  json draw() {
    for (size_t i = 0; i < box_.formals.size(); ++i) {
      const Formal& f = box_.formals[i];
      json& v = vertex(value_id({-1, i}), "variable", f.name);
      v["formal"] = i;
      v["axes"] = json::array();
      for (const Term& axis : f.axes) v["axes"].push_back(print(axis));
      if (f.dtype) v["dtype"] = name(*f.dtype);
    }
    for (size_t s = 0; s < box_.body.size(); ++s) statement(s);
    json results = json::array();
    const int last = static_cast<int>(box_.body.size()) - 1;
    for (size_t i = 0; i < box_.body.back().names.size(); ++i) {
      results.push_back(value_id({last, i}));
    }
    return {{"id", box_.name},
            {"name", box_.name},
            {"vertices", std::move(vertices_)},
            {"results", results}};
  }

 private:
  json& vertex(const std::string& id, std::string_view type, std::string_view name) {
    const std::string_view mode = type == "tuple" ? "product" : type == "choice" ? "sum" : "none";
    vertices_.push_back({{"id", id}, {"type", type}, {"name", name}, {"decomposableMode", mode}});
    return vertices_.back();
  }

  std::string value_id(ValueId value) const {
    const std::string made = value.statement < 0 ? "head" : std::to_string(value.statement);
    return box_.name + "/" + made + "/" + name_of(box_, value);
  }

  bool reads(const Term& term) const {
    if (reads_.count(&term)) return true;
    for (const Term& t : term.args) {
      if (reads(t)) return true;
    }
    for (const Term& t : term.repeat) {
      if (reads(t)) return true;
    }
    for (const auto& [word, t] : term.keywords) {
      if (reads(t)) return true;
    }
    return false;
  }

  void statement(size_t number) {
    const Statement& s = box_.body[number];
    const std::string place = box_.name + "/" + std::to_string(number);
    const auto result = [&](size_t i, std::string_view type) {
      json& v = vertex(value_id({static_cast<int>(number), i}), type, s.names[i]);
      v["statement"] = number;
      v["result"] = i;
    };
    if (s.names.size() == s.values.size()) {
      for (size_t i = 0; i < s.values.size(); ++i) {
        // The operands come first, so that vertices stand in the order in which they are made.
        const Arrow arrow = drawn(s.values[i], place + "." + std::to_string(i));
        result(i, s.values[i].kind == Term::Kind::kWhen ? "choice" : "variable");
        edge(arrow, value_id({static_cast<int>(number), i}));
      }
      return;
    }
    // Fewer values than names, or more: the product of all values is the product of the names.
    Arrow whole;
    if (s.values.size() == 1) {
      whole = drawn(s.values[0], place + ".0");
    } else {
      std::vector<std::string> parts, holes;
      for (size_t i = 0; i < s.values.size(); ++i) {
        parts.push_back(operand(s.values[i], place + "." + std::to_string(i)));
        holes.emplace_back(kDrawnOperand);
      }
      whole = {join(holes, ", "), tuple(parts, place)};
    }
    const std::string id = place + "/results";
    json items = json::array();
    for (size_t i = 0; i < s.names.size(); ++i) items.push_back(id + "." + std::to_string(i));
    vertex(id, "tuple", "")["items"] = items;
    edge(whole, id);
    for (size_t i = 0; i < s.names.size(); ++i) {
      json& item = vertex(id + "." + std::to_string(i), "subitem", s.names[i]);
      item["parent"] = id;
      item["index"] = i;
      result(i, "variable");
      link(id + "." + std::to_string(i), value_id({static_cast<int>(number), i}));
    }
  }

  // An arrow that has no target yet.
  struct Arrow {
    std::string label, source;
    std::string box = {};
  };

  // The label of a term: what reads values is an operand, a vertex of its own.
  Arrow drawn(const Term& term, const std::string& place) {
    if (reads_.count(&term)) return {std::string(kDrawnOperand), value_id(reads_.at(&term))};
    Term label = term;
    std::vector<std::string> operands;
    const auto take = [&](const Term& from, Term& into) {
      if (!reads(from)) {
        check(from);
        return;
      }
      operands.push_back(operand(from, place + "." + std::to_string(operands.size())));
      into = Term{.kind = Term::Kind::kName, .word = std::string(kDrawnOperand)};
    };
    for (size_t i = 0; i < term.args.size(); ++i) take(term.args[i], label.args[i]);
    for (size_t i = 0; i < term.keywords.size(); ++i) {
      take(term.keywords[i].second, label.keywords[i].second);
    }
    for (size_t i = 0; i < term.repeat.size(); ++i) take(term.repeat[i], label.repeat[i]);
    if (term.args.empty() && term.keywords.empty()) check(term);
    Arrow arrow{print(label), operands.size() == 1 ? operands[0] : tuple(operands, place)};
    if (term.kind == Term::Kind::kCall && document_.box(term.word)) arrow.box = term.word;
    return arrow;
  }

  // A number called like the hole would be read as one.
  void check(const Term& term) const {
    if (mentions(term, kDrawnOperand)) {
      fail("box '", box_.name, "' reads '_', which stands for operands in a diagram; rename it");
    }
  }

  // The vertex of a term; one without a name unless the term is a name.
  std::string operand(const Term& term, const std::string& place) {
    if (const auto read = reads_.find(&term); read != reads_.end()) return value_id(read->second);
    const Arrow arrow = drawn(term, place);
    vertex(place, term.kind == Term::Kind::kWhen ? "choice" : "variable", "");
    edge(arrow, place);
    return place;
  }

  // Operands side by side; none of them is the unit.
  std::string tuple(const std::vector<std::string>& parts, const std::string& place) {
    const std::string id = place + "/operands";
    json items = json::array();
    for (size_t i = 0; i < parts.size(); ++i) items.push_back(id + "." + std::to_string(i));
    vertex(id, "tuple", "")["items"] = items;
    for (size_t i = 0; i < parts.size(); ++i) {
      json& item = vertex(id + "." + std::to_string(i), "subitem", "");
      item["parent"] = id;
      item["index"] = i;
      link(parts[i], id + "." + std::to_string(i));
    }
    return id;
  }

  void edge(const Arrow& arrow, const std::string& target) {
    json e = {{"id", "edge:" + target},   {"type", "common"},   {"modelId", box_.name},
              {"sourceId", arrow.source}, {"targetId", target}, {"label", arrow.label}};
    if (!arrow.box.empty()) e["decompositionId"] = arrow.box;
    edges_.push_back(std::move(e));
  }

  void link(const std::string& source, const std::string& target) {
    edges_.push_back({{"id", "link:" + target},
                      {"type", "linkToElement"},
                      {"modelId", box_.name},
                      {"sourceId", source},
                      {"targetId", target}});
  }

  const Document& document_;
  const Box& box_;
  json& edges_;
  json vertices_ = json::array();
  std::vector<NameUse> uses_;
  std::map<const Term*, ValueId> reads_;
};

// A scheme as it is: every object a vertex, every call an edge.
json flat_model(const Scheme& scheme, const std::string& id, json& edges) {
  json vertices = json::array();
  const auto vertex_id = [&](Value v) { return id + "/" + std::to_string(v); };
  const auto tuple = [&](const std::string& tuple_id, const std::vector<Value>& parts, bool out) {
    json items = json::array();
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string item = tuple_id + "." + std::to_string(i);
      items.push_back(item);
      vertices.push_back({{"id", item},
                          {"type", "subitem"},
                          {"name", ""},
                          {"decomposableMode", "none"},
                          {"parent", tuple_id},
                          {"index", i}});
      edges.push_back({{"id", "link:" + item},
                       {"type", "linkToElement"},
                       {"modelId", id},
                       {"sourceId", out ? item : vertex_id(parts[i])},
                       {"targetId", out ? vertex_id(parts[i]) : item}});
    }
    vertices.push_back({{"id", tuple_id},
                        {"type", "tuple"},
                        {"name", ""},
                        {"decomposableMode", "product"},
                        {"items", items}});
    return tuple_id;
  };
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    const Object& o = scheme.objects[v];
    vertices.push_back({{"id", vertex_id(static_cast<Value>(v))},
                        {"type", "variable"},
                        {"name", to_string(o.source)},
                        {"label", to_string(o.type)},
                        {"role", name(o.role)},
                        {"decomposableMode", "none"}});
  }
  for (size_t m = 0; m < scheme.morphisms.size(); ++m) {
    const Morphism& call = scheme.morphisms[m];
    const std::string place = id + "/call" + std::to_string(m);
    const auto side = [&](const std::vector<Value>& values, const char* which, bool out) {
      return values.size() == 1 ? vertex_id(values[0]) : tuple(place + which, values, out);
    };
    edges.push_back({{"id", place},
                     {"type", "common"},
                     {"modelId", id},
                     {"sourceId", side(call.inputs, "/operands", false)},
                     {"targetId", side(call.outputs, "/results", true)},
                     {"label", call.op},
                     {"name", to_string(call.source)}});
  }
  return {{"id", id}, {"name", id}, {"flat", true}, {"vertices", vertices}};
}

}  // namespace

nlohmann::json viete_diagram(const Document& document, std::string_view name) {
  json models = json::array(), edges = json::array(), presets = json::array(),
       formats = json::array();
  for (const Box& box : document.boxes) models.push_back(BoxDrawer(document, box, edges).draw());
  for (const Preset& p : document.presets) {
    presets.push_back({{"name", p.name}, {"settings", settings_json(p.settings)}});
  }
  for (const Format& f : document.formats) formats.push_back(print(f));
  return {{"id", name},
          {"programName", name},
          {"models", models},
          {"edges", edges},
          {"relations", json::array()},
          {"mappings", json::array()},
          {"settings",
           {{"axes", settings_json(document.axes)},
            {"numbers", settings_json(document.numbers)},
            {"presets", presets},
            {"formats", formats}}}};
}

void add_viete_mapping(nlohmann::json& diagram, const Scheme& source, const Scheme& result,
                       std::string_view functor, bool exact) {
  const std::string number = std::to_string(diagram["mappings"].size());
  const std::string before = "source" + number, after = "result" + number;
  const std::string whole = "mapping" + number;
  json& edges = diagram["edges"];
  diagram["models"].push_back(flat_model(source, before, edges));
  diagram["models"].push_back(flat_model(result, after, edges));
  std::multimap<std::string, Value> made;
  for (size_t v = 0; v < result.objects.size(); ++v) {
    made.emplace(result.objects[v].source.path, static_cast<Value>(v));
  }
  edges.push_back({{"id", whole},
                   {"type", "mapping"},
                   {"sourceId", before},
                   {"targetId", after},
                   {"label", functor}});
  json links = json::array();
  for (size_t v = 0; v < source.objects.size(); ++v) {
    const auto [first, last] = made.equal_range(source.objects[v].source.path);
    for (auto each = first; each != last; ++each) {
      const std::string id = whole + "." + std::to_string(links.size());
      links.push_back(id);
      edges.push_back({{"id", id},
                       {"type", "element-mapping"},
                       {"sourceId", before + "/" + std::to_string(v)},
                       {"targetId", after + "/" + std::to_string(each->second)}});
    }
  }
  diagram["mappings"].push_back({{"id", "functor" + number},
                                 {"mappingEdgeId", whole},
                                 {"sourceId", before},
                                 {"targetId", after},
                                 {"mappingEdges", links}});
  diagram["relations"].push_back({{"id", "relation" + number},
                                  {"sourceId", before},
                                  {"targetId", after},
                                  {"direction", exact ? "<=>" : "=>"}});
}

}  // namespace adjoint

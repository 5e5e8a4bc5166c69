// From the drawing of a model to a box: vertices with names are what statements name, vertices
// without one are written where they are read. A diagram that we wrote numbers its statements; one
// that somebody drew is put into an order in which everything is made before it is read.
#include "models/viete_box.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "models/viete.h"

namespace adjoint {

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; });
}

namespace {

using nlohmann::json;

constexpr int kDeepestTerm = 200;  // as terms themselves

struct Vertex {
  std::string id, type, name;
  std::vector<std::string> items = {};  // of a tuple
  std::optional<size_t> formal = {}, statement = {};
  std::optional<size_t> result = {};  // its place among the names of its statement, if it says one
  size_t item = 0;                    // of one of several results: its place in their tuple
  Formal head = {};                   // of a formal
  // What makes it: an edge, or for one of several results the edge that makes their tuple.
  int maker = -1;
  int reads = 0;
};

struct Edge {
  std::string id, source, target, label;
  std::string box;  // into which it is decomposed; "": none is said
};

// One box of a diagram.
class BoxReader {
 public:
  BoxReader(const json& model, std::string_view file, const std::vector<const json*>& edges,
            const BoxNames& boxes)
      : file_(file), model_(model, join_parts(file, ": a model")), boxes_(boxes) {
    box_.name = model_.name("name");
    for (const json& v : model_.list("vertices")) add_vertex(v);
    for (const json* e : edges) add_edge(*e);
  }

  Box read() {
    find_makers();
    find_formals();
    name_values();
    group();
    order();
    choose_versions();
    for (const Unit& unit : units_) write(unit);
    check_all_is_used();
    if (!final_.empty()) {
      Statement last;
      for (const std::string& id : final_) {
        last.names.push_back(at(id).name);
        last.values.push_back(name_term(at(id).name));
      }
      box_.body.push_back(std::move(last));
      places_.push_back(final_[0]);
    }
    if (box_.body.empty()) refuse("draws no arrow");
    return std::move(box_);
  }

  // For each statement the vertex that it makes.
  const std::vector<std::string>& places() const { return places_; }

 private:
  // A statement: the vertices that it names and the edges that make them.
  struct Unit {
    std::vector<std::string> names;
    std::vector<int> edges;
    std::optional<size_t> number = {};
  };

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(file_, ": model '", box_.name, "' ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void refuse_vertex(const std::string& id, const Parts&... parts) const {
    fail(file_, ": vertex '", id, "' of model '", box_.name, "' ", parts...);
  }

  static Term name_term(const std::string& name) {
    return {.kind = Term::Kind::kName, .word = name};
  }

  void add_vertex(const json& thing) {
    const std::string id = DrawnFields(thing, join_parts(file_, ": a vertex")).line("id");
    const DrawnFields fields(thing, join_parts(file_, ": vertex '", id, "'"));
    Vertex v{.id = id, .type = fields.text("type"), .name = fields.text("name", "")};
    const auto types = {"variable", "tuple", "choice", "subitem"};
    if (std::find(types.begin(), types.end(), v.type) == types.end()) {
      fields.refuse("has the type '", v.type, "'; there are variable, tuple, choice and subitem");
    }
    if (!v.name.empty() && v.type != "subitem" && v.type != "tuple") fields.name("name");
    for (const json& item : fields.list("items")) {
      if (!item.is_string() || v.items.size() == kLongestDrawnList) {
        fields.refuse("has an item that is no vertex");
      }
      v.items.push_back(item.get<std::string>());
    }
    if (fields.has("statement")) v.statement = fields.number("statement");
    if (fields.has("result")) v.result = fields.number("result");
    if (fields.has("formal")) {
      v.formal = fields.number("formal");
      v.head.name = fields.name("name");
      if (fields.has("dtype")) {
        v.head.dtype = dtype_named(fields.text("dtype"));
        if (!v.head.dtype) fields.refuse("has no dtype '", fields.text("dtype"), "'");
      }
      for (const json& axis : fields.list("axes")) {
        if (!axis.is_string()) fields.refuse("has an axis that is no text");
        v.head.axes.push_back(parse_term(axis.get<std::string>(), fields.what()));
      }
    }
    if (!vertices_.emplace(id, v).second) fields.refuse("is there twice");
    ids_.push_back(id);
  }

  void add_edge(const json& thing) {
    const std::string id = DrawnFields(thing, join_parts(file_, ": an edge")).line("id");
    const DrawnFields fields(thing, join_parts(file_, ": edge '", id, "'"));
    Edge edge{id, fields.text("sourceId"), fields.text("targetId"), fields.text("label", ""), ""};
    if (!vertices_.count(edge.target)) return;  // another model's
    if (!vertices_.count(edge.source)) {
      fields.refuse("begins at '", edge.source, "', which is no vertex of model '", box_.name, "'");
    }
    if (fields.has("decompositionId")) {
      const auto box = boxes_.find(fields.text("decompositionId"));
      if (box == boxes_.end()) {
        fields.refuse("is decomposed into '", fields.text("decompositionId"),
                      "', which is no model of the diagram");
      }
      edge.box = box->second;
    }
    if (fields.text("type") == "linkToElement") {
      links_.push_back(edge);
    } else if (fields.text("type") == "common") {
      edges_.push_back(edge);
    }
  }

  Vertex& at(const std::string& id) {
    const auto found = vertices_.find(id);
    if (found == vertices_.end()) refuse("has no vertex '", id, "'");
    return found->second;
  }

  void find_makers() {
    for (size_t e = 0; e < edges_.size(); ++e) {
      Vertex& target = at(edges_[e].target);
      if (target.type == "subitem") refuse_vertex(target.id, "is an item, and no arrow ends there");
      if (target.maker >= 0) refuse_vertex(target.id, "is made by two edges");
      target.maker = static_cast<int>(e);
    }
    for (const Edge& link : links_) {
      Vertex &from = at(link.source), &to = at(link.target);
      if (to.type == "subitem") {
        if (!filled_.emplace(to.id, from.id).second) refuse_vertex(to.id, "is linked twice");
      } else if (from.type == "subitem") {
        if (!given_.emplace(from.id, to.id).second) refuse_vertex(from.id, "is linked twice");
      } else {
        fail(file_, ": edge '", link.id, "' links no item of a tuple");
      }
    }
    // Results of a tuple have the tuple's maker.
    for (const std::string& id : ids_) {
      const Vertex& tuple = at(id);
      if (tuple.type != "tuple" || tuple.maker < 0) continue;
      for (size_t i = 0; i < tuple.items.size(); ++i) {
        const std::string& item = tuple.items[i];
        const auto given = given_.find(item);
        if (given == given_.end()) refuse_vertex(item, "is a result that is linked to no vertex");
        Vertex& v = at(given->second);
        if (!is_value(v)) {
          refuse_vertex(item, "is linked to '", v.id, "', which is no value");
        }
        if (v.maker >= 0) refuse_vertex(v.id, "is made by two edges");
        v.maker = tuple.maker;
        v.item = i;
      }
    }
    operands_.resize(edges_.size());
    for (size_t e = 0; e < edges_.size(); ++e) {
      operands_[e] = values_of(edges_[e].source);
      for (const std::string& id : operands_[e]) ++at(id).reads;
    }
  }

  // The values at the beginning of an arrow.
  std::vector<std::string> values_of(const std::string& source) {
    const Vertex& v = at(source);
    if (v.type == "subitem") return {filling(v.id)};
    if (v.type != "tuple") return {v.id};
    std::vector<std::string> values;
    for (const std::string& item : v.items) values.push_back(filling(item));
    return values;
  }

  const std::string& filling(const std::string& item) {
    const auto found = filled_.find(item);
    if (found == filled_.end()) refuse_vertex(item, "is an operand that is linked to no vertex");
    const Vertex& value = at(found->second);
    if (value.type == "tuple" || value.type == "subitem") {
      refuse_vertex(item, "is linked to '", value.id, "', which is no value");
    }
    return found->second;
  }

  bool is_value(const Vertex& v) const { return v.type == "variable" || v.type == "choice"; }

  void find_formals() {
    std::map<size_t, const Vertex*> formals;
    for (const std::string& id : ids_) {
      const Vertex& v = at(id);
      if (!is_value(v) || !v.formal) continue;
      if (v.maker >= 0) refuse_vertex(id, "is taken by the model, so no edge makes it");
      if (!formals.emplace(*v.formal, &v).second) refuse_vertex(id, "has the place of another");
    }
    if (formals.empty()) refuse("takes nothing: a vertex with 'formal' is missing");
    for (const auto& [place, v] : formals) box_.formals.push_back(v->head);
  }

  // What is read once and has no name is written where it is read.
  void name_values() {
    for (const std::string& id : ids_) {
      if (!at(id).name.empty()) taken_.insert(at(id).name);
    }
    for (const Edge& e : edges_) {
      // A word of a label, such as `causal`, must not become a value's name.
      std::string word;
      for (const char c : e.label + " ") {
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
          word += c;
        } else if (!word.empty()) {
          taken_.insert(word);
          word.clear();
        }
      }
    }
    for (const std::string& id : ids_) {
      Vertex& v = at(id);
      if (!is_value(v) || v.formal) continue;
      if (v.maker < 0) refuse_vertex(id, "is made by no edge, and is no 'formal' of the model");
      const bool whole = edges_[static_cast<size_t>(v.maker)].target == id;
      if (v.name.empty() && (v.reads != 1 || !whole)) v.name = fresh("value");
    }
  }

  std::string fresh(const std::string& name) {
    std::string found = name;
    for (int i = 2; taken_.count(found); ++i) found = name + "_" + std::to_string(i);
    taken_.insert(found);
    return found;
  }

  void group() {
    std::map<size_t, size_t> by_number;
    std::map<size_t, size_t> by_maker;
    std::map<int, size_t> unit_of;  // of each edge
    for (const std::string& id : ids_) {
      const Vertex& v = at(id);
      if (!is_value(v) || v.formal || v.name.empty()) continue;
      const auto [place, fresh] =
          v.statement ? by_number.emplace(*v.statement, units_.size())
                      : by_maker.emplace(static_cast<size_t>(v.maker), units_.size());
      if (fresh) units_.push_back({.names = {}, .edges = {}, .number = v.statement});
      Unit& unit = units_[place->second];
      if (unit_of.emplace(v.maker, place->second).first->second != place->second) {
        refuse_vertex(id, "is a result of edge '", edges_[static_cast<size_t>(v.maker)].id,
                      "', whose other results are in another statement");
      }
      unit.names.push_back(id);
      if (std::find(unit.edges.begin(), unit.edges.end(), v.maker) == unit.edges.end()) {
        unit.edges.push_back(v.maker);
      }
    }
    for (Unit& unit : units_) sort_results(unit);
  }

  // Names stand in the order in which their edges give them, whatever the order of the vertices.
  void sort_results(Unit& unit) {
    const bool all_say = std::all_of(unit.names.begin(), unit.names.end(),
                                     [&](const auto& id) { return at(id).result.has_value(); });
    const auto edge_of = [&](const Vertex& v) {
      return std::find(unit.edges.begin(), unit.edges.end(), v.maker) - unit.edges.begin();
    };
    const auto place = [&](const std::string& id) {
      const Vertex& v = at(id);
      return all_say ? std::pair<std::ptrdiff_t, size_t>(0, *v.result)
                     : std::pair<std::ptrdiff_t, size_t>(edge_of(v), v.result.value_or(v.item));
    };
    std::stable_sort(unit.names.begin(), unit.names.end(),
                     [&](const auto& a, const auto& b) { return place(a) < place(b); });
    for (size_t i = 1; i < unit.names.size(); ++i) {
      if (place(unit.names[i]) != place(unit.names[i - 1])) continue;
      refuse_vertex(unit.names[i], "has the place of another result of its statement");
    }
    std::vector<int> sorted;
    for (const std::string& id : unit.names) {
      const int maker = at(id).maker;
      if (std::find(sorted.begin(), sorted.end(), maker) == sorted.end()) sorted.push_back(maker);
    }
    unit.edges = sorted;
  }

  // The named values that an edge reads, directly or through values without a name.
  void named_reads(int edge, std::vector<std::string>& found, int depth) {
    if (depth > kDeepestTerm) {
      fail(file_, ": edge '", edges_[static_cast<size_t>(edge)].id, "' ends more than ",
           kDeepestTerm, " calls without a name between them; name some vertices");
    }
    for (const std::string& id : operands_[static_cast<size_t>(edge)]) {
      const Vertex& v = at(id);
      if (!v.name.empty()) {
        found.push_back(id);
      } else {
        named_reads(v.maker, found, depth + 1);
      }
    }
  }

  void order() {
    std::map<std::string, size_t> unit_of;
    for (size_t u = 0; u < units_.size(); ++u) {
      for (const std::string& id : units_[u].names) unit_of[id] = u;
    }
    reads_.resize(units_.size());
    for (size_t u = 0; u < units_.size(); ++u) {
      for (const int e : units_[u].edges) named_reads(e, reads_[u], 0);
    }
    std::vector<size_t> sequence;
    const bool numbered = std::all_of(units_.begin(), units_.end(),
                                      [](const Unit& unit) { return unit.number.has_value(); });
    if (numbered) {
      for (size_t u = 0; u < units_.size(); ++u) sequence.push_back(u);
      std::stable_sort(sequence.begin(), sequence.end(),
                       [&](size_t a, size_t b) { return units_[a].number < units_[b].number; });
    } else {
      std::vector<int> waits(units_.size(), 0);
      std::vector<std::vector<size_t>> readers(units_.size());
      for (size_t u = 0; u < units_.size(); ++u) {
        for (const std::string& id : reads_[u]) {
          const auto made = unit_of.find(id);
          if (made == unit_of.end()) continue;
          ++waits[u];
          readers[made->second].push_back(u);
        }
      }
      std::set<size_t> ready;
      for (size_t u = 0; u < units_.size(); ++u) {
        if (waits[u] == 0) ready.insert(u);
      }
      while (!ready.empty()) {
        const size_t u = *ready.begin();
        ready.erase(ready.begin());
        sequence.push_back(u);
        for (const size_t reader : readers[u]) {
          if (--waits[reader] == 0) ready.insert(reader);
        }
      }
      for (size_t u = 0; u < units_.size(); ++u) {
        if (waits[u] > 0) refuse_vertex(units_[u].names[0], "is made of itself");
      }
    }
    std::vector<Unit> units;
    std::vector<std::vector<std::string>> reads;
    for (const size_t u : sequence) {
      units.push_back(units_[u]);
      reads.push_back(reads_[u]);
    }
    units_ = std::move(units);
    reads_ = std::move(reads);
    find_results(numbered);
  }

  // What the box gives; the last statement must name it.
  void find_results(bool numbered) {
    if (units_.empty()) return;
    std::vector<std::string> results;
    for (const json& id : model_.list("results")) {
      if (!id.is_string()) refuse("has a result that is no vertex");
      const Vertex& v = at(id.get<std::string>());
      if (!is_value(v) || v.name.empty()) refuse_vertex(v.id, "is a result without a name");
      results.push_back(v.id);
    }
    if (results.empty() && !numbered) {
      for (const Unit& unit : units_) {
        for (const std::string& id : unit.names) {
          if (at(id).reads == 0) results.push_back(id);
        }
      }
      if (results.size() != 1) {
        refuse("has ", results.size(),
               " vertices that nothing reads; say in 'results' which it "
               "gives");
      }
    }
    if (!results.empty() && results != units_.back().names) final_ = results;
  }

  // A name that is bound again before its value is read is another name.
  void choose_versions() {
    bool renamed = true;
    for (int round = 0; renamed && round < 2; ++round) {
      renamed = false;
      std::map<std::string, std::string> bound;  // name -> vertex
      for (const std::string& id : ids_) {
        if (at(id).formal) bound[at(id).name] = id;
      }
      const auto read = [&](const std::string& id, const std::string& reader) {
        Vertex& v = at(id);
        const auto now = bound.find(v.name);
        if (now != bound.end() && now->second == id) return;
        if (!made_.count(id)) {
          refuse_vertex(reader, "reads '", id, "', which is made behind it");
        }
        if (v.formal) box_.formals[place_of(v)].name = fresh(v.name);
        v.name = v.formal ? box_.formals[place_of(v)].name : fresh(v.name);
        bound[v.name] = id;
        renamed = true;
      };
      made_.clear();
      for (const std::string& id : ids_) {
        if (at(id).formal) made_.insert(id);
      }
      for (size_t u = 0; u < units_.size(); ++u) {
        for (const std::string& id : reads_[u]) read(id, units_[u].names[0]);
        for (const std::string& id : units_[u].names) {
          bound[at(id).name] = id;
          made_.insert(id);
        }
      }
      for (const std::string& id : final_) read(id, id);
    }
  }

  size_t place_of(const Vertex& formal) {
    size_t place = 0;
    for (const auto& [id, v] : vertices_) place += v.formal && *v.formal < *formal.formal;
    return place;
  }

  void write(const Unit& unit) {
    Statement s;
    for (const std::string& id : unit.names) s.names.push_back(at(id).name);
    for (const int e : unit.edges) {
      if (is_product(edges_[static_cast<size_t>(e)].label)) {
        used_.insert(e);
        for (const std::string& id : operands_[static_cast<size_t>(e)]) {
          s.values.push_back(value(id, 0));
        }
      } else {
        s.values.push_back(term(e, 0));
      }
    }
    box_.body.push_back(std::move(s));
    places_.push_back(unit.names[0]);
  }

  // Vertices without names that are made of each other are read, and yet by no statement.
  void check_all_is_used() {
    for (size_t e = 0; e < edges_.size(); ++e) {
      if (used_.count(static_cast<int>(e))) continue;
      fail(file_, ": edge '", edges_[e].id, "' of model '", box_.name,
           "' is part of no statement: nothing with a name is made of what it makes");
    }
  }

  // "_, _": operands side by side and nothing done to them.
  static bool is_product(std::string_view label) {
    return label.find(',') != label.npos && label.find_first_not_of("_, ") == label.npos &&
           label[0] == '_';
  }

  Term value(const std::string& id, int depth) {
    const Vertex& v = at(id);
    return v.name.empty() ? term(v.maker, depth + 1) : name_term(v.name);
  }

  Term term(int number, int depth) {
    used_.insert(number);
    const Edge& edge = edges_[static_cast<size_t>(number)];
    const std::vector<std::string>& operands = operands_[static_cast<size_t>(number)];
    Term label = parse_term(edge.label, join_parts(file_, ": edge '", edge.id, "'"));
    if (!edge.box.empty() && (label.kind != Term::Kind::kCall || label.word != edge.box)) {
      fail(file_, ": edge '", edge.id, "' is decomposed into model '", edge.box,
           "', which its label '", edge.label, "' does not call");
    }
    size_t next = 0;
    fill(label, edge, operands, next, depth);
    if (next != operands.size()) {
      fail(file_, ": edge '", edge.id, "' has ", operands.size(), " operands, and its label '",
           edge.label, "' has ", next, " places '_' for them");
    }
    return label;
  }

  // `depth` counts what is inside each other in the statement, whichever labels it comes from.
  void fill(Term& label, const Edge& edge, const std::vector<std::string>& operands, size_t& next,
            int depth) {
    if (depth > kDeepestTerm) {
      fail(file_, ": edge '", edge.id, "' is more than ", kDeepestTerm,
           " terms deep in one statement; name some vertices");
    }
    if (label.kind == Term::Kind::kName && label.word == kDrawnOperand) {
      if (next < operands.size()) label = value(operands[next], depth);
      ++next;
      return;
    }
    for (Term& t : label.args) fill(t, edge, operands, next, depth + 1);
    for (auto& [word, t] : label.keywords) fill(t, edge, operands, next, depth + 1);
    for (Term& t : label.repeat) fill(t, edge, operands, next, depth + 1);
  }

  std::string file_;
  DrawnFields model_;
  const BoxNames& boxes_;
  Box box_;
  std::map<std::string, Vertex> vertices_;
  std::vector<std::string> ids_;  // in the order of the diagram
  std::vector<Edge> edges_, links_;
  std::map<std::string, std::string> filled_, given_;  // items: what fills them, what they give
  std::vector<std::vector<std::string>> operands_;     // of each edge
  std::set<std::string> taken_, made_;
  std::set<int> used_;  // edges that a statement has
  std::vector<Unit> units_;
  std::vector<std::vector<std::string>> reads_;  // of each unit
  std::vector<std::string> final_, places_;
};

}  // namespace

DrawnBox read_viete_box(const nlohmann::json& model, std::string_view file,
                        const std::vector<const nlohmann::json*>& edges, const BoxNames& boxes) {
  BoxReader reader(model, file, edges, boxes);
  Box box = reader.read();
  return {std::move(box), reader.places()};
}

}  // namespace adjoint

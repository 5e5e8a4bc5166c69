// Diagrams of models and back: what is drawn is the model.
#include "models/viete.h"

#include "base/error_text.h"
#include "base/file.h"
#include "base/json.h"
#include "base/temp_folder.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

using Json = nlohmann::json;

Json vertex(const std::string& id, const std::string& type, const std::string& name = "") {
  return {{"id", id}, {"type", type}, {"name", name}};
}
Json formal(const std::string& name, size_t place, const Json& axes) {
  return {{"id", name},      {"type", "variable"}, {"name", name},
          {"formal", place}, {"axes", axes},       {"dtype", "f32"}};
}
Json arrow(const std::string& from, const std::string& to, const std::string& label) {
  return {{"id", from + ">" + to},
          {"type", "common"},
          {"sourceId", from},
          {"targetId", to},
          {"label", label}};
}
Json link(const std::string& from, const std::string& to) {
  return {{"id", from + "~" + to}, {"type", "linkToElement"}, {"sourceId", from}, {"targetId", to}};
}

// y = tanh(x) + x, drawn by hand: no statement has a number, nothing is in order.
Json drawn_by_hand() {
  Json sum = vertex("pair", "tuple");
  sum["items"] = {"first", "second"};
  return {{"id", "1"},
          {"programName", "hand"},
          {"models",
           {{{"id", "m"},
             {"name", "model"},
             {"vertices",
              {vertex("y", "variable", "y"), sum, vertex("first", "subitem"),
               vertex("second", "subitem"), vertex("t", "variable"),
               formal("x", 0, {"batch", "hidden"})}}}}},
          {"edges",
           {arrow("pair", "y", "_ + _"), link("t", "first"), link("x", "second"),
            arrow("x", "t", "tanh(_)")}},
          {"relations", Json::array()},
          {"mappings", Json::array()},
          {"settings", {{"axes", {{{"name", "hidden"}, {"value", "4"}}}}}}};
}

TEST(Viete, EveryModelIsDrawnAndReadAsItWas) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const LibraryText& text : library_texts()) texts.emplace_back(text.name, text.text);
  for (const char* name : {"hybrid", "mixtral", "moe", "odd", "qwen"}) {
    const std::string file = std::string(SOURCE_DIR) + "/tests/models/" + name + ".scheme";
    texts.emplace_back(name, find_model(file).text);
  }
  for (const auto& [name, text] : texts) {
    SCOPED_TRACE(name);
    const Document document = parse_document(text, name);
    const Json diagram = viete_diagram(document, name);
    // As a file has it.
    const Json stored = parse_json(diagram.dump(), name);
    EXPECT_EQ(read_viete(stored, name), document);
    // With places for complaints it is the same model.
    EXPECT_EQ(parse_document(viete_text(stored, name, true), name), document);
  }
}

TEST(Viete, SaysWhatADiagramIsMadeOf) {
  const Document document = parse_document(
      "axes hidden=4\nf x[batch, hidden], y:\n  a, b = x, tanh(y)\n"
      "model t f32[batch, hidden]:\n  a, b = f^2(t, t*2)\n  c = a when hidden > 2 else b\n",
      "t");
  const Json diagram = viete_diagram(document, "small");
  EXPECT_EQ(diagram["programName"], "small");
  ASSERT_EQ(diagram["models"].size(), 2u);
  std::map<std::string, std::string> types;
  for (const Json& v : diagram["models"][1]["vertices"]) types[v["id"]] = v["type"];
  EXPECT_EQ(types["model/head/t"], "variable");
  EXPECT_EQ(types["model/0/results"], "tuple");
  EXPECT_EQ(types["model/0/results.1"], "subitem");
  EXPECT_EQ(types["model/1/c"], "choice");
  std::map<std::string, Json> edges;
  for (const Json& e : diagram["edges"]) edges[e["id"]] = e;
  const Json& call = edges["edge:model/0/results"];
  EXPECT_EQ(call["label"], "f^2(_, _)");
  EXPECT_EQ(call["decompositionId"], "f");
  EXPECT_EQ(call["sourceId"], "model/0.0/operands");
  EXPECT_EQ(edges["edge:model/1/c"]["label"], "_ when hidden > 2 else _");
  EXPECT_EQ(edges["link:model/0/b"]["sourceId"], "model/0/results.1");
  EXPECT_EQ(edges["edge:f/0/a"]["label"], "_");
}

TEST(Viete, ReadsWhatSomebodyDrew) {
  EXPECT_EQ(viete_text(drawn_by_hand(), "d.json", false),
            "axes hidden=4\n\nmodel x f32[batch, hidden]:\n  y = tanh(x) + x\n");
}

// A name that two vertices have is theirs one after the other, as far as that goes.
TEST(Viete, TellsVerticesOfOneNameApart) {
  Json diagram = drawn_by_hand();
  Json& vertices = diagram["models"][0]["vertices"];
  vertices[0]["name"] = "x";
  vertices[4]["name"] = "x";
  EXPECT_EQ(viete_text(diagram, "d.json", false),
            "axes hidden=4\n\nmodel x_2 f32[batch, hidden]:\n  x = tanh(x_2)\n  x = x + x_2\n");
}

// y = a*2 - b of a, b = split(x), whose vertices stand in the other order.
Json several_results() {
  Json parts = vertex("parts", "tuple"), pair = vertex("pair", "tuple");
  parts["items"] = {"r0", "r1"};
  pair["items"] = {"first", "second"};
  Json axes = Json::array();
  axes.push_back({{"name", "hidden"}, {"value", "4"}});
  return {{"id", "1"},
          {"programName", "hand"},
          {"models",
           {{{"id", "m"},
             {"name", "model"},
             {"vertices",
              {vertex("y", "variable", "y"), vertex("b", "variable", "b"),
               vertex("a", "variable", "a"), pair, vertex("first", "subitem"),
               vertex("second", "subitem"), parts, vertex("r0", "subitem"), vertex("r1", "subitem"),
               formal("x", 0, {"batch", "hidden"})}}}}},
          {"edges",
           {arrow("x", "parts", "halves(_)"), link("r0", "a"), link("r1", "b"), link("a", "first"),
            link("b", "second"), arrow("pair", "y", "_*2 - _")}},
          {"settings", {{"axes", axes}}}};
}

TEST(Viete, ResultsStandInTheOrderOfTheirTuple) {
  const std::string head = "axes hidden=4\n\nmodel x f32[batch, hidden]:\n";
  EXPECT_EQ(viete_text(several_results(), "d.json", false),
            head + "  a, b = halves(x)\n  y = a*2 - b\n");
  // The same where statements have numbers and results have none.
  Json numbered = several_results();
  Json& vertices = numbered["models"][0]["vertices"];
  vertices[0]["statement"] = 1;
  vertices[1]["statement"] = vertices[2]["statement"] = 0;
  EXPECT_EQ(viete_text(numbered, "d.json", false), head + "  a, b = halves(x)\n  y = a*2 - b\n");
  // A third value of the same statement that another edge makes.
  vertices.push_back(vertex("c", "variable", "c"));
  vertices.back()["statement"] = 0;
  numbered["edges"].push_back(arrow("x", "c", "tanh(_)"));
  numbered["models"][0]["results"] = {"y"};
  EXPECT_EQ(viete_text(numbered, "d.json", false),
            head + "  a, b, c = halves(x), tanh(x)\n  y = a*2 - b\n");
  // What a vertex says of itself counts more.
  Json said = several_results();
  said["models"][0]["vertices"][1]["result"] = 0;
  said["models"][0]["vertices"][2]["result"] = 1;
  EXPECT_EQ(viete_text(said, "d.json", false), head + "  b, a = halves(x)\n  y = a*2 - b\n");
  said["models"][0]["vertices"][1]["result"] = 1;
  EXPECT_EQ(error_text([&] { viete_text(said, "d.json", false); }),
            "d.json: vertex 'a' of model 'model' has the place of another result of its statement");
  said = several_results();
  said["models"][0]["vertices"][1]["statement"] = 0;
  EXPECT_EQ(
      error_text([&] { viete_text(said, "d.json", false); }),
      "d.json: vertex 'a' of model 'model' is a result of edge 'x>parts', whose other results "
      "are in another statement");
}

// Vertices without names, each made of the one before.
Json chained(int vertices, int deep) {
  std::string label;
  for (int i = 0; i < deep; ++i) label += "tanh(";
  label += "_" + std::string(static_cast<size_t>(deep), ')');
  Json all = {formal("x", 0, {"batch", "hidden"})}, edges = Json::array();
  for (int i = 0; i < vertices; ++i) {
    const bool last = i + 1 == vertices;
    const std::string id = "v" + std::to_string(i);
    all.push_back(vertex(id, "variable", last ? "y" : ""));
    edges.push_back(arrow(i == 0 ? "x" : "v" + std::to_string(i - 1), id, label));
  }
  Json diagram = drawn_by_hand();
  diagram["models"][0]["vertices"] = all;
  diagram["edges"] = edges;
  return diagram;
}

TEST(Viete, ATermOfManyVerticesIsNoDeeperThanOneOfALabel) {
  EXPECT_TRUE(has(viete_text(chained(5, 10), "d.json", false), "tanh(x)"));
  for (const auto& [vertices, deep] : {std::pair(200, 190), std::pair(150, 2), std::pair(500, 1)}) {
    const std::string said =
        error_text([&] { viete_text(chained(vertices, deep), "d.json", false); });
    EXPECT_TRUE(has(said, "name some vertices")) << said;
  }
}

// A vertex's id stands in the text that complaints are about: it must not add a line.
TEST(Viete, NamesOfThingsDoNotBecomeLines) {
  Json diagram = drawn_by_hand();
  diagram["models"][0]["vertices"][0]["id"] = "y'\n  x = x*100\n#";
  diagram["edges"][0]["targetId"] = "y'\n  x = x*100\n#";
  EXPECT_EQ(error_text([&] { viete_text(diagram, "d.json", true); }),
            "d.json: a vertex has the 'id' \"y'\\n  x = x*100\\n#\", which has characters that are "
            "not shown");
  EXPECT_EQ(error_text([&] { viete_text(drawn_by_hand(), "d\n.json", true); }),
            "\"d\\n.json\": the name of this file has characters that are not shown");
}

// Each is read by the other, and by nothing else.
TEST(Viete, AnArrowThatNoStatementUsesIsRefused) {
  Json diagram = drawn_by_hand();
  Json& vertices = diagram["models"][0]["vertices"];
  vertices.push_back(vertex("p", "variable"));
  vertices.push_back(vertex("q", "variable"));
  diagram["edges"].push_back(arrow("p", "q", "tanh(_)"));
  diagram["edges"].push_back(arrow("q", "p", "tanh(_)"));
  EXPECT_EQ(
      error_text([&] { viete_text(diagram, "d.json", false); }),
      "d.json: edge 'p>q' of model 'model' is part of no statement: nothing with a name is made "
      "of what it makes");
}

TEST(Viete, AModelIsAFileWithADiagram) {
  TempFolder folder;
  const std::string file = (folder / "drawn.json").string();
  const ModelText tiny = find_model("neox-tiny");
  const Document document = parse_document(tiny.text, tiny.file);
  write_file_atomically(file, viete_diagram(document, "neox").dump());
  const ModelText drawn = find_model(file + ":neox-tiny");
  EXPECT_EQ(drawn.preset, "neox-tiny");
  const Scheme is = elaborate(parse_document(drawn.text, drawn.file), drawn.file,
                              {.preset = drawn.preset, .settings = {{"dropout", 0.1}}});
  EXPECT_EQ(print(is), print(elaborate_preset("neox-tiny", {{"dropout", 0.1}})));
  // What an elaboration refuses names the vertex.
  Json wrong = drawn_by_hand();
  wrong["edges"][3]["label"] = "tanh(_, 3)";
  write_file_atomically(file, wrong.dump());
  const ModelText model = find_model(file);
  const std::string said =
      error_text([&] { elaborate(parse_document(model.text, model.file), model.file, {}); });
  EXPECT_TRUE(has(said, "drawn.json: vertex 'y':1:7: tanh: too many arguments")) << said;
}

TEST(Viete, Refusals) {
  const auto said = [](const Json& diagram) {
    return error_text([&] { viete_text(diagram, "d.json", true); });
  };
  const auto changed = [](const auto& change) {
    Json diagram = drawn_by_hand();
    change(diagram, diagram["models"][0]["vertices"], diagram["edges"]);
    return diagram;
  };
  EXPECT_EQ(said(3), "d.json: this is no diagram: wanted an object with 'models' and 'edges'");
  EXPECT_EQ(said(changed([](Json&, Json& v, Json&) { v[4]["type"] = "point"; })),
            "d.json: vertex 't' has the type 'point'; there are variable, tuple, choice and "
            "subitem");
  EXPECT_EQ(said(changed([](Json&, Json& v, Json&) { v[5]["id"] = "t"; })),
            "d.json: vertex 't' is there twice");
  EXPECT_EQ(said(changed([](Json&, Json&, Json& e) { e[3]["sourceId"] = "z"; })),
            "d.json: edge 'x>t' begins at 'z', which is no vertex of model 'model'");
  EXPECT_EQ(said(changed([](Json&, Json&, Json& e) { e.erase(3); })),
            "d.json: vertex 't' of model 'model' is made by no edge, and is no 'formal' of the "
            "model");
  EXPECT_EQ(said(changed([](Json&, Json&, Json& e) { e.push_back(arrow("x", "y", "tanh(_)")); })),
            "d.json: vertex 'y' of model 'model' is made by two edges");
  EXPECT_EQ(said(changed([](Json&, Json&, Json& e) { e.erase(1); })),
            "d.json: vertex 'first' of model 'model' is an operand that is linked to no vertex");
  EXPECT_EQ(said(changed([](Json&, Json&, Json& e) { e[3]["label"] = "tanh(_, _)"; })),
            "d.json: edge 'x>t' has 1 operands, and its label 'tanh(_, _)' has 2 places '_' for "
            "them");
  EXPECT_EQ(said(changed([](Json&, Json&, Json& e) { e[3]["label"] = "tanh(_"; })),
            "d.json: edge 'x>t':1:7: wanted ')' or ',' after an argument, found the end of the "
            "text");
  EXPECT_EQ(said(changed([](Json&, Json&, Json& e) { e[3]["decompositionId"] = "nothing"; })),
            "d.json: edge 'x>t' is decomposed into 'nothing', which is no model of the diagram");
  EXPECT_EQ(said(changed(
                [](Json& d, Json&, Json& e) { e[3]["decompositionId"] = d["models"][0]["id"]; })),
            "d.json: edge 'x>t' is decomposed into model 'model', which its label 'tanh(_)' does "
            "not call");
  EXPECT_EQ(said(changed([](Json&, Json& v, Json&) { v[0]["name"] = "y = 1\n"; })),
            "d.json: vertex 'y' is called 'y = 1\n', which is no name");
  EXPECT_EQ(said(changed([](Json&, Json& v, Json&) { v[5].erase("formal"); })),
            "d.json: model 'model' takes nothing: a vertex with 'formal' is missing");
  // A circle of arrows.
  EXPECT_EQ(said(changed([](Json&, Json& v, Json& e) {
              v[4]["name"] = "t";
              e[3]["sourceId"] = "y";
            })),
            "d.json: vertex 'y' of model 'model' is made of itself");
  EXPECT_EQ(said(changed([](Json& d, Json&, Json&) { d["models"][0]["name"] = "f"; })),
            "d.json:5:1: wanted a box named 'model', found the end of the text");
  EXPECT_EQ(error_text([] {
              viete_diagram(parse_document("axes _=2\nmodel x:\n  y = linear(x, _)\n", "t"), "t");
            }),
            "box 'model' reads '_', which stands for operands in a diagram; rename it");
}

TEST(Viete, AFunctorsLinksAreMappings) {
  const ModelText tiny = find_model("neox-tiny");
  const Document document = parse_document(tiny.text, tiny.file);
  const Scheme source = elaborate(document, tiny.file, {.preset = "neox-tiny"});
  // Something that keeps all and adds a morphism with a facet of an object's path.
  Scheme result = source;
  const Value extra = result.add({.type = result[0].type, .source = {"tokens", "copy"}});
  result.morphisms.push_back({.op = "cast", .inputs = {0}, .outputs = {extra}});
  Json diagram = viete_diagram(document, "neox");
  add_viete_mapping(diagram, source, result, "copy", true);
  ASSERT_EQ(diagram["mappings"].size(), 1u);
  const Json& mapping = diagram["mappings"][0];
  EXPECT_EQ(diagram["relations"][0]["direction"], "<=>");
  std::map<std::string, Json> edges;
  for (const Json& e : diagram["edges"]) edges[e["id"]] = e;
  EXPECT_EQ(edges[mapping["mappingEdgeId"]]["type"], "mapping");
  EXPECT_EQ(edges[mapping["mappingEdgeId"]]["label"], "copy");
  int of_tokens = 0;
  std::set<std::string> linked;
  for (const Json& id : mapping["mappingEdges"]) {
    const Json& edge = edges[id];
    EXPECT_EQ(edge["type"], "element-mapping");
    of_tokens += edge["sourceId"] == "source0/0";
    linked.insert(edge["sourceId"]);
  }
  EXPECT_EQ(of_tokens, 2);  // itself and its copy
  EXPECT_EQ(linked.size(), source.objects.size());
  // The model that it draws is the same.
  EXPECT_EQ(read_viete(parse_json(diagram.dump()), "neox"), document);
}

}  // namespace
}  // namespace adjoint

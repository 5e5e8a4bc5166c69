// From a diagram to a document and its text: settings here, boxes in viete_box.cpp.
#include <map>

#include "base/error.h"
#include "models/viete.h"
#include "models/viete_box.h"

namespace adjoint {

namespace {

using nlohmann::json;

std::vector<Setting> settings_of(const json& list, const std::string& what) {
  std::vector<Setting> settings;
  for (const json& each : list) {
    const DrawnFields fields(each, what);
    const std::string name = fields.name("name");
    settings.push_back({.name = name, .value = parse_term(fields.text("value"), what)});
  }
  return settings;
}

struct Drawn {
  Document document;
  std::vector<std::vector<std::string>> places;  // of each box, of each statement
};

Drawn read_diagram(const json& diagram, std::string_view file) {
  const DrawnFields fields(diagram, std::string(file) + ": this diagram");
  Drawn drawn;
  const json none = json::object();
  const json& said = fields.has("settings") ? diagram["settings"] : none;
  const DrawnFields settings(said, std::string(file) + ": its settings");
  drawn.document.axes = settings_of(settings.list("axes"), std::string(file) + ": an axis");
  drawn.document.numbers = settings_of(settings.list("numbers"), std::string(file) + ": a number");
  for (const json& each : settings.list("presets")) {
    const DrawnFields preset(each, std::string(file) + ": a preset");
    const std::string name = preset.name_of_preset("name");
    drawn.document.presets.push_back(
        {.name = name,
         .settings = settings_of(preset.list("settings"), std::string(file) + ": preset " + name)});
  }
  for (const json& each : settings.list("formats")) {
    if (!each.is_string()) settings.refuse("have a format that is no text");
    const std::string text = each.get<std::string>();
    Cursor in(text, std::string(file) + ": a format");
    in.skip_blank_lines();
    if (!in.accept_word("format")) in.fail_wanted("'format'");
    drawn.document.formats.push_back(parse_format(in));
    in.skip_blank_lines();
    if (!in.at_end()) in.fail_wanted("the end of the format");
  }
  // Edges by the model whose vertex they end at; ids say it where "modelId" does not.
  std::map<std::string, std::vector<const json*>> edges;
  std::vector<const json*> unplaced;
  for (const json& edge : fields.list("edges")) {
    if (edge.is_object() && edge.contains("modelId") && edge["modelId"].is_string()) {
      edges[edge["modelId"].get<std::string>()].push_back(&edge);
    } else {
      unplaced.push_back(&edge);
    }
  }
  BoxNames boxes;
  for (const json& model : fields.list("models")) {
    const DrawnFields of_model(model, std::string(file) + ": a model");
    boxes[of_model.text("id")] = of_model.text("name", "");
  }
  for (const json& model : fields.list("models")) {
    const DrawnFields of_model(model, std::string(file) + ": a model");
    if (of_model.has("flat") && model["flat"] == true) continue;
    std::vector<const json*> own = edges[of_model.text("id")];
    own.insert(own.end(), unplaced.begin(), unplaced.end());
    DrawnBox read = read_viete_box(model, file, own, boxes);
    drawn.document.boxes.push_back(std::move(read.box));
    drawn.places.push_back(std::move(read.places));
  }
  return drawn;
}

}  // namespace

bool is_viete_diagram(const nlohmann::json& json) {
  return json.is_object() && json.contains("models") && json["models"].is_array() &&
         json.contains("edges") && json["edges"].is_array();
}

Document read_viete(const nlohmann::json& diagram, std::string_view file) {
  return parse_document(viete_text(diagram, file, false), file);
}

std::string viete_text(const nlohmann::json& diagram, std::string_view file, bool places) {
  if (!is_viete_diagram(diagram)) {
    fail(file, ": this is no diagram: wanted an object with 'models' and 'edges'");
  }
  // Places name the file in lines of the text.
  if (has_control(file)) {
    fail(nlohmann::json(file).dump(), ": the name of this file has characters that are not shown");
  }
  const Drawn drawn = read_diagram(diagram, file);
  std::string text = print(drawn.document);
  parse_document(text, file);  // whatever is no model is refused here
  if (!places) return text;
  // Before every statement a line says where it comes from, and behind the box the text goes on.
  Document bare = drawn.document;
  std::string placed;
  const auto add = [&](const Document& part) { placed += print(part); };
  std::vector<Box> boxes = std::move(bare.boxes);
  std::vector<Format> formats = std::move(bare.formats);
  bare.boxes.clear();
  bare.formats.clear();
  add(bare);
  for (size_t b = 0; b < boxes.size(); ++b) {
    Box head = boxes[b];
    for (size_t s = 0; s < boxes[b].body.size(); ++s) {
      head.body = {boxes[b].body[s]};
      const std::string whole = print(Document{.boxes = {head}});
      const size_t split = whole.find(":\n") + 2;
      if (s == 0) placed += whole.substr(0, split);
      placed += origin_line(join_parts(file, ": vertex '", drawn.places[b][s], "'"), 1);
      placed += whole.substr(split);
    }
    placed += origin_line("", 1);
  }
  for (const Format& format : formats) placed += "\n" + print(format);
  parse_document(placed, file);
  return placed;
}

}  // namespace adjoint

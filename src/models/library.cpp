#include "models/library.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/json.h"
#include "base/near_path.h"
#include "base/text.h"
#include "models/format_config.h"
#include "models/viete.h"
#include "scheme/document.h"

namespace adjoint {

namespace {

struct Listed {
  std::string preset;
  const LibraryText* text;
};

std::string file_of(const LibraryText& text) { return "models/" + std::string(text.name); }

// The text that `use "name"` means in `file`: beside that file, or else one of ours.
std::pair<std::string, std::string> used_text(const std::string& name, const std::string& file,
                                              const std::string& place) {
  const std::filesystem::path path = std::filesystem::path(file).parent_path() / name;
  if (is_visible(path)) return {path.string(), read_file(path)};
  std::vector<std::string> ours;
  for (const LibraryText& text : library_texts()) {
    if (text.name == name) return {file_of(text), std::string(text.text)};
    ours.emplace_back(text.name);
  }
  fail(place, "there is no file '", path.string(), "' to use, and none of ours is called so (",
       join(ours, ", "), ")", did_you_mean(name, ours));
}

constexpr size_t kMostUses = 64;

// Replaces every line `use "file"` by what the file says. `open` are the files that are being read.
std::string expand_uses(const std::string& text, const std::string& file,
                        std::vector<std::string>& open, std::set<std::string>& seen) {
  std::string out;
  int line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content(text.data() + begin, end - begin);
    ++line;
    begin = end + 1;
    if (!content.starts_with("use ") && !content.starts_with("use\t")) {
      out += std::string(content) + "\n";
      continue;
    }
    const std::string place = join_parts(file, ":", line, ":1: ");
    Cursor in(content, file);
    in.accept_word("use");
    if (!in.looking_at("\"")) fail(place, "wanted use \"file.scheme\", found ", content);
    const std::string name = in.take_text();
    if (!in.at_line_end()) fail(place, "wanted the end of the line after use \"", name, "\"");
    const auto [path, used] = used_text(name, file, place);
    if (std::count(open.begin(), open.end(), path)) {
      fail(place, "'", path, "' uses itself");
    }
    if (seen.size() >= kMostUses) fail(place, "more than ", kMostUses, " files are used");
    // Once is enough, whoever asks.
    if (seen.insert(path).second) {
      open.push_back(path);
      out += origin_line(path, 1) + expand_uses(used, path, open, seen);
      open.pop_back();
    }
    out += origin_line(open.size() == 1 ? "" : file, line + 1);
  }
  return out;
}

}  // namespace

std::string with_uses(const std::string& text, const std::string& file) {
  if (!text.starts_with("use ") && text.find("\nuse ") == text.npos &&
      text.find("\nuse\t") == text.npos) {
    return text;
  }
  std::vector<std::string> open = {file};
  std::set<std::string> seen;
  return expand_uses(text, file, open, seen);
}

namespace {

// One of our texts, its uses replaced.
struct Parsed {
  const LibraryText* text;
  std::string whole;
  Document document;
};

const std::vector<Parsed>& parsed_library() {
  static const std::vector<Parsed> parsed = [] {
    std::vector<Parsed> all;
    for (const LibraryText& text : library_texts()) {
      std::string whole = with_uses(std::string(text.text), file_of(text));
      Document document = parse_document(whole, file_of(text));
      all.push_back({&text, std::move(whole), std::move(document)});
    }
    return all;
  }();
  return parsed;
}

constexpr std::string_view kHuggingFace = "huggingface";

std::string architecture_of(const nlohmann::json& config) {
  const auto found = config.is_object() ? config.find("architectures") : config.end();
  if (found == config.end() || !found->is_array() || found->size() != 1 ||
      !(*found)[0].is_string()) {
    return "";
  }
  return (*found)[0].get<std::string>();
}

[[noreturn]] void fail_unknown(const std::string& place, const nlohmann::json& config) {
  const auto shown = [&](const char* field) {
    const bool has = config.is_object() && config.contains(field);
    return std::string(field) + (has ? " " + config[field].dump() : " (absent)");
  };
  std::vector<std::string> families, names;
  for (const Parsed& each : parsed_library()) {
    for (const Format& format : each.document.formats) {
      for (const std::string& name : format.architectures) {
        names.push_back(name);
        families.push_back(name + " (" + file_of(*each.text) + ")");
      }
    }
  }
  fail(place, ": no family knows ", shown("architectures"), ", ", shown("model_type"),
       "; there are ", join(families, ", "), did_you_mean(architecture_of(config), names));
}

// A name that a preset can have, and that none of the document has.
std::string preset_name(const std::filesystem::path& folder, const Document& document) {
  std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  std::string name = whole.filename().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '-';
  }
  if (name.empty()) name = "folder";
  while (document.preset(name)) name += "-folder";
  return name;
}

// The family's text with what config.json says as a preset.
ModelText model_of_folder(const std::string& folder, const std::string* family) {
  const std::filesystem::path path = std::filesystem::path(folder) / "config.json";
  const std::string place = path.string();
  const nlohmann::json config = read_json(path);
  const std::string architecture = architecture_of(config);
  ModelText model{
      .file = {}, .text = {}, .preset = {}, .weights = folder, .architecture = architecture};
  Document document;
  const Format* format = nullptr;
  if (family) {
    model.file = *family;
    model.written = read_file(*family);
    model.text = with_uses(model.written, *family);
    document = parse_document(model.text, model.file);
    format = find_format(document, kHuggingFace, architecture);
    if (!format) {
      fail(place, ": ", *family, " has no format ", kHuggingFace, " \"", architecture, "\"");
    }
  } else {
    for (const Parsed& each : parsed_library()) {
      const Format* known = find_format(each.document, kHuggingFace, architecture);
      if (!known || architecture.empty() || format) continue;
      document = each.document;
      format = find_format(document, kHuggingFace, architecture);
      model.file = file_of(*each.text);
      model.text = each.whole;
      model.written = each.text->text;
    }
    if (!format) fail_unknown(place, config);
  }
  model.preset = preset_name(folder, document);
  std::string preset = "preset " + model.preset + ":";
  for (const auto& [name, value] : read_config(document, *format, model.file, config, place)) {
    preset += " " + name + "=" + shortest(value);
  }
  model.text += preset + "\n";
  model.written += preset + "\n";
  return model;
}

bool is_model_folder(const std::string& path) {
  return is_visible(std::filesystem::path(path) / "config.json");
}

// drawn.json, a diagram, maybe with a preset of its own: drawn.json:small.
std::optional<ModelText> drawn_model(std::string_view model) {
  constexpr std::string_view kDrawn = ".json";
  const size_t dot = model.rfind(kDrawn);
  if (dot == model.npos) return std::nullopt;
  const size_t end = dot + kDrawn.size();
  if (end != model.size() && model[end] != ':') return std::nullopt;
  const std::string path(model.substr(0, end));
  const nlohmann::json diagram = parse_json(read_file(path), path);
  return ModelText{.file = path,
                   .text = viete_text(diagram, path, true),
                   .preset = std::string(model.substr(std::min(end + 1, model.size()))),
                   .written = viete_text(diagram, path, false)};
}

const std::vector<Listed>& listed_presets() {
  static const std::vector<Listed> listed = [] {
    std::vector<Listed> all;
    for (const Parsed& each : parsed_library()) {
      for (const Preset& p : each.document.presets) all.push_back({p.name, each.text});
    }
    return all;
  }();
  return listed;
}

}  // namespace

// A model's text, its diagram, a folder of Hugging Face's format or a run.
static bool holds_model(const std::filesystem::path& path) {
  const std::string ending = path.extension();
  if (ending == ".scheme" || ending == ".json") return true;
  return is_model_folder(path.string()) || is_visible(path / "run.json");
}

// Of what a hub would call a model, meta-llama/Llama-3.2-1B: its weights are in a folder that one
// downloads from there, and a preset of that name has its sizes alone.
static std::string what_of_a_hub(const std::filesystem::path& path) {
  if (path.has_root_path() || std::distance(path.begin(), path.end()) != 2) return "";
  if (!path.has_filename() || *path.begin() == "." || is_visible(*path.begin())) return "";
  const std::string preset = nearest(path.filename().string(), known_presets());
  return " here: for its weights give the folder of a download (adjoint help formats)" +
         (preset.empty() ? "" : "; the preset '" + preset + "' is sizes, with random weights");
}

std::vector<std::string> known_presets() {
  std::vector<std::string> names;
  for (const Listed& each : listed_presets()) names.push_back(each.preset);
  return names;
}

ModelText find_model(std::string_view model) {
  if (const auto drawn = drawn_model(model)) return *drawn;
  constexpr std::string_view kEnding = ".scheme";
  if (const size_t dot = model.rfind(kEnding); dot != std::string_view::npos) {
    const size_t end = dot + kEnding.size();
    if (end == model.size() || model[end] == ':') {
      const std::string path(model.substr(0, end));
      const std::string behind(model.substr(std::min(end + 1, model.size())));
      if (!behind.empty() && is_model_folder(behind)) return model_of_folder(behind, &path);
      const std::string written = read_file(path);
      return {.file = path, .text = with_uses(written, path), .preset = behind, .written = written};
    }
  }
  for (const Listed& each : listed_presets()) {
    if (each.preset == model) {
      return {.file = file_of(*each.text),
              .text = with_uses(std::string(each.text->text), file_of(*each.text)),
              .preset = each.preset,
              .written = std::string(each.text->text)};
    }
  }
  const std::string folder(model);
  if (is_model_folder(folder)) return model_of_folder(folder, nullptr);
  std::error_code ignored;
  if (is_visible(folder) && std::filesystem::is_directory(folder, ignored)) {
    if (const auto run = std::filesystem::path(folder) / "run.json"; is_visible(run)) {
      const nlohmann::json about = read_json(run);
      const auto preset = about.find("preset");
      const bool named = preset != about.end() && preset->is_string() && *preset != "";
      fail(folder, ": this folder is a run; the text of its model is ",
           (std::filesystem::path(folder) / "model.scheme").string(),
           named ? ":" + preset->get<std::string>() : "", ", and train --init ", folder,
           " starts from its parameters");
    }
    fail(folder, ": this folder holds no model: there is no config.json");
  }
  if (model.ends_with(".functor")) {
    fail("'", model, "' is a functor; say --stack ", model);
  }
  constexpr std::string_view kWanted =
      "wanted a folder with a config.json, a .scheme file or a preset (adjoint models lists them)";
  if (is_visible(folder)) fail("'", model, "' is no model: ", kWanted);
  // What is written like a path is one; any other word is a path only where there is a model.
  const bool is_path = model.find('/') != std::string_view::npos;
  std::string near = is_path ? "" : did_you_mean(model, known_presets());
  if (near.empty()) {
    const std::filesystem::path there = near_path(folder);
    const bool meant =
        is_path || std::filesystem::path(folder).has_extension() || holds_model(there);
    if (meant) near = did_you_mean_folder(folder);
  }
  if (near.empty() && is_path) near = what_of_a_hub(folder);
  if (!near.empty()) fail("there is no model '", model, "'", near);
  fail("there is no model '", model, "': ", kWanted);
}

}  // namespace adjoint

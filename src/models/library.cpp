#include "models/library.h"

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "scheme/document.h"

namespace adjoint {

namespace {

struct Listed {
  std::string preset;
  const LibraryText* text;
};

std::string file_of(const LibraryText& text) { return "models/" + std::string(text.name); }

const std::vector<Listed>& listed_presets() {
  static const std::vector<Listed> listed = [] {
    std::vector<Listed> all;
    for (const LibraryText& text : library_texts()) {
      for (const Preset& p : parse_document(text.text, file_of(text)).presets) {
        all.push_back({p.name, &text});
      }
    }
    return all;
  }();
  return listed;
}

}  // namespace

std::vector<std::string> known_presets() {
  std::vector<std::string> names;
  for (const Listed& each : listed_presets()) names.push_back(each.preset);
  return names;
}

ModelText find_model(std::string_view model) {
  constexpr std::string_view kEnding = ".scheme";
  if (const size_t dot = model.rfind(kEnding); dot != std::string_view::npos) {
    const size_t end = dot + kEnding.size();
    if (end == model.size() || model[end] == ':') {
      const std::string path(model.substr(0, end));
      return {.file = path,
              .text = read_file(path),
              .preset = std::string(model.substr(std::min(end + 1, model.size())))};
    }
  }
  for (const Listed& each : listed_presets()) {
    if (each.preset == model) {
      return {
          .file = file_of(*each.text), .text = std::string(each.text->text), .preset = each.preset};
    }
  }
  fail("there is no model '", model, "': wanted the path of a .scheme file or one of ",
       join(known_presets(), ", "), did_you_mean(model, known_presets()));
}

}  // namespace adjoint

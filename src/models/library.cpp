#include "models/library.h"

#include <algorithm>
#include <filesystem>
#include <set>

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

// The text that `use "name"` means in `file`: beside that file, or else one of ours.
std::pair<std::string, std::string> used_text(const std::string& name, const std::string& file,
                                              const std::string& place) {
  const std::filesystem::path path = std::filesystem::path(file).parent_path() / name;
  if (std::filesystem::exists(path)) return {path.string(), read_file(path)};
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

std::string with_uses(const std::string& text, const std::string& file) {
  if (!text.starts_with("use ") && text.find("\nuse ") == text.npos &&
      text.find("\nuse\t") == text.npos) {
    return text;
  }
  std::vector<std::string> open = {file};
  std::set<std::string> seen;
  return expand_uses(text, file, open, seen);
}

const std::vector<Listed>& listed_presets() {
  static const std::vector<Listed> listed = [] {
    std::vector<Listed> all;
    for (const LibraryText& text : library_texts()) {
      for (const Preset& p :
           parse_document(with_uses(std::string(text.text), file_of(text)), file_of(text))
               .presets) {
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
              .text = with_uses(read_file(path), path),
              .preset = std::string(model.substr(std::min(end + 1, model.size())))};
    }
  }
  for (const Listed& each : listed_presets()) {
    if (each.preset == model) {
      return {.file = file_of(*each.text),
              .text = with_uses(std::string(each.text->text), file_of(*each.text)),
              .preset = each.preset};
    }
  }
  fail("there is no model '", model, "': wanted the path of a .scheme file or one of ",
       join(known_presets(), ", "), did_you_mean(model, known_presets()));
}

}  // namespace adjoint

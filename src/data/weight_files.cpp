#include "data/weight_files.h"

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file_view.h"
#include "base/json.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// A stranger's name must not lead out of the folder. Behind a zero, the system would not read it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && fs::path(name).filename() == name && name != "." && name != ".." &&
         name.find('\0') == name.npos;
}

// Which file has which tensor.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const nlohmann::json index = read_json(path);
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object()) {
    fail(path.string(), ": wanted the files of tensors under \"weight_map\"");
  }
  if (found->empty()) fail(path.string(), ": its \"weight_map\" names no tensor");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : found->items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    if (!is_plain_name(text)) {
      fail(path.string(), ": tensor '", name, "' is in ", file.dump(),
           ", wanted the name of a file in the same folder");
    }
    files[name] = text;
  }
  return files;
}

}  // namespace

WeightFiles::WeightFiles(fs::path folder) : folder_(std::move(folder)) {
  std::error_code ignored;
  std::map<std::string, std::string> index;
  std::set<std::string> names;
  if (is_visible(folder_ / kIndex)) {
    index = read_index(folder_ / kIndex);
    for (const auto& [tensor, file] : index) names.insert(file);
  } else if (is_visible(folder_ / kOneFile)) {
    names.insert(kOneFile);
  } else {
    fail(folder_.string(), ": there are no weights here: wanted ", kOneFile, " or ", kIndex);
  }
  std::unordered_map<std::string_view, std::string> file_of;
  for (const std::string& name : names) {
    files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
    for (const SafetensorView& view : files_.back()->tensors()) {
      if (!tensors_.emplace(view.name, &view).second) {
        fail(folder_.string(), ": tensor '", view.name, "' is in both ", file_of[view.name],
             " and ", name);
      }
      file_of[view.name] = name;
    }
  }
  for (const auto& [tensor, file] : index) {
    const auto found = file_of.find(tensor);
    if (found != file_of.end() && found->second == file) continue;
    fail((folder_ / kIndex).string(), ": tensor '", tensor, "' is said to be in ", file,
         found == file_of.end() ? ", which does not have it" : ", and is in " + found->second);
  }
}

const SafetensorView* WeightFiles::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

std::vector<const SafetensorView*> WeightFiles::tensors() const {
  std::vector<const SafetensorView*> all;
  for (const auto& file : files_) {
    for (const SafetensorView& view : file->tensors()) all.push_back(&view);
  }
  return all;
}

}  // namespace adjoint

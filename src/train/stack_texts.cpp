#include "train/stack_texts.h"

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "functors/stack.h"

namespace adjoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Of copies in a run's folder.
constexpr std::string_view kFunctors = "functors/", kSchedules = "schedules/";

// Gone, or no file any more: then nobody can say that it has changed.
std::optional<std::string> text_at(const fs::path& file) {
  std::error_code ignored;
  if (!is_visible(file) || !fs::is_regular_file(file, ignored)) return std::nullopt;
  return read_file(file);
}

}  // namespace

StackTexts::StackTexts(const SavePaths& resumed) : folder_(fs::absolute(resumed.folder).string()) {
  const json about = read_json(resumed.run());
  if (!about.contains("files") || !about["files"].is_object()) return;
  for (const auto& [name, origin] : about["files"].items()) {
    if (origin.is_string()) known_[name] = origin.get<std::string>();
  }
}

std::string StackTexts::localized(const std::string& stack) {
  return with_stack_files(stack, [&](const std::string& named) {
    const fs::path path(named);
    const std::string ending = path.extension().string();
    const bool functor = ending == kFunctorFile;
    File file{.text = read_file(path), .origin = fs::absolute(path).string()};
    if (functor) {
      for (const std::string& own : files_named_in(file.text)) {
        fail(
            named, ": names the file '", own,
            "', which a run's folder could not keep; give the functor a parameter for it, and name "
            "the file in the stack");
      }
    }
    const std::string folder(functor ? kFunctors : kSchedules);
    std::string name = folder + path.filename().string();
    for (int n = 2; files_.count(name) && files_[name].text != file.text; ++n) {
      name = folder + path.stem().string() + "-" + std::to_string(n) + ending;
    }
    if (!folder_.empty()) {
      if (const auto copy = text_at(fs::path(folder_) / name)) before_[name] = *copy;
      const bool is_copy = file.origin == (fs::path(folder_) / name).string();
      const auto known = known_.find(name);
      if (is_copy) file.origin = known == known_.end() ? "" : known->second;
    }
    files_[name] = std::move(file);
    return name;
  });
}

std::vector<std::string> StackTexts::changed() const {
  std::vector<std::string> notes;
  for (const auto& [name, file] : files_) {
    const auto before = before_.find(name);
    if (before != before_.end() && before->second != file.text) {
      notes.push_back(name + " is another text from here on");
    } else if (const auto original = text_at(file.origin); original && *original != file.text) {
      notes.push_back(
          join_parts("'", file.origin, "' has changed; the run goes on with its copy, ", name));
    }
  }
  return notes;
}

void StackTexts::write(const SavePaths& paths) const {
  for (const auto& [name, file] : files_) {
    const fs::path to = paths.folder / name;
    make_folders(to.parent_path());
    write_file_atomically(to, file.text);
  }
}

json StackTexts::origins() const {
  json all = json::object();
  for (const auto& [name, file] : files_) {
    if (!file.origin.empty()) all[name] = file.origin;
  }
  return all;
}

std::string stack_in(const SavePaths& paths, const std::string& saved) {
  return with_stack_files(saved, [&](const std::string& file) {
    const bool is_copy = file.starts_with(kFunctors) || file.starts_with(kSchedules);
    return is_copy ? (paths.folder / file).string() : file;
  });
}

}  // namespace adjoint

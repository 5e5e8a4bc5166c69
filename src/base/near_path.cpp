#include "base/near_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "base/file_view.h"
#include "base/text.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostNames = 20'000;  // of a folder: more are not looked at for a suggestion

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path here = folder.empty() ? fs::path(".") : folder;
  if (!is_visible(here)) return names;  // what this process may not see it does not suggest
  for (fs::directory_iterator entry(here, error), end; !error && entry != end;
       entry.increment(error)) {
    if (names.size() == kMostNames) break;
    names.push_back(entry->path().filename().string());
  }
  return names;
}

// Of names with the same ending only what stands before it is compared, so that a long ending makes
// no two names alike.
std::string near_name(const fs::path& name, const std::vector<std::string>& names) {
  const std::string ending = name.extension();
  if (ending.empty()) return nearest(name.string(), names);
  std::vector<std::string> stems, others;
  for (const fs::path there : names) {
    const bool same = there.extension() == ending;
    (same ? stems : others).push_back(same ? there.stem() : there);
  }
  const std::string stem = nearest(name.stem().string(), stems);
  return stem.empty() ? nearest(name.string(), others) : stem + ending;
}

}  // namespace

fs::path near_path(const fs::path& path) {
  fs::path right;
  for (const fs::path& part : path) {
    if (is_visible(right / part)) {
      right /= part;
      continue;
    }
    const std::string near = near_name(part, names_in(right));
    if (near.empty()) return {};
    right /= near;
  }
  return right == path ? fs::path() : right;
}

std::string did_you_mean_path(const fs::path& path) {
  const fs::path near = near_path(path);
  return near.empty() ? "" : "; did you mean '" + near.string() + "'?";
}

std::string did_you_mean_folder(const fs::path& path) {
  std::error_code ignored;
  const fs::path folder = path.parent_path();
  for (const char* known : {"run.json", "config.json"}) {
    const bool is_file = is_visible(path) && !fs::is_directory(path, ignored);
    if (is_file && is_visible(folder / known)) {
      return "; did you mean '" + (folder.empty() ? "." : folder.string()) + "'?";
    }
  }
  return did_you_mean_path(path);
}

void check_may_enter(const fs::path& path) {
  fs::path entered;
  for (const fs::path& part : path) {
    entered /= part;
    struct stat info = {};
    if (::stat(entered.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return;
    const bool last = entered == path;
    if (::access(entered.c_str(), last ? R_OK | X_OK : X_OK) == 0 || errno != EACCES) continue;
    fail(path.string(), ": cannot be read: this process has no right to ",
         last ? "read this folder" : "enter " + entered.string());
  }
}

void refuse_pointer(const fs::path& path, std::string_view begin) {
  if (!begin.starts_with("version https://git-lfs.github.com/")) return;
  fail(path.string(), ": this is a pointer that Git LFS left in place of the file; ",
       "`git lfs pull` in its folder fetches the file");
}

void fail_no_file(const fs::path& path) {
  check_may_enter(path);
  fail(path.string(), ": there is no such file", did_you_mean_path(path));
}

}  // namespace adjoint

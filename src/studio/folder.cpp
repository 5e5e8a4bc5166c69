#include "studio/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/file_view.h"
#include "base/hash.h"
#include "base/text.h"
#include "studio/api_error.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr int kDeepest = 6;
constexpr size_t kMostFiles = 5000;
constexpr uintmax_t kMostText = 8 * 1024 * 1024;

const std::vector<std::string> kWritten = {
    ".scheme", ".functor", ".optimizer", ".schedule", ".toml", ".txt", ".md", ".json", ".jsonl"};
constexpr std::chrono::seconds kAbandoned{60};  // so long nobody writes a text

const std::set<std::string> kLeftOut = {"build", "node_modules", "CMakeFiles", "__pycache__"};

std::string kind_of_file(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".scheme") return "model";
  if (ending == ".functor" || ending == ".optimizer" || ending == ".schedule") {
    return ending.substr(1);
  }
  if (ending == ".txt" || ending == ".md") return "text";
  if (ending == ".jsonl" || ending == ".ndjson") return "jsonl";
  if (ending == ".bin") return "tokens";
  if (ending == ".toml") return "config";
  return "other";
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string kind_of_folder(const fs::path& path) {
  if (is_file(path / "run.json")) return "run";
  if (is_file(path / "config.json")) return "model";  // of Hugging Face's format
  return "folder";
}

// The file that a temporary file of AtomicFile was to become; nothing of any other file.
std::optional<fs::path> becomes(const fs::path& file) {
  const std::string name = file.stem().string();
  const fs::path whole = file.parent_path() / name.substr(0, name.rfind('.'));
  const bool is_temporary = file.extension() == ".new" && whole.filename() != name &&
                            AtomicFile::is_temporary_of(whole, file);
  return is_temporary ? std::optional(whole) : std::nullopt;
}

bool is_written(const fs::path& file) {
  return std::find(kWritten.begin(), kWritten.end(), file.extension().string()) != kWritten.end();
}

// What a folder holds that is shown or swept, in order.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const std::string name = each->path().filename().string();
    // A name that is no text could not be asked for.
    if (!name.starts_with('.') && !kLeftOut.contains(name) && is_text(name)) {
      entries.push_back(each->path());
    }
    if (entries.size() > kMostFiles) break;
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void list_into(const fs::path& root, const fs::path& folder, int depth,
               std::vector<ListedFile>& files) {
  std::error_code error;
  for (const fs::path& path : entries_of(folder)) {
    if (files.size() >= kMostFiles) return;
    if (becomes(path)) continue;
    struct stat about = {};
    if (::lstat(path.c_str(), &about) != 0) continue;
    const bool link = S_ISLNK(about.st_mode);
    if (link) {
      const fs::path real = fs::canonical(path, error);
      if (error || !lies_in(root, real) || ::stat(path.c_str(), &about) != 0) continue;
    }
    const bool is_folder = S_ISDIR(about.st_mode);
    if (!is_folder && !S_ISREG(about.st_mode)) continue;
    const std::string kind = is_folder ? kind_of_folder(path) : kind_of_file(path);
    files.push_back({.path = path.lexically_relative(root).generic_string(),
                     .kind = kind,
                     .folder = is_folder,
                     .bytes = is_folder ? 0 : about.st_size,
                     .modified = about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec});
    // A link to a folder is shown closed: what it holds is listed where it lies.
    if (kind == "folder" && !link && depth < kDeepest) list_into(root, path, depth + 1, files);
  }
}

// `left`: so many entries are looked at, as many as are listed.
void sweep_in(const fs::path& folder, int depth, size_t& left) {
  std::error_code error;
  for (const fs::path& path : entries_of(folder)) {
    if (left == 0) return;
    --left;
    if (fs::is_symlink(path, error)) continue;
    if (fs::is_directory(path, error)) {
      if (kind_of_folder(path) == "folder" && depth < kDeepest) sweep_in(path, depth + 1, left);
      continue;
    }
    const auto whole = becomes(path);
    if (!whole || !is_written(*whole)) continue;
    // Of a writer that lives, here or on another machine that has this folder too, it is young.
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(path, error);
    if (!error && age > kAbandoned) fs::remove(path, error);
  }
}

std::string etag_of(std::string_view text) { return hash_text(hash_of(text)); }

}  // namespace

bool is_text(std::string_view bytes) {
  if (bytes.find('\0') != bytes.npos) return false;
  try {
    static_cast<void>(nlohmann::json(std::string(bytes)).dump());  // refuses what is not UTF-8
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

bool link_to_new_name(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) != 0) {
    if (errno == EEXIST) return false;
    fail_to_write(to, errno);
  }
  if (::unlink(from.c_str()) != 0) {
    const int error = errno;
    ::unlink(to.c_str());
    fail_to_write(from, error);
  }
  return true;
}

bool move_to_new_name(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno == EINVAL || errno == ENOSYS) return link_to_new_name(from, to);
  fail_to_write(to, errno);
}

Folder::Folder(fs::path root) : root_(fs::canonical(root)) {}

fs::path Folder::resolve(const std::string& path) const {
  if (path.empty() || path.size() > 4000) refuse(400, "wanted the path of a file, found none");
  if (path.find('\0') != path.npos || path.find('\\') != path.npos || !is_text(path)) {
    refuse(400, "this is no path of a file");
  }
  const fs::path relative(path);
  if (relative.is_absolute()) refuse(400, path, ": wanted a path relative to the folder");
  for (const fs::path& part : relative) {
    if (part == "..") refuse(400, path, ": a path does not go up");
  }
  const auto whole = followed(root_ / relative);
  if (!whole || !lies_in(root_, *whole)) refuse(400, path, ": this is outside the folder");
  return *whole;
}

std::vector<ListedFile> Folder::list() const {
  std::vector<ListedFile> files;
  list_into(root_, root_, 1, files);
  return files;
}

SavedText Folder::read(const std::string& path) const {
  const fs::path file = resolve(path);
  std::error_code error;
  if (!fs::exists(file, error)) refuse(404, path, ": there is no such file");
  if (!is_file(file)) refuse(400, path, ": this is not a plain file");
  if (fs::file_size(file, error) > kMostText) {
    refuse(413, path, ": a text that is shown has at most 8 MiB");
  }
  SavedText saved{.text = read_file(file), .etag = ""};
  if (!is_text(saved.text)) refuse(415, path, ": this file is not text (UTF-8)");
  saved.etag = etag_of(saved.text);
  return saved;
}

void Folder::sweep() const {
  size_t left = kMostFiles;
  sweep_in(root_, 1, left);
}

void Folder::check_name(const std::string& path, const fs::path& file) const {
  // What a link leads to is what is written.
  for (const fs::path& name : {fs::path(path), file}) {
    if (!is_written(name)) {
      refuse(400, path, ": only files that end in ", join(kWritten, ", "), " are written");
    }
  }
  // Editors and version control keep commands in files of such folders.
  for (const fs::path& part : file.lexically_relative(root_)) {
    if (part.string().starts_with('.')) refuse(400, path, ": hidden files are not written");
  }
}

fs::path Folder::writable(const std::string& path) const {
  fs::path file = resolve(path);
  check_name(path, file);
  return file;
}

fs::path Folder::entry(const std::string& path) const {
  static_cast<void>(resolve(path));  // a link that leads outside is nobody's to move
  const fs::path said(path), folder = said.parent_path();
  const fs::path file = (folder.empty() ? root_ : resolve(folder.string())) / said.filename();
  check_name(path, file);
  return file;
}

// Whether a file still is what was read. What is larger than a text was never read by a page.
static bool still_has(const fs::path& file, const std::string& etag) {
  std::error_code error;
  return fs::file_size(file, error) <= kMostText && !error && etag_of(read_file(file)) == etag;
}

std::string Folder::write(const std::string& path, std::string_view text, const std::string* etag) {
  const fs::path file = writable(path);
  if (text.size() > kMostText) refuse(413, path, ": a text has at most 8 MiB");
  const std::scoped_lock lock(writing_);
  std::error_code error;
  const bool exists = fs::exists(file, error);
  if (exists && !is_file(file)) refuse(400, path, ": this is not a plain file");
  if (!exists && etag) refuse(409, path, ": the file was removed meanwhile");
  if (exists && etag && !still_has(file, *etag)) {
    refuse(409, path, ": the file was changed by another program or page meanwhile");
  }
  fs::create_directories(file.parent_path(), error);
  if (error) refuse(400, path, ": its folder cannot be made: ", error.message());
  if (etag) {
    write_file_atomically(file, text);
    return etag_of(text);
  }
  AtomicFile fresh(file);
  fresh.write(text);
  fresh.finish();
  if (!move_to_new_name(fresh.temporary(), file)) {
    refuse(409, path, ": there is such a file already");
  }
  sync_folder(file.parent_path());
  return etag_of(text);
}

void Folder::rename(const std::string& from, const std::string& to) {
  const fs::path old = entry(from), fresh = entry(to);
  const std::scoped_lock lock(writing_);
  if (!is_file(old)) refuse(404, from, ": there is no such file");
  std::error_code error;
  fs::create_directories(fresh.parent_path(), error);
  if (error) refuse(400, to, ": its folder cannot be made: ", error.message());
  if (!move_to_new_name(old, fresh)) refuse(409, to, ": there is such a file already");
  sync_folder(fresh.parent_path());
  if (old.parent_path() != fresh.parent_path()) sync_folder(old.parent_path());
}

void Folder::remove(const std::string& path, const std::string& etag) {
  const fs::path file = entry(path);
  const std::scoped_lock lock(writing_);
  if (!is_file(file)) refuse(404, path, ": there is no such file");
  if (!still_has(file, etag)) {
    refuse(409, path, ": the file was changed by another program or page meanwhile");
  }
  if (::unlink(file.c_str()) != 0) refuse(400, path, ": cannot be removed: ", std::strerror(errno));
  sync_folder(file.parent_path());
}

}  // namespace adjoint

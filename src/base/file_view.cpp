#include "base/file_view.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/near_path.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

FileView& view() {
  static FileView all;
  return all;
}

constexpr int kMostLinks = 40;  // of a chain, as the system has it

// `whole` with its first link replaced by what the link says; nothing where it has none.
std::optional<fs::path> without_first_link(const fs::path& whole) {
  fs::path before, after;
  for (auto part = whole.begin(); part != whole.end(); ++part) {
    std::error_code error;
    const fs::path target = fs::read_symlink(before / *part, error);
    if (error) {
      before /= *part;
      continue;
    }
    while (++part != whole.end()) after /= *part;
    return after.empty() ? before / target : before / target / after;
  }
  return std::nullopt;
}

fs::path resolved(const fs::path& path) {
  auto whole = followed(path);
  if (!whole) fail(path.string(), ": the system cannot follow this path");
  return *whole;
}

bool lies_inside(const fs::path& path) {
  const fs::path& folder = view().inside;
  if (folder.empty()) return true;
  const auto whole = followed(path);
  return whole && lies_in(folder, *whole);
}

}  // namespace

bool lies_in(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

std::optional<fs::path> followed(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error);
  for (int links = 0; !error && links < kMostLinks; ++links) {
    whole = fs::weakly_canonical(whole, error);
    if (error) break;
    // A link to what does not exist yet is still in it, and whoever makes that file makes it there.
    auto next = without_first_link(whole);
    if (!next) return whole;
    whole = std::move(*next);
  }
  return std::nullopt;
}

void set_file_view(FileView wanted) {
  FileView& now = view();
  now = {};
  if (!wanted.inside.empty()) {
    std::error_code ignored;
    if (!fs::is_directory(wanted.inside, ignored)) {
      fail("--inside ", wanted.inside.string(), ": there is no such folder");
    }
    now.inside = resolved(wanted.inside);
    // A root has an empty last part, which no file below it has.
    if (!now.inside.has_filename()) now.inside = now.inside.parent_path();
  }
  now.read_only = wanted.read_only;
  for (auto& [path, text] : wanted.drafts) {
    now.drafts.insert_or_assign(resolved(checked_path(path)), std::move(text));
  }
}

const fs::path& checked_path(const fs::path& path) {
  if (lies_inside(path) || path == kThisProgram) return path;
  fail(path.string(), ": this is outside the folder ", view().inside.string(),
       ", and nothing outside it is read or written");
}

const fs::path& checked_output(const fs::path& path) {
  if (view().read_only) fail(path.string(), ": nothing is written here: this command only reads");
  return checked_path(path);
}

const std::string* draft_of(const fs::path& path) {
  const auto& drafts = view().drafts;
  if (drafts.empty()) return nullptr;
  const auto whole = followed(path);
  const auto found = whole ? drafts.find(*whole) : drafts.end();
  return found == drafts.end() ? nullptr : &found->second;
}

bool is_visible(const fs::path& path) {
  if (!lies_inside(path)) return false;
  std::error_code error;
  if (draft_of(path) || fs::exists(path, error)) return true;
  if (error == std::errc::permission_denied) check_may_enter(path);
  return false;
}

void make_folders(const fs::path& folder) {
  checked_output(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder.string(), ": this folder cannot be made: ", error.message());
}

}  // namespace adjoint

#include "report/profile_folder.h"

#include <algorithm>
#include <list>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {
constexpr const char* kAbout = "profile.json";
constexpr const char* kDrawn[] = {"memory.svg", "schedule.svg", "trace.json", "index.html"};
}  // namespace

nlohmann::json read_profile(const fs::path& folder) {
  if (!fs::exists(checked_path(folder))) fail(folder.string(), ": there is no such folder");
  if (!fs::is_directory(folder)) fail(folder.string(), ": a profile is a folder, this is a file");
  if (!fs::exists(folder / kAbout)) {
    fail(folder.string(),
         ": there is no profile here: wanted a folder that `adjoint profile` made");
  }
  const auto about = nlohmann::json::parse(read_file(folder / kAbout), nullptr, false);
  const bool ours = about.is_object() && about.contains("format") && about["format"].is_string();
  if (!ours) fail((folder / kAbout).string(), ": this is not what `adjoint profile` writes");
  if (about["format"] != kProfileFormat) {
    fail((folder / kAbout).string(), ": wanted the format '", kProfileFormat, "', found '",
         about["format"].get<std::string>(), "'");
  }
  return about;
}

void check_profile_folder(const fs::path& folder) {
  if (folder.empty()) fail("--out: wanted a folder, found ''");
  if (!fs::exists(checked_output(folder))) {
    // Tries to create and remove the folder, so that it is refused now and not after the run.
    std::error_code error;
    fs::path made = fs::absolute(folder);
    while (made.has_parent_path() && !fs::exists(made.parent_path())) made = made.parent_path();
    fs::create_directories(folder, error);
    if (error) fail(folder.string(), ": cannot be made: ", error.message());
    fs::remove_all(made, error);
    return;
  }
  if (!fs::is_directory(folder)) fail(folder.string(), ": --out wanted a folder, found a file");
  { AtomicFile probe(folder / kAbout); }  // refused now, not after the run
  if (fs::is_empty(folder)) return;
  if (!fs::exists(folder / kAbout)) {
    fail(folder.string(), ": this folder holds something that is no profile: choose another --out");
  }
  try {
    read_profile(folder);
  } catch (const Error& e) {
    fail(e.what(), ": choose another --out");
  }
}

void write_profile(const fs::path& folder, const std::vector<ProfileFile>& files) {
  std::error_code error;
  fs::create_directories(checked_output(folder), error);
  if (error) fail(folder.string(), ": cannot be made: ", error.message());
  std::list<AtomicFile> written;
  for (const ProfileFile& file : files) written.emplace_back(folder / file.name).write(file.text);
  for (AtomicFile& file : written) file.finish();
  for (AtomicFile& file : written) file.commit();
  // Of an older profile here, which had more to draw.
  for (const char* ours : kDrawn) {
    const auto same = [&](const ProfileFile& file) { return file.name == ours; };
    if (std::none_of(files.begin(), files.end(), same)) fs::remove(folder / ours, error);
  }
}

}  // namespace adjoint

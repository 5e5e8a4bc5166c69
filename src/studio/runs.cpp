#include "studio/runs.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "studio/api_error.h"
#include "studio/metrics_tail.h"

namespace adjoint {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kTail = 64 * 1024, kPiece = 4 * 1024 * 1024;
constexpr uintmax_t kLargestRun = 4 * 1024 * 1024;

// The last value of each entry that a page lists; the newest lines are enough for that.
void take_last_numbers(const fs::path& file, json& run) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(file, error));
  if (error) return;
  // The first line may begin in the middle, and is then no JSON.
  const MetricsPart tail = read_metrics(file, std::max<int64_t>(size - kTail, 0), kTail);
  for (const json& line : tail.lines) {
    for (const char* name : {"step", "loss", "val_loss"}) {
      const auto found = line.find(name);
      if (found != line.end() && found->is_number()) run[name] = *found;
    }
  }
}

// Files that some process has locked, as "device:inode". Whoever writes to a run holds its lock; to
// try the lock here would keep a run from it that begins just now.
std::set<std::string> locked_files() {
  std::set<std::string> found;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    unsigned major = 0, minor = 0;
    unsigned long long inode = 0;
    // "1: FLOCK  ADVISORY  WRITE 3481 08:01:1835026 0 EOF"; one who waits has "->" behind the
    // number.
    if (std::sscanf(line.c_str(), "%*d: FLOCK %*s %*s %*d %x:%x:%llu", &major, &minor, &inode) ==
        3) {
      found.insert(join_parts(major, ":", minor, ":", inode));
    }
  }
  return found;
}

bool is_locked(const fs::path& file, const std::set<std::string>& locked) {
  struct stat about = {};
  return ::stat(file.c_str(), &about) == 0 &&
         locked.count(
             join_parts(major(about.st_dev), ":", minor(about.st_dev), ":", about.st_ino)) > 0;
}

json about_run(const Folder& folder, const ListedFile& file, const std::set<std::string>& locked) {
  const fs::path about = folder.resolve(file.path + "/run.json");
  const fs::path metrics = folder.resolve(file.path + "/metrics.jsonl");
  std::error_code error;
  if (fs::file_size(about, error) > kLargestRun) refuse(413, file.path, ": its run.json is large");
  json run = {{"path", file.path}, {"model", nullptr}, {"step", nullptr},    {"steps", nullptr},
              {"loss", nullptr},   {"stack", nullptr}, {"val_loss", nullptr}};
  const auto read = try_parse_json(read_file(about));
  const json* said = std::get_if<json>(&read);
  const json options = said && said->is_object() ? said->value("options", json::object()) : json();
  if (options.is_object()) {
    for (const char* name : {"model", "steps", "stack"}) run[name] = options.value(name, json());
  }
  take_last_numbers(metrics, run);
  run["live"] = is_locked(folder.resolve(file.path) / ".lock", locked);
  const auto when = fs::last_write_time(metrics, error);
  const auto system = std::chrono::file_clock::to_sys(when).time_since_epoch();
  run["modified"] = error ? static_cast<double>(file.modified) * 1e-9
                          : std::chrono::duration<double>(system).count();
  return run;
}

}  // namespace

json list_runs(const Folder& folder) {
  json runs = json::array();
  const std::set<std::string> locked = locked_files();
  for (const ListedFile& file : folder.list()) {
    if (file.kind != "run") continue;
    try {
      runs.push_back(about_run(folder, file, locked));
    } catch (const Error&) {  // a link that leads outside, or a file that went meanwhile
    }
  }
  return {{"runs", runs}};
}

json metrics_of_run(const Folder& folder, const std::string& path, int64_t from) {
  const fs::path file = folder.resolve(path + "/metrics.jsonl");
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(file, error));
  if (error) refuse(404, path, ": this is no run, or it has no metrics yet");
  if (from < 0) refuse(400, "from: wanted 0 or more");
  // The file is shorter than what the page has seen: the run began anew or went back.
  if (from > size) from = 0;
  const MetricsPart part = read_metrics(file, from, kPiece);
  return {{"lines", part.lines}, {"from", from}, {"next", part.next}};
}

}  // namespace adjoint

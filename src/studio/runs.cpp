#include "studio/runs.h"

#include <algorithm>

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

json about_run(const Folder& folder, const ListedFile& file) {
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
  const auto when = fs::last_write_time(metrics, error);
  const auto system = std::chrono::file_clock::to_sys(when).time_since_epoch();
  run["modified"] = error ? static_cast<double>(file.modified) * 1e-9
                          : std::chrono::duration<double>(system).count();
  return run;
}

}  // namespace

json list_runs(const Folder& folder) {
  json runs = json::array();
  for (const ListedFile& file : folder.list()) {
    if (file.kind != "run") continue;
    try {
      runs.push_back(about_run(folder, file));
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

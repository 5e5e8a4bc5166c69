#include "device/limits.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error.h"

namespace adjoint {

namespace {

using std::filesystem::path;

// Looking takes a quarter of a millisecond, and small buffers are many.
constexpr Bytes kWorthAsking{1 << 20};

// Where a hierarchy of control groups is mounted, and which of its folders is the process's.
struct Hierarchy {
  path top, own;
};

std::vector<std::string> pieces_of(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  std::istringstream in(text);
  for (std::string piece; std::getline(in, piece, separator);) pieces.push_back(piece);
  return pieces;
}

bool holds(const std::string& list, const std::string& name) {
  const std::vector<std::string> names = pieces_of(list, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// mountinfo writes spaces and the like as octal numbers: "\040".
std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 3 < text.size();
    plain += escaped ? static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8))
                     : text[i];
    if (escaped) i += 3;
  }
  return plain;
}

// The process's group in the hierarchy of a controller, or in version 2's, whose name is empty.
std::optional<std::string> group_in(const path& root, const std::string& controller) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // number:controllers:group
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? names.empty() : holds(names, controller)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// A container often sees no more than a part of a hierarchy: what is mounted begins at a group of
// its own, and the names in proc/self/cgroup may be those from outside.
path folder_of(const path& top, const std::string& mounted, const std::string& group) {
  std::string below = group;
  if (mounted != "/") {
    if (!(group + "/").starts_with(mounted + "/")) return top;
    below = group.substr(mounted.size());
  }
  if (below.find("..") != std::string::npos) return top;
  const path folder = top / path(below).relative_path();
  std::error_code ignored;
  return std::filesystem::is_directory(folder, ignored) ? folder : top;
}

std::optional<Hierarchy> hierarchy_of(const path& root, const std::string& controller) {
  const auto group = group_in(root, controller);
  if (!group) return std::nullopt;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    // number parent device root place options [more] - type source options
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> mount = pieces_of(line.substr(0, dash), ' ');
    const std::vector<std::string> kind = pieces_of(line.substr(dash + 3), ' ');
    if (mount.size() < 5 || kind.size() < 3) continue;
    if (controller.empty() ? kind[0] != "cgroup2"
                           : kind[0] != "cgroup" || !holds(kind[2], controller)) {
      continue;
    }
    const path top = root / path(unescaped(mount[4])).relative_path();
    return Hierarchy{top, folder_of(top, unescaped(mount[3]), *group)};
  }
  return std::nullopt;
}

// The process's group and all groups around it: a limit of any of them holds.
void for_each_group(const path& root, const std::string& controller,
                    const std::function<void(const path&)>& visit) {
  const auto hierarchy = hierarchy_of(root, controller);
  if (!hierarchy) return;
  for (path group = hierarchy->own;; group = group.parent_path()) {
    visit(group);
    if (group == hierarchy->top || group == group.parent_path()) return;
  }
}

// The number in a file; nothing where there is no file, or where it says "max".
std::optional<int64_t> number_in(const path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

std::map<std::string, int64_t> named_numbers(const path& file) {
  std::map<std::string, int64_t> numbers;
  std::ifstream in(file);
  std::string name;
  for (int64_t number = 0; in >> name >> number;) numbers[name] = number;
  return numbers;
}

std::optional<Bytes> free_memory(const path& root) {
  std::ifstream in(root / "proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (in >> word) {
    if (word == "MemAvailable:" && in >> kib) return Bytes{kib * 1024};
  }
  return std::nullopt;
}

struct MemoryFiles {
  std::string controller;
  std::vector<std::string> limits;
  std::string used;
  std::vector<std::string> files;  // pages of files, in memory.stat
};

// A process above memory.high is not killed, but slowed down almost to a halt. Version 1 reports an
// enormous number if there is no limit.
const MemoryFiles kVersions[] = {{.controller = "",
                                  .limits = {"memory.max", "memory.high"},
                                  .used = "memory.current",
                                  .files = {"inactive_file", "active_file"}},
                                 {.controller = "memory",
                                  .limits = {"memory.limit_in_bytes"},
                                  .used = "memory.usage_in_bytes",
                                  .files = {"total_inactive_file", "total_active_file"}}};

}  // namespace

std::optional<AvailableMemory> available_memory(const path& root) {
  std::optional<AvailableMemory> least;
  if (const auto free = free_memory(root)) least = {*free, "the machine has"};
  for (const MemoryFiles& version : kVersions) {
    for_each_group(root, version.controller, [&](const path& group) {
      const auto used = number_in(group / version.used);
      if (!used) return;
      auto numbers = named_numbers(group / "memory.stat");
      int64_t held = *used;
      for (const std::string& name : version.files) held -= numbers[name];
      for (const std::string& name : version.limits) {
        const auto limit = number_in(group / name);
        if (!limit) continue;
        const Bytes left{std::max<int64_t>(0, *limit - std::max<int64_t>(0, held))};
        if (least && left >= least->bytes) continue;
        least = {left, "its container (the limit in " + (group / name).string() + ") has"};
      }
    });
  }
  return least;
}

std::optional<std::string> lack_of_memory(Bytes need, const std::string& what) {
  if (need < kWorthAsking) return std::nullopt;
  const auto available = available_memory();
  if (!available || need <= available->bytes) return std::nullopt;
  return join_parts(what, " needs ", human(need), " (", need.count, " bytes) of memory, ",
                    available->giver, " ", human(available->bytes), " available");
}

void check_memory(Bytes need, const std::string& what, const std::string& advice) {
  if (const auto lack = lack_of_memory(need, what)) fail(*lack, advice);
}

void check_space(const path& folder, Bytes need, const std::string& what,
                 const std::string& advice) {
  std::error_code error;
  path there = std::filesystem::absolute(folder, error);
  while (there.has_relative_path() && !std::filesystem::exists(there, error)) {
    there = there.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(there, error);
  if (error || need.count <= 0 || static_cast<uintmax_t>(need.count) <= space.available) return;
  const Bytes free{static_cast<int64_t>(space.available)};
  throw MachineError(join_parts(folder.string(), ": ", what, " needs ", human(need), " (",
                                need.count, " bytes) of disk, and ", human(free), " are free",
                                advice));
}

std::optional<double> allowed_processors(const path& root) {
  std::optional<double> least;
  const auto take = [&](std::optional<int64_t> quota, std::optional<int64_t> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const double processors = static_cast<double>(*quota) / static_cast<double>(*period);
    least = std::min(least.value_or(processors), processors);
  };
  for_each_group(root, "", [&](const path& group) {
    std::ifstream in(group / "cpu.max");
    int64_t quota = 0, period = 0;
    if (in >> quota >> period) take(quota, period);  // else "max"
  });
  for_each_group(root, "cpu", [&](const path& group) {
    take(number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us"));
  });
  return least;
}

int available_processors() {
  int processors = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) processors = CPU_COUNT(&set);
  // A part of a processor is worth a thread too.
  if (const auto allowed = allowed_processors()) {
    processors = std::min(processors, static_cast<int>(std::ceil(*allowed)));
  }
  return std::max(1, processors);
}

}  // namespace adjoint

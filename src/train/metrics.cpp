#include "train/metrics.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"

namespace adjoint {

using nlohmann::json;

namespace {

void add_numbers(const json& line, const std::string& prefix,
                 std::vector<std::pair<std::string, double>>& to) {
  for (const auto& [name, value] : line.items()) {
    if (value.is_object()) add_numbers(value, prefix + name + "/", to);
    if (value.is_number()) to.emplace_back(prefix + name, value.get<double>());
  }
}

}  // namespace

void cut_metrics(const std::filesystem::path& file, int64_t step) {
  if (!std::filesystem::exists(file)) return;
  std::ifstream in(checked_path(file));
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const json entry = json::parse(line, nullptr, false);
    if (entry.is_object() && entry.value("step", int64_t{0}) <= step) kept += line + "\n";
  }
  write_file_atomically(file, kept);
}

Metrics::Metrics(SavePaths paths, bool tensorboard, int64_t step)
    : paths_(std::move(paths)), tensorboard_(tensorboard) {
  open(step);
}

void Metrics::open(int64_t step) {
  lines_ = std::ofstream(checked_output(paths_.metrics()), std::ios::app);
  if (tensorboard_) events_.emplace(paths_.folder, step);
}

void Metrics::write(const json& line) {
  lines_ << line.dump() << "\n" << std::flush;
  if (!lines_) throw MachineError(paths_.metrics().string() + ": cannot be written");
  if (!events_) return;
  json told = line;
  told.erase("step");
  std::vector<std::pair<std::string, double>> numbers;
  add_numbers(told, "", numbers);
  events_->add(line.at("step").get<int64_t>(), numbers);
}

void Metrics::go_back(int64_t step) {
  lines_.close();
  cut_metrics(paths_.metrics(), step);
  open(step);
}

}  // namespace adjoint

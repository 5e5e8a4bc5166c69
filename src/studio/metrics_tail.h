// New lines of a run's metrics.jsonl. A run that is resumed, or goes back to a save, rewrites the
// file with some of its last lines left out; those that it then appends are new.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace adjoint {

class MetricsTail {
 public:
  // What the file holds by now is not new.
  explicit MetricsTail(std::filesystem::path file);
  std::vector<nlohmann::json> next();

 private:
  std::filesystem::path file_;
  std::vector<uint64_t> seen_;  // a hash per complete line
  uint64_t inode_ = 0;
  int64_t position_ = 0;  // behind the last complete line
};

// The entries of complete lines from a byte on, and the byte behind them.
struct MetricsPart {
  nlohmann::json lines;
  int64_t next = 0;
};
MetricsPart read_metrics(const std::filesystem::path& file, int64_t from, int64_t most_bytes);

}  // namespace adjoint

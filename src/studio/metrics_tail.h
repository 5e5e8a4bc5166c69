// New lines of a run's metrics.jsonl. A run that is resumed, or goes back to a save, rewrites the
// file with some of its last lines left out; those that it then appends are new.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace adjoint {

class MetricsTail {
 public:
  // What the file holds by now is not new.
  explicit MetricsTail(std::filesystem::path file);
  std::vector<nlohmann::json> next();

 private:
  // Whether the last line that was read is where it was.
  bool has_last_line() const;

  std::filesystem::path file_;
  std::vector<uint64_t> seen_;  // a hash per complete line
  struct {
    int64_t begin = 0, size = 0;
  } last_;  // of them, in the file
  uint64_t inode_ = 0;
  std::pair<int64_t, int64_t> changed_ = {};  // when: seconds and nanoseconds
  int64_t position_ = 0;                      // behind the last complete line
};

// The entries of complete lines from a byte on, and the byte behind them.
struct MetricsPart {
  nlohmann::json lines;
  int64_t next = 0;
};
MetricsPart read_metrics(const std::filesystem::path& file, int64_t from, int64_t most_bytes);

}  // namespace adjoint

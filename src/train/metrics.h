// What a run tells of its steps: lines of metrics.jsonl and, if asked for, TensorBoard's events.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/event_file.h"
#include "train/store.h"

namespace adjoint {

// Removes the lines of steps after `step`, which are repeated.
void cut_metrics(const std::filesystem::path& file, int64_t step);

class Metrics {
 public:
  // Goes on behind this step.
  Metrics(SavePaths paths, bool tensorboard, int64_t step);

  // A line has its "step"; numbers by name inside it ("grad_norms") are told as "grad_norms/NAME"
  // to TensorBoard. Throws a MachineError where the disk is full.
  void write(const nlohmann::json& line);
  // The steps behind this one are run again.
  void go_back(int64_t step);

 private:
  void open(int64_t step);

  SavePaths paths_;
  bool tensorboard_;
  std::ofstream lines_;
  std::optional<EventFile> events_;
};

}  // namespace adjoint

// Saves beside the one that a run goes on from: the best so far (OUT/best) and the last few
// (OUT/step-500). Each is a run's folder of its own, to sample from or to go on with.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "run/run.h"
#include "train/config.h"
#include "train/store.h"

namespace adjoint {

class SideSaves {
 public:
  // The run must outlive this object; `model` identifies its scheme (see fingerprint).
  // Of several ranks all have one, with a group of their own (train/state_copy.h).
  SideSaves(SavePaths run_folder, const Run& run, std::string model, const TrainConfig& config,
            std::optional<Communicator> group = std::nullopt);

  // What --keep asks for, of this step; older ones are removed.
  void keep(int64_t step) const;
  // What --keep-best asks for.
  void keep_best(int64_t step) const;

 private:
  void save_to(const std::string& name, int64_t step) const;

  SavePaths paths_;
  const Run& run_;
  std::string model_;
  int64_t num_kept_;
  bool best_;
  std::optional<Communicator> group_;
};

// Removes such saves of an earlier run.
void remove_side_saves(const SavePaths& paths);

// The lowest validation loss in a run's metrics, and how many evaluations came since.
struct BestLoss {
  double loss = 1e300;
  int64_t evaluations_since = 0;
  bool note(double found);  // whether it is the best
};
BestLoss best_loss_in(const std::filesystem::path& metrics);
// In the metrics: the line's evaluation was made because the command stopped there, and the run's
// schedule had none.
inline constexpr const char* kOfAStop = "at_stop";

}  // namespace adjoint

// The flags of every command that speaks of one step of a model, and what they name.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "functors/pipeline.h"
#include "plan/plan.h"
#include "train/bound_model.h"

namespace adjoint {

// Ranks that are threads of this process share its cores, where --threads (0: unsaid) does not say
// how many each has.
void share_cores(int64_t said, int ranks);

// Of commands that look at one rank of a step.
inline constexpr const char* kRanksHelp =
    "how many ranks there are, where the stack has an axis that takes those which others leave";

// What an option of a run is for, where a flag of another command is the same option.
const std::string& run_help(const std::string& option);

// Which model, in which sizes.
struct ModelFlags {
  std::string model = "gpt2";
  int64_t batch = 1, context = 0, seq = 0, vocab = 0;
  std::vector<std::string> set;

  void add_to(CLI::App& command);  // --model --batch --context --seq --set
};
BoundModel bound_model(const ModelFlags& flags);  // refuses flags that are none

// Where it runs.
struct DeviceFlags {
  std::string device = "cpu";
  bool deterministic = false;

  void add_to(CLI::App& command);    // --device --deterministic
  Target target() const;             // refuses a device that is none, or is not here
  PlanOptions plan_options() const;  // for as many threads as there are now
};

// Which step of it.
struct StepFlags {
  ModelFlags model;
  StepOptions step;
  int64_t threads = 0;
  DeviceFlags device;  // a CPU, where they were not added

  void add_to(CLI::App& command);  // the model's, --vocab --optimizer --clip --stack --threads
  // Also sets the number of threads, for which plans are made.
  BoundModel bound() const;
  BuiltStep built(const BoundModel& model) const;
  static void warn_of(const BuiltStep& built);          // what its functors found hardly meant
  std::string describe(const BoundModel& model) const;  // gpt2, batch 4 x 1024 tokens, adamw ...
};

}  // namespace adjoint

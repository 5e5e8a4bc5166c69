// A profile: what was predicted for a step beside what a run measured, for people and machines.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "plan/plan.h"
#include "report/stage_table.h"
#include "run/machine.h"
#include "run/profile.h"

namespace adjoint {

// Which step was profiled. The times are valid only for the same model on the same machine.
struct ProfiledStep {
  std::string model;        // its name
  std::string fingerprint;  // of its scheme (train/save.h)
  std::string title;        // for people
  int64_t batch = 1, context = 1;
  std::string stack, optimizer;
  double clip = 0;
};

struct Profile {
  ProfiledStep step;
  const Scheme& scheme;
  const Plan& plan;
  Measured measured;
  std::vector<Measured> ranks = {};  // of a mesh: each of them
  MachinePeak peak;
  double predicted_seconds = 0;  // of a step
  Fabric fabric = {};            // between ranks, by which it was predicted
  Bytes of_process = {0};        // planned for all ranks of the process; 0: for the one rank
  // Of a pipeline, whose largest stage's scheme and plan are above.
  const StagesAtWork* stages = nullptr;
  bool processes = false;  // each rank was one

  Bytes planned_of_process() const;
};

// {"peak_bytes", "measured_peak_bytes", "witness_bytes", "step_s",
// "measured_step_s", "categories"}, and beside them host_*, library_bytes, flops and utilization.
nlohmann::json profile_json(const Profile& profile);
// The same, the step's identity, and tables of time, as the profile's folder keeps it.
nlohmann::json full_profile_json(const Profile& profile);
std::string profile_table(const Profile& profile);

// Shares of the machine's measured peak, in 0..1.
struct Utilization {
  double model = 0, hardware = 0;
};
Utilization utilization_of(const Profile& profile);

}  // namespace adjoint

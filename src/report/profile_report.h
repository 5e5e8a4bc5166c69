// A profile: what was predicted of a step beside what a run of it found, for people and machines.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "plan/plan.h"
#include "run/machine.h"
#include "run/profile.h"

namespace adjoint {

// Which step it was. A profile's times are good for the same model on the same machine only.
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
  MachinePeak peak;
  double predicted_seconds = 0;  // of a step
};

// {"predicted_peak_bytes", "measured_peak_bytes", "witness_bytes", "predicted_step_s",
// "measured_step_s", "categories"}, and beside them host_*, library_bytes, flops and utilization.
nlohmann::json profile_json(const Profile& profile);
// The same, which step it was, and tables of time: what a profile's folder keeps.
nlohmann::json full_profile_json(const Profile& profile);
std::string profile_table(const Profile& profile);

// Of the machine's measured peak, in 0..1.
struct Utilization {
  double model = 0, hardware = 0;
};
Utilization utilization_of(const Profile& profile);

}  // namespace adjoint

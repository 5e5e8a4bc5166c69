// What a plan says of memory, for people and for machines, and what a run then finds.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "run/run.h"

namespace adjoint {

struct Measured {
  Bytes touched;             // the end of the highest byte that really changed
  Bytes host_touched = {0};  // the same of the next tier
  double step_seconds = 0;
};

// Runs a few steps on random tokens in an arena filled with a pattern.
Measured measure_step(const Scheme& step, const Plan& plan);

// The device's table, and one of the host's where the plan uses that tier.
std::string memory_table(const Plan& plan, const std::optional<Measured>& measured);
// {"peak_bytes", "live_bytes", "categories": {...}, "host_peak_bytes"}; the categories add up to
// the peak. Where the host is used also "host_live_bytes" and "host_categories".
nlohmann::json memory_json(const Plan& plan);

}  // namespace adjoint

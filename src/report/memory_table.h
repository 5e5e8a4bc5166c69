// What a plan says of memory, for people and for machines, and what a run then finds.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "run/run.h"

namespace adjoint {

struct Measured {
  Bytes touched;  // the end of the highest byte that really changed
  double step_seconds = 0;
};

// Runs a few steps on random tokens in an arena filled with a pattern.
Measured measure_step(const Scheme& step, const Plan& plan);

std::string memory_table(const Plan& plan, const std::optional<Measured>& measured);
// {"peak_bytes", "live_bytes", "categories": {...}}; the categories add up to the peak.
nlohmann::json memory_json(const Plan& plan);

}  // namespace adjoint

// A plan's memory, for people and for machines, beside what a run measured.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "run/profile.h"

namespace adjoint {

std::string key_of(Category category);  // its name in JSON, "optimizer_state"

// A table for the device, and one for the host if the plan uses it.
std::string memory_table(const Plan& plan, const std::optional<Measured>& measured);
// {"peak_bytes", "live_bytes", "categories": {...}, "host_peak_bytes"}; the categories add up to
// the peak. Where the host is used also "host_live_bytes" and "host_categories".
nlohmann::json memory_json(const Plan& plan);
// The same of a pipeline, whose largest stages on the device and on the host may be two.
nlohmann::json memory_json(const Plan& on_device, const Plan& on_host);

}  // namespace adjoint

// The memory of a planned step over time, for machines (docs/json.md, "A timeline").
#pragma once
#include <nlohmann/json.hpp>

#include "report/timeline.h"

namespace adjoint {

// The device's, and under "host" the host's where the plan uses it. `seconds` are those of the
// planned calls, and `copies_overlap` is as the predicted step has it (DeviceSheet::overlaps).
nlohmann::json timeline_json(const Scheme& scheme, const Plan& plan,
                             const std::vector<double>& seconds, bool copies_overlap,
                             const StepClock& clock = {});

}  // namespace adjoint

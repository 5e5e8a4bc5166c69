// A preset is a model's sizes; who names one where trained weights are wanted is told so.
#pragma once
#include <filesystem>

namespace adjoint {

// Refuses a path that leads nowhere and is the name of a preset.
void check_no_preset(const std::filesystem::path& folder);

}  // namespace adjoint

// The tensors of a save, as a run holds them and as a file names them. For train/save.cpp and
// train/state_copy.cpp.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "run/run.h"

namespace adjoint {

std::string format_name(Dtype dtype);  // "F32", as safetensors calls it

std::vector<Value> inputs_of(const Scheme& scheme, Role role);
// Views of a scheme's inputs with this role, whole whatever a rank holds of them; `run`, if not
// null, holds their data.
std::vector<SafetensorView> views_of(const Scheme& scheme, Role role, const Run* run);

// Refuses numbers that are none any more.
void check_finite(std::span<const SafetensorView> tensors);

// What a file of a save says of itself.
std::map<std::string, std::string> save_metadata(int64_t step, const std::string& model,
                                                 const std::string& checksum);

}  // namespace adjoint

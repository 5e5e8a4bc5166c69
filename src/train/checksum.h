// The checksum of the tensors in a save: the sum of their hashes, so their order does not matter.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "data/safetensors.h"

namespace adjoint {

std::string checksum_of(std::span<const SafetensorView> tensors);

// Whether `checksum` is that of these tensors; saves from before xxHash hold one of another kind.
bool is_checksum_of(std::string_view checksum, std::span<const SafetensorView> tensors);

}  // namespace adjoint

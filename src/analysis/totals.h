// Sums over a whole scheme.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Attributes that say where a call came from and nothing of what it computes.
inline bool is_bookkeeping(std::string_view attribute) {
  return attribute == "from" || attribute == "repeated";
}

// Of a step on a mesh: those of all ranks together. Codes with scales count as the matrix that they
// stand for.
int64_t num_parameters(const Scheme& scheme);
// The same object by object: 0 for what is no input, no parameter, or the scales of codes.
std::vector<int64_t> parameters_by_object(const Scheme& scheme);
int64_t num_trained(const Scheme& scheme);  // those of them that no rule and no text has frozen
// What a call computes for the sake of recomputation alone: all of a call that is one, and of a
// recomputation that `fuse` joined to others what those would not have computed themselves.
int64_t repeated_flops(const Scheme& scheme, const Morphism& m);
// By phase: forward, backward, update. Large models count past what 64 bits hold.
std::array<double, 3> flops_by_phase(const Scheme& scheme);

}  // namespace adjoint

// Compares two runs of a step: bit for bit, or by each one's distance from a float64 reference.
#pragma once
#include "laws/trace.h"

namespace adjoint {

// The scheme with every 16-bit float widened to float32: what it would compute without rounding.
Scheme without_narrow(const Scheme& scheme);
bool has_narrow(const Scheme& scheme);

bool same_bits(const Numbers& a, const Numbers& b);
// |a - b| / max(|b|, least). If neither is finite, they agree: a float16 step that overflows is
// skipped, and must overflow in the reference, too.
double relative_error(const Numbers& a, const Numbers& b, double least = 0);

// Per tensor that both have: its distance from the reference. The error of a gradient is not taken
// relative to less than a small share of all gradients of the step: a gradient that is zero by
// symmetry (the bias of a key in attention) is only noise, and relative errors of noise mean
// nothing. Likewise the changes that such a gradient makes to its parameter and moments are
// measured against all changes of their kind.
using Errors = std::map<TensorKey, double>;
Errors errors_against(const Trace& run, const Trace& reference);
// How far a run is from another model's at the first step, where both have the same weights and
// batch: in the loss, and in all gradients that both have, together. Nothing where they share none.
struct Moved {
  double loss = 0;
  std::optional<double> gradients = {};
};
Moved moved_from(const Trace& run, const Trace& other);
void raise(Moved& moved, const Moved& other);
// Tensors that both have and whose bits differ, with their relative distance.
Errors bit_differences(const Trace& a, const Trace& b);
// Whether some step was not skipped; for an evaluation, whether there is a loss.
bool is_finite_somewhere(const Trace& trace);
// Raises each error to the other one, if that is larger.
void raise(Errors& errors, const Errors& others);

}  // namespace adjoint

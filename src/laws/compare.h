// Two runs of a step compared: bit for bit, or each by its distance from a float64 reference.
#pragma once
#include "laws/trace.h"

namespace adjoint {

// The scheme with every narrow float as wide as float32: what it would compute without rounding.
Scheme without_narrow(const Scheme& scheme);
bool has_narrow(const Scheme& scheme);

bool same_bits(const Numbers& a, const Numbers& b);
// |a - b| / max(|b|, least). Where neither is finite they agree: a step in float16 that overflows
// is skipped, and must overflow in the reference too.
double relative_error(const Numbers& a, const Numbers& b, double least = 0);

// Per tensor that both have: its distance from the reference. A gradient is also measured against
// all gradients of its step together: where a gradient is zero by symmetry (the bias of a key in
// attention), what is left of it is noise, and no share of noise means anything. What such a
// gradient does to its parameter and its moments is measured against all changes of their kind.
using Errors = std::map<TensorKey, double>;
Errors errors_against(const Trace& run, const Trace& reference);
// How far a run is from another model's at the first step, where both have the same weights and the
// same batch: the loss, and all gradients that both have, together. Nothing where they share none.
struct Moved {
  double loss = 0;
  std::optional<double> gradients = {};
};
Moved moved_from(const Trace& run, const Trace& other);
void raise(Moved& moved, const Moved& other);
// Tensors that both have and whose bits differ, with their relative distance.
Errors bit_differences(const Trace& a, const Trace& b);
// Whether there is a step that was not skipped; of an evaluation, whether there is a loss.
bool is_finite_somewhere(const Trace& trace);
// The larger of the two, tensor by tensor.
void raise(Errors& errors, const Errors& others);

}  // namespace adjoint

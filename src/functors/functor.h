// A functor takes a scheme to a scheme and states its law. The phases of a step are fixed
// (pipeline.cpp is their table of contents); a functor belongs to one.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// What a training step is made with, beside the model's text.
struct StepOptions {
  std::string optimizer = "adamw";  // sgd, momentum, adamw
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.1;  // of matrices and tables
  double clip = 1.0;          // the largest norm of all gradients together; 0: no clipping
};

enum class FunctorPhase : uint8_t {
  kMorphisms,    // rules that rewrite uses: adapters, joined projections
  kAdjoint,      // reverse mode, and the optimizer: the whole step
  kStepRules,    // loss scaling, clipping; attributes by role
  kBitChanging,  // fusions whose sums differ: epilogues, chunked readout
  kRealize,      // precision, placement, time, residence and tier last
  kExact,        // fusions and simplifications that keep bits
};

struct Functor {
  std::string_view name;
  std::string_view summary;
  std::string_view law;
  FunctorPhase phase;
  Scheme (*apply)(const Scheme&, const StepOptions&);
};

std::span<const Functor* const> all_functors();

// A model's forward scheme, with the loss as (sum, count), to one whole training step. The verifier
// runs after every functor. Outputs: loss, count and the norm of the gradient.
Scheme training_step(const Scheme& forward, const StepOptions& options);

// The same scheme as the reference runs it: float64 throughout, fused ops as their meaning.
Scheme to_reference(const Scheme& scheme);

// The forward scheme as it is evaluated: random ops pass their first operand through.
Scheme without_randomness(const Scheme& forward);

// The forward scheme without its loss, its output the logits that the loss reads.
Scheme logits_of(const Scheme& forward);

}  // namespace adjoint

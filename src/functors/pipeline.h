// From a model to a step: a stack applied to a forward scheme, for training or for evaluation.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "functors/stack.h"

namespace adjoint {

// What one functor did.
struct Applied {
  std::string name;  // with its arguments
  Law law = Law::kExact;
  std::string against = {};  // what the law compares with (stack.h); "": the stack without it
  bool by_default = false;
  bool idle = false;  // it is for another target
  int64_t matches = 0;
  std::map<std::string, int64_t> counts = {};
  std::vector<std::string> idle_rules = {};  // those that found nothing, with their places
  std::vector<std::string> doubts = {};      // what its rules found that can hardly be meant
  int64_t calls_added = 0;                   // by its rules; less than 0 where they joined calls
};
struct BuiltStep {
  Scheme scheme;
  std::vector<Applied> applied = {};
};

// A model's forward scheme, with the loss as (sum, count), to one whole training step. The verifier
// runs after every functor. Outputs: loss, count and the norm of the gradient (phases.h: and more,
// where options ask for it).
BuiltStep build_step(const Scheme& forward, const Stack& stack, const StepOptions& options,
                     std::vector<Firing>* firings = nullptr);
// The same for those who build many steps of one model with the same options but for the stack: the
// gradients and the optimizer are made once for all stacks whose morphism rules are the same. May
// be used by several threads at once.
class StepBuilder {
 public:
  StepBuilder(Scheme forward, StepOptions options);
  ~StepBuilder();
  BuiltStep build(const Stack& stack);
  Scheme said(const Stack& stack);  // as said_step

 private:
  struct Beginnings;
  Scheme forward_;
  StepOptions options_;
  std::unique_ptr<Beginnings> beginnings_;
};
// The same only as far as attributes are said, before anything is realized: what could be chosen.
Scheme said_step(const Scheme& forward, const Stack& stack, const StepOptions& options);
Scheme training_step(const Scheme& forward, const StepOptions& options);
// The same stack on the forward scheme alone, without randomness: what is evaluated, beside the
// step's own state. Outputs: loss and count.
BuiltStep build_evaluation(const Scheme& forward, const Stack& stack, const StepOptions& options);
Scheme evaluation_scheme(const Scheme& forward, const Stack& stack, const StepOptions& options);
// The same of a few positions at a time, by the functors of forward schemes: `cache`
// (carry_positions.h) with parameters held as narrow as they are read. Output: what the forward
// scheme returns, of one position.
struct GenerationOptions {
  int64_t positions = 0;
  int64_t most = 0;         // of any step that goes on from the same state; 0: as many
  int64_t usable = 0;       // tokens that may be chosen; 0: none is
  bool all_frozen = false;  // for the stack, which may then hold any parameter as codes
};
Scheme generation_scheme(const Scheme& forward, const Stack& stack, const StepOptions& options,
                         const GenerationOptions& generation);

}  // namespace adjoint

// Checks a stack's laws on one model, one by one. If a law is broken, finds the functor and the
// object.
#pragma once
#include <functional>

#include "laws/judge.h"
#include "train/bound_model.h"

namespace adjoint {

struct Report {
  bool ok = true, refused = false;
  std::string reason = {};  // when it is not ok: one sentence
  Law law = Law::kExact;
  std::string against = {};  // what it is true of, where not of the step as it comes (stack.h)
  std::vector<Verdict> functors = {};  // the named ones, then the defaults
  double max_error = 0,
         plain_error = 0;           // largest error of a gradient: of the stack, of the plain step
  std::optional<Moved> moved = {};  // for an approximating stack: distance from the plain model
  std::vector<std::string> sizes = {};  // that it was checked at
  std::string smallest = {};            // stack that is broken
  // One sentence for each thing that the stack does in the model and in no checked copy. As long as
  // there are any, a pass does not prove that all laws hold for the model.
  std::vector<std::string> unseen = {};
  // What can hardly be meant, each in one sentence (laws/later_tokens.h).
  std::vector<std::string> doubts = {};
};

// Called after every functor with progress: how many are done, of how many, and which one.
using Told = std::function<void(int64_t done, int64_t of, const std::string& what)>;

Report verify_stack(const std::vector<Subject>& subjects, const Stack& stack,
                    const Told& told = nullptr);

struct VerifyOptions {
  ModelSizes sizes = {.batch = 0};  // a batch of 0: as many samples as the stack needs
  StepOptions step = {};
  int64_t seeds = 3;
  bool full = false;  // the real size, not the shrunken copies
  Target target = Target::kCpu;
};
// The copies on which a user's model and stack are checked: two widths, or the model itself. The
// narrow copy has enough blocks for every branch of a rule that acts in the model to act in it, up
// to a limit.
struct Checkup {
  std::vector<Subject> subjects = {};
  Stack stack;                           // with the arguments for small copies
  std::vector<std::string> unseen = {};  // as in the report
};
Checkup checkup_for(const ModelText& text, const Stack& stack, const VerifyOptions& options);
std::vector<Subject> subjects_for(const ModelText& text, const Stack& stack,
                                  const VerifyOptions& options);
Report verify_model(const ModelText& text, const Stack& stack, const VerifyOptions& options,
                    const Told& told = nullptr);

}  // namespace adjoint

// A stack's laws on one model, one by one; and where a law is broken, by which functor and at which
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
  std::vector<Verdict> functors = {};     // the named ones, then the defaults
  double max_error = 0, plain_error = 0;  // of a gradient: the stack's, the plain step's
  std::optional<Moved> moved = {};        // of an approximating stack: from the plain model
  std::vector<std::string> sizes = {};    // that it was checked at
  std::string smallest = {};              // stack that is broken
  // What the stack does in the model and did nowhere in what was checked, one sentence each. While
  // there is any, that no law was broken does not mean that all are kept.
  std::vector<std::string> unseen = {};
};

// Told after every functor: how many are done, of how many, and what is done.
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
// What a user's model and stack are checked on: two widths, or the real one. The narrow copy has as
// many blocks as it takes for every branch of a rule to act in it that acts in the model, up to a
// limit.
struct Checkup {
  std::vector<Subject> subjects = {};
  Stack stack;                           // as it is told on small copies
  std::vector<std::string> unseen = {};  // as in the report
};
Checkup checkup_for(const ModelText& text, const Stack& stack, const VerifyOptions& options);
std::vector<Subject> subjects_for(const ModelText& text, const Stack& stack,
                                  const VerifyOptions& options);
Report verify_model(const ModelText& text, const Stack& stack, const VerifyOptions& options,
                    const Told& told = nullptr);

}  // namespace adjoint

// Holds a functor to its law: a stack with it against the same stack without it, functors that are
// on by default on in both.
//
// exact: every loss, gradient, parameter and state that both have, bit for bit.
//
// The function that a stack computes is that of its functors that approximate, without all others
// and without the defaults: those keep it. Its float64 reference is the judge of both other laws.
//
// reassociating: both are measured against the reference of the stack without the functor (nothing
// is rounded where objects are narrow, since both round). The larger error over the seeds, per
// tensor, may be four times as large with the functor as without.
//
// approximating: the stack against its own reference, which is rounded where objects are stored
// narrow. It may be off by four times what the stack without the functor is off from its
// own reference, or by four times what the reference itself moves when every parameter moves by up
// to 2^-22 of itself before every step: some functions magnify what they are given. A tensor that
// only the functor brings is allowed at least what the worst of its kind is. Where objects are
// narrow, one rounding near a tie that falls the other way moves everything behind it by about a
// unit of the narrow type, or nothing moves at all; so there parameters are moved by twice as much,
// and so on, until some gradient moves by half a unit, and what the worst tensor of a kind moves by
// is allowed four times to all of that kind.
//
// The error of one run is one draw: a tensor of few numbers may be right by chance, and where sums
// cancel (deep chains, tiny widths) plain noise may be as large as the tensor. So where a tensor is
// off by more than four times that, the stack without the functor is run again, several times, from
// parameters that differ by a unit in the last place of the narrowest type of the step. The largest
// error of all these runs is what a plain step may be off by, and four times it is allowed. What an
// approximating functor brings has no plain run: there it is how far such runs of the stack itself
// are from one another, in which a mistake does not show.
//
// No tensor is held to less than a few units in the last place of float32.
#pragma once
#include <memory>

#include "laws/compare.h"

namespace adjoint {

// A model at one size, and how it is run.
struct Subject {
  Scheme forward;
  StepOptions options = {};
  std::vector<uint64_t> seeds = {1, 2, 3};
  int steps = 2;
  std::string what = {};  // its size, for people
  // Whose kernels are judged. Those of a GPU by its deterministic ones: exact laws are of bits.
  Target target = Target::kCpu;
  // The scheme that is evaluated is judged, by its loss, and not the training step.
  bool evaluation = false;
};
BuiltStep build(const Subject& subject, const Stack& stack);

struct Verdict {
  std::string functor;  // with its arguments
  Law law = Law::kExact;
  bool by_default = false;
  int64_t matches = 0;
  bool ok = true;
  // Of the tensor that is nearest to what is allowed, or furthest past it.
  double error = 0, plain_error = 0, allowed = 0;
  std::string tensor = {};
  uint64_t seed = 0;
  int step = 0;
  std::string note = {};
  // Of an approximating functor, whose law says nothing of it: how far the step is from the model
  // without the functor.
  std::optional<Moved> moved = {};
};

// Where a law is first broken.
struct WrongNode {
  std::string source, op;
  double error = 0;
};

// Remembers every run until it is told to forget: the stack itself takes part in every comparison.
class Judge {
 public:
  explicit Judge(Subject subject);

  // An Error when the stack is refused.
  const BuiltStep& built(const Stack& stack);
  // Of the functor at `index`. An Error when the stack itself is refused.
  Verdict judge(const Stack& stack, size_t index);
  // How far the whole stack is from its own float64 reference: the largest error of a gradient.
  double largest_error(const Stack& stack);
  // How far the whole stack is from the model without any functor, in float64.
  Moved moved_by(const Stack& stack);
  // After a verdict that was not ok.
  std::optional<WrongNode> first_wrong(const Stack& stack, size_t index, const Verdict& verdict);

  void forget(const Stack& stack);
  // All but the stack, the plain step and their references.
  void forget_all_but(const Stack& stack);
  const Subject& subject() const { return subject_; }

 private:
  enum class Kind : uint8_t { kRun, kReference, kUnrounded };
  // A reference makes the choices of the run of `replayed` again.
  const Trace& trace(const Stack& stack, uint64_t seed, Kind kind, const Stack* replayed = nullptr);
  const Errors& moved_by_jitter(const Stack& function, uint64_t seed, const Stack& run);
  Scheme scheme_for(const Stack& stack, Kind kind);
  Trace node_trace(const Stack& stack, Kind kind, const Verdict& verdict, const Trace* replayed);
  void judge_bits(Verdict& verdict, const Stack& with, const Stack& rest);
  void judge_errors(Verdict& verdict, const Stack& with, const Stack& rest);
  struct Measured {
    Errors with, rest;
    std::optional<Moved> moved = {};
  };
  Stack function_of(const Stack& stack);
  const Errors& errors_between(const Trace& run, const Trace& reference);  // of kept traces
  Measured measure(Law law, const Stack& with, const Stack& rest, uint64_t seed);
  class Jittered;
  Errors plain_spread(Law law, const Stack& rest, uint64_t seed, Jittered& runs, int draw);
  Errors own_spread(const Stack& with, uint64_t seed, Jittered& runs, int draw);

  Subject subject_;
  InputRanges ranges_;
  DrawnNumbers drawn_;
  std::map<std::string, BuiltStep> built_;
  std::map<std::tuple<std::string, uint64_t, Kind, std::string>, std::unique_ptr<Trace>> traces_;
  std::map<std::pair<const Trace*, const Trace*>, Errors> errors_;
  std::map<std::tuple<std::string, uint64_t, std::string>, Errors> moved_;
};

// What tells two stacks apart: every functor with its arguments, defaults too.
std::string identity(const Stack& stack);

}  // namespace adjoint

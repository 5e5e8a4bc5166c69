// Checks a functor's law by comparing a stack with the same stack without the functor. Functors
// that are on by default are on in both.
//
// exact: every loss, gradient, parameter and state that both have is the same, bit for bit.
//
// The other two laws compare with a float64 reference of the function that a stack computes. Only
// approximating functors change that function, so the reference has those and no others, not even
// the defaults.
//
// reassociating: both stacks are compared with the reference of the stack without the functor
// (which does not round to 16 bits, since both stacks do). Per tensor, the largest error over the
// seeds may be four times as large with the functor as without.
//
// approximating: the stack is compared with its own reference, which rounds where objects are
// stored in 16 bits. Its error may be four times that of the stack without the functor against that
// one's own reference. It may also be four times as large as the change of the reference itself
// when every parameter is perturbed by up to 2^-22 of its value before every step, because some
// functions amplify small changes; and four times what float32 itself loses of that function, which
// is how far the reference moves where it rounds every object as it is stored: of log(y*y + 1) with
// a small y few digits are left, whoever computes it. A tensor that only the functor adds is
// allowed at least the largest error of its kind. With 16-bit objects a small perturbation either
// flips a rounding near a tie, which moves everything after it by about a unit of the narrow type,
// or changes nothing. So there the perturbation is doubled until some gradient moves by half a
// unit, and all tensors of a kind are allowed four times the largest change of that kind.
//
// The error of one run is one random sample: a tensor of few numbers may be right by chance, and
// where sums cancel (deep chains, tiny widths) rounding noise may be as large as the tensor. So if
// a tensor exceeds its bound, the stack without the functor is run several more times, with
// parameters perturbed by a unit in the last place of the step's narrowest type, and four times the
// largest error of all these runs is allowed. A tensor that only an approximating functor adds has
// no such runs; its bound is how far perturbed runs of the stack itself are from one another, which
// a mistake does not enlarge.
//
// No bound is below a few units in the last place of float32. A bound of a tenth of the tensor and
// more judges nothing: a part of the batch that is lost would pass. Such tensors are named as too
// noisy to be judged.
#pragma once
#include <map>
#include <memory>
#include <set>

#include "functors/pipeline.h"
#include "laws/compare.h"

namespace adjoint {

// A model at one size, and how it is run.
struct Subject {
  Scheme forward;
  StepOptions options = {};
  std::vector<uint64_t> seeds = {1, 2, 3};
  int steps = 2;
  std::string what = {};  // its size, for people
  // The target whose kernels are judged; on a GPU the deterministic ones, because exact laws
  // compare bits.
  Target target = Target::kCpu;
  // Judges the evaluation scheme, by its loss, instead of the training step.
  bool evaluation = false;
  // Counts of steps by source, where the run begins behind some; and by input, ids that the texts
  // tell from the others (reach.h).
  std::map<std::string, double> counted = {};
  std::map<std::string, std::vector<int64_t>> marks = {};
};
BuiltStep build(const Subject& subject, const Stack& stack);

struct Verdict {
  std::string functor;  // with its arguments
  Law law = Law::kExact;
  std::string against = {};  // what the law compares with (functors/stack.h)
  bool by_default = false;
  int64_t matches = 0;
  bool ok = true;
  // For the tensor that is closest to its bound, or furthest beyond it.
  double error = 0, plain_error = 0, allowed = 0;
  std::string tensor = {};
  uint64_t seed = 0;
  int step = 0;
  std::string note = {};
  // Tensors, of any step, by which a law that allows errors was judged, and those by which it could
  // not be, with the error that would have been allowed; and whether 16 bits may be why.
  std::set<TensorKey> judged = {};
  std::map<TensorKey, double> too_noisy = {};
  bool narrow = false;
  // For an approximating functor: how far the step is from the model without it. The law does not
  // limit that.
  std::optional<Moved> moved = {};
};

// Takes the tensors that were judged, at another step or size, from those that could not be.
void forget_judged(Verdict& verdict);

// A law that allows errors allows this many times what the step without the functor is off by.
constexpr double kAllowedTimes = 4;
// An allowed error, relative to the tensor, that judges nothing any more.
constexpr double kTooNoisy = 0.1;

// Where a law is first broken.
struct WrongNode {
  std::string source, op;
  double error = 0;
};

// Keeps every run until it is told to forget, because many comparisons use the same ones.
class Judge {
 public:
  explicit Judge(Subject subject);

  // Throws an Error if the stack is refused.
  const BuiltStep& built(const Stack& stack);
  // Judges the functor at `index`. Throws an Error if the stack itself is refused.
  Verdict judge(const Stack& stack, size_t index);
  // How far the whole stack is from its own float64 reference: the largest error of a gradient.
  double largest_error(const Stack& stack);
  // How far the whole stack is from the model without any functor, in float64.
  Moved moved_by(const Stack& stack);
  // After a verdict that was not ok (first_wrong.cpp).
  std::optional<WrongNode> first_wrong(const Stack& stack, size_t index, const Verdict& verdict);

  void forget(const Stack& stack);
  // Forgets all runs except those of the stack, of the plain step and of their references.
  void forget_all_but(const Stack& stack);
  const Subject& subject() const { return subject_; }

 private:
  // A reference rounds to 16 bits, to nothing, or to float32, too.
  enum class Kind : uint8_t { kRun, kReference, kUnrounded, kRounded };
  // A reference repeats the routing choices that the run of `replayed` made.
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

}  // namespace adjoint

// Runs of a step, remembered tensor by tensor, so that two of them can be compared: bit for bit, or
// each by its distance from a float64 reference. Tensors are found by source, because that is all
// that two stacks of one model have in common.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "functors/functor.h"
#include "run/run.h"

namespace adjoint {

using Numbers = std::vector<double>;

// What a model's integer inputs may hold, told from what reads them: ids below the rows of every
// table and the width of every loss; targets may also be the id that the loss does not count.
struct InputRange {
  int64_t below = 2;
  std::optional<int64_t> ignored = {};
};
using InputRanges = std::map<std::string, InputRange>;  // by path
InputRanges input_ranges(const Scheme& forward);

// A tensor of a trace: what it is, and after which step. State is looked at after the last one.
struct TensorKey {
  enum class Kind : uint8_t { kMetric, kGradient, kState };
  Kind kind;
  std::string source;
  int step;
  auto operator<=>(const TensorKey&) const = default;
};
std::string to_string(const TensorKey& key);

// An object at work: for finding the first that is wrong.
struct Node {
  std::string source, op;
  std::vector<int64_t> sizes;
  Numbers numbers;  // one iteration after the other
};

struct Trace {
  std::map<TensorKey, Numbers> tensors = {};
  std::map<std::string, Numbers> begin = {};                 // parameters and state, by source
  std::vector<std::map<std::string, Numbers>> choices = {};  // per step: integers that ops chose
  std::vector<Node> nodes = {};  // of the step that was asked for, in the scheme's order
};

struct TraceOptions {
  uint64_t seed = 1;
  int steps = 2;
  bool reference = false;  // the scheme is a reference's
  Target target = Target::kCpu;
  // Begin with the numbers of this run and make its choices again, as a judge must.
  const Trace* replayed = nullptr;
  double jitter = 0;  // relative, of every parameter before every step
  int draw = 0;       // of the jitter: another number, another jitter
  int nodes_of = -1;  // a step of which every object is kept
};

// A step that overflows, as the first ones in float16 do, is taken again, with the loss scaled
// down. Some steps on masked, ragged batches that depend on the seed, the step and the input's path
// only.
Trace trace_run(const Scheme& step, const InputRanges& ranges, const TraceOptions& options);

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
// Whether there is a step that was not skipped.
bool is_finite_somewhere(const Trace& trace);
// The larger of the two, tensor by tensor.
void raise(Errors& errors, const Errors& others);

}  // namespace adjoint

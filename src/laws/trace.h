// Runs of a step on made-up data, remembered tensor by tensor. Tensors are found by source, because
// that is all that two stacks of one model have in common.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "functors/functor.h"
#include "run/initial_values.h"
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
  // Parameters and state by source, without state that begins as zeros.
  std::map<std::string, Numbers> begin = {};
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

// Runs one step as often as it is told to, each time from the beginning: it is planned and its
// kernels are prepared once. A step that overflows, as the first ones in float16 do, is taken
// again, with the loss scaled down. Batches are masked and ragged, and depend on the seed, the step
// and the input's path only.
class Tracer {
 public:
  // What the options say of reference, target and nodes holds for all runs. `drawn` remembers the
  // random numbers that parameters begin with, for other tracers too.
  Tracer(const Scheme& step, const InputRanges& ranges, const TraceOptions& options,
         DrawnNumbers* drawn = nullptr);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  Trace trace(const TraceOptions& options);

 private:
  const Scheme& scheme() const { return run_.scheme(); }
  void take_step();
  void find_gradients();
  void find_choices();
  bool begins_as_zeros(Value in) const;
  void begin();
  void jitter();
  void feed();
  void after_call(int at);
  void note_choice(Value out);

  const InputRanges& ranges_;
  TraceOptions options_;
  DrawnNumbers* drawn_;
  Run run_;
  bool fresh_ = true;  // nothing has run in it yet
  Trace trace_;
  int step_ = 0;
  double scale_ = 1;
  std::vector<Value> gradient_of_;  // per object: the parameter
  std::set<Value> chosen_;
  std::map<std::string, int64_t> replayed_;  // how much of a source's choices is used up
  std::vector<int> first_node_;              // per morphism
  std::vector<Node> nodes_;
};

Trace trace_run(const Scheme& step, const InputRanges& ranges, const TraceOptions& options);

}  // namespace adjoint

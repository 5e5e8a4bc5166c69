// Runs a step on synthetic data and keeps its tensors. Tensors are identified by source, because
// that is all that two stacks of one model have in common.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/input_ranges.h"
#include "run/initial_values.h"
#include "run/run.h"

namespace adjoint {

using Numbers = std::vector<double>;

// Identifies a tensor of a trace by kind, source and step. State is read after the last step.
struct TensorKey {
  enum class Kind : uint8_t { kMetric, kGradient, kState };
  Kind kind;
  std::string source;
  int step;
  auto operator<=>(const TensorKey&) const = default;
};
std::string to_string(const TensorKey& key);

// An intermediate object, for finding the first one that is wrong.
struct Node {
  std::string source, op;
  std::vector<int64_t> sizes;
  Numbers numbers;  // of all iterations, one after another
};

struct Trace {
  std::map<TensorKey, Numbers> tensors = {};
  // Parameters and state by source, without state that begins as zeros.
  std::map<std::string, Numbers> begin = {};
  std::vector<std::map<std::string, Numbers>> choices =
      {};                        // per step: integers that routing ops chose
  std::vector<Node> nodes = {};  // of the step `nodes_of`, in the scheme's order
};

struct TraceOptions {
  uint64_t seed = 1;
  int steps = 2;
  bool reference = false;  // the scheme is a float64 reference
  Target target = Target::kCpu;
  // Begins with the parameters of this run and repeats its routing choices, as a reference must.
  const Trace* replayed = nullptr;
  double jitter = 0;  // relative, of every parameter before every step
  int draw = 0;       // seed of the jitter
  int nodes_of = -1;  // the step of which every object is kept; -1: none
  // Inputs hold other numbers from this position of every sample on, but for those of these paths;
  // -1: they do not.
  int64_t other_from = -1;
  std::set<std::string> not_other = {};
  std::map<std::string, double> counted =
      {};  // counts of steps that begin at another number than 0
};

// One rank's run of a step. What it traces of a sharded object is the rank's piece.
class RankTracer {
 public:
  RankTracer(const Scheme& step, const Plan& plan, const InputRanges& ranges,
             const TraceOptions& options, DrawnNumbers* drawn, Seat* seat);
  RankTracer(const RankTracer&) = delete;
  RankTracer& operator=(const RankTracer&) = delete;

  Trace trace(const TraceOptions& options);
  // The object whose numbers a trace has under this key.
  Value traced_as(const TensorKey& key) const { return traced_.at(key); }

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
  std::pair<Source, int> part_of_whole(Source source) const;
  std::map<std::string, Numbers> choices() const;  // of a step, by source
  void set_whole(Value v, const Numbers& whole, double fill = 0);
  Numbers& traced(TensorKey key, Value v);

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
  std::map<std::string, std::map<int, Numbers>> chosen_in_parts_;  // by source and part
  std::map<std::string, int64_t>
      replayed_;                 // per source: how many of its choices have been repeated
  std::vector<int> first_node_;  // per morphism
  std::vector<Node> nodes_;
  std::map<TensorKey, Value> traced_;
};

// Runs a step any number of times, each time from its initial parameters; it is planned and, on one
// rank, prepared once. A step that overflows, as the first ones in float16 do, is repeated with a
// smaller loss scale. Batches are masked and ragged, and depend on the seed, the step and the
// input's path only. A step with a mesh is run by one thread per rank, and tensors are assembled of
// the ranks' pieces: a trace knows nothing of meshes.
class Tracer {
 public:
  // `reference`, `target` and `nodes_of` hold for all runs. `drawn` caches the initial random
  // parameters, and may be shared with other tracers.
  Tracer(const Scheme& step, const InputRanges& ranges, const TraceOptions& options,
         DrawnNumbers* drawn = nullptr);

  Trace trace(const TraceOptions& options);

 private:
  Trace trace_on_mesh(const TraceOptions& options) const;
  Trace assembled_of(size_t stage, const std::vector<Trace>& traces,
                     const std::map<TensorKey, Value>& traced) const;

  // One step for all ranks, or one for each stage of a pipeline.
  std::vector<Scheme> steps_;
  std::vector<Plan> plans_;
  std::vector<MeshAxis> mesh_, mesh_of_stage_;
  const InputRanges& ranges_;
  std::unique_ptr<RankTracer> alone_;  // of one rank
};

Trace trace_run(const Scheme& step, const InputRanges& ranges, const TraceOptions& options);

}  // namespace adjoint

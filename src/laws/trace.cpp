#include "laws/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "laws/rank_traces.h"
#include "ops/builder.h"
#include "ops/gradient_source.h"
#include "run/parameters.h"
#include "scheme/elements.h"
#include "train/trainer.h"

namespace adjoint {

namespace {

// Enough halvings to take a loss scale of 2^16 below 1.
constexpr int kMostSkips = 20;
// Whole numbers that no table and no loss bounds are 0 or 1.
constexpr int64_t kUnsaidBelow = 2;

// One number of a batch. About one target in seven is masked, every sample but the first ends
// early, and the second sample is masked completely. Where texts tell ids from the others, every
// second one is such.
double datum(const InputRange& range, const RandomStream& stream, int64_t index, const Type& type) {
  const int64_t row = type.rank() > 1 ? type.num_elements() / type.dim(0) : 1;
  const int64_t sample = index / row, place = index % row;
  const uint32_t bits = stream.bits(index);
  if (range.ignored) {
    const bool late = place >= row - sample * 2 % std::max<int64_t>(1, row - 1);
    if (bits % 7 == 0 || sample == 1 || (sample > 0 && late)) {
      return static_cast<double>(*range.ignored);
    }
  }
  const int64_t below = range.below.value_or(kUnsaidBelow);
  if (!range.marks.empty() && place % 2 == 1) {
    const int64_t mark = range.marks[(place / 2 + sample) % range.marks.size()];
    if (mark < below) return static_cast<double>(mark);
  }
  return static_cast<double>((bits >> 3) % below);
}

bool has_state(const Object& object) {
  return object.role == Role::kParameter || object.role == Role::kState;
}

}  // namespace

RankTracer::RankTracer(const Scheme& step, const Plan& plan, const InputRanges& ranges,
                       const TraceOptions& options, DrawnNumbers* drawn, Seat* seat)
    : ranges_(ranges),
      options_(options),
      drawn_(drawn),
      run_(step, plan,
           {.reference = options.reference, .poison = options.nodes_of < 0, .seat = seat}),
      gradient_of_(step.objects.size(), -1) {
  find_gradients();
  find_choices();
  run_.after_call = [this](int at) { after_call(at); };
}

Trace RankTracer::trace(const TraceOptions& options) {
  CHECK(options.reference == options_.reference && options.target == options_.target &&
            (options.nodes_of < 0) == (options_.nodes_of < 0),
        "a tracer prepares one kind of run");
  options_ = options;
  if (!fresh_) run_.reset();
  fresh_ = false;
  trace_ = {};
  trace_.choices.resize(options.replayed ? 0 : options.steps);
  begin();
  for (step_ = 0; step_ < options_.steps; ++step_) {
    if (options_.jitter > 0) jitter();
    take_step();
    constexpr const char* kOutputs[] = {"loss", "count", "norm"};
    for (size_t i = 0; i < 3 && i < scheme().outputs.size(); ++i) {
      const Value out = scheme().outputs[i];
      traced({TensorKey::Kind::kMetric, kOutputs[i], step_}, out) = run_.values(out);
    }
  }
  for (const Value in : scheme().inputs) {
    if (!has_state(scheme()[in])) continue;
    traced({TensorKey::Kind::kState, to_string(scheme()[in].source), options_.steps - 1}, in) =
        run_.values(in);
  }
  for (Node& node : nodes_) {
    if (node.numbers.empty()) continue;
    trace_.nodes.push_back({node.source, node.op, node.sizes, std::move(node.numbers)});
    node.numbers.clear();
  }
  return std::move(trace_);
}

void RankTracer::take_step() {
  for (int tries = 0; tries < kMostSkips; ++tries) {
    feed();  // before every step, because a step may reuse its data's bytes
    scale_ = 1;
    for (const char* name : {"scale", "loss_scale"}) {
      if (const Value v = input_named(scheme(), name); v >= 0) scale_ = run_.number(v);
    }
    replayed_.clear();
    for (Node& node : nodes_) node.numbers.clear();
    chosen_in_parts_.clear();
    run_.step();
    if (!options_.replayed) trace_.choices[step_] = choices();
    const bool trains = scheme().outputs.size() > 2;
    if (!trains || std::isfinite(run_.number(scheme().outputs[2]))) return;
  }
}

std::map<std::string, Numbers> RankTracer::choices() const {
  std::map<std::string, Numbers> all;
  for (const auto& [source, parts] : chosen_in_parts_) {
    for (const auto& [part, numbers] : parts) {
      all[source].insert(all[source].end(), numbers.begin(), numbers.end());
    }
  }
  return all;
}

// The last object of a source that is made is the complete gradient; its parts, and what it is made
// of, come before it. Numbers of objects do not tell: sums over ranks have later ones.
void RankTracer::find_gradients() {
  std::map<std::string, Value> last;
  for (const Morphism& m : scheme().morphisms) {
    for (const Value v : m.outputs) last[to_string(scheme()[v].source)] = v;
  }
  for (const Value in : scheme().inputs) {
    if (scheme()[in].role != Role::kParameter || scheme()[in].frozen) continue;
    const auto found = last.find(to_string(gradient_source(scheme()[in].source)));
    if (found != last.end()) gradient_of_[found->second] = in;
  }
}

void RankTracer::find_choices() {
  for (const Morphism& m : scheme().morphisms) {
    if (op_named(m.op).effect != Effect::kChoosing) continue;
    for (const Value out : m.outputs) {
      if (!is_float(scheme()[out].type.dtype)) chosen_.insert(out);
    }
  }
  if (options_.nodes_of < 0) return;
  first_node_.resize(scheme().morphisms.size());
  for (size_t i = 0; i < scheme().morphisms.size(); ++i) {
    first_node_[i] = static_cast<int>(nodes_.size());
    const Morphism& m = scheme().morphisms[i];
    for (const Value out : m.outputs) {
      Node node{.source = to_string(scheme()[out].source), .op = m.op, .sizes = {}, .numbers = {}};
      for (const Axis& axis : scheme()[out].type.axes) node.sizes.push_back(axis.size);
      nodes_.push_back(std::move(node));
    }
  }
}

bool RankTracer::begins_as_zeros(Value in) const {
  const Object& object = scheme()[in];
  return object.role == Role::kState && object.init && object.init->kind == Init::Kind::kZeros;
}

void RankTracer::begin() {
  const auto said = [&](Value in) -> const Numbers* {
    if (!options_.replayed) return nullptr;
    const auto found = options_.replayed->begin.find(to_string(scheme()[in].source));
    return found == options_.replayed->begin.end() ? nullptr : &found->second;
  };
  const std::vector<Value>& inputs = scheme().inputs;
  const bool all_said = std::all_of(inputs.begin(), inputs.end(), [&](Value in) {
    return !has_state(scheme()[in]) || begins_as_zeros(in) || said(in);
  });
  if (!all_said) initialize(run_, options_.seed, drawn_);
  for (const Value in : inputs) {
    if (!has_state(scheme()[in])) continue;
    if (const auto counted = options_.counted.find(to_string(scheme()[in].source));
        counted != options_.counted.end()) {
      run_.set_values(in, {counted->second});
      continue;
    }
    const Numbers* numbers = said(in);
    if (numbers) set_whole(in, *numbers);
    if (!numbers && begins_as_zeros(in)) continue;
    trace_.begin[to_string(scheme()[in].source)] = run_.values(in);
  }
}

void RankTracer::jitter() {
  for (const Value in : scheme().inputs) {
    const Object& object = scheme()[in];
    if (object.role != Role::kParameter || !is_float(object.type.dtype)) continue;
    const RandomStream stream{random_key(options_.seed, to_string(object.source) + ":jitter"),
                              static_cast<uint64_t>(step_) + (uint64_t(options_.draw) << 32)};
    Numbers numbers = run_.values(in);
    for (const ShardRun& r : run_.runs_of(in)) {
      for (int64_t i = 0; i < r.count; ++i) {
        numbers[r.local + i] *= 1 + options_.jitter * (2 * stream.uniform(r.whole + i) - 1);
      }
    }
    run_.set_values(in, numbers);
  }
}

void RankTracer::feed() {
  for (const Value in : scheme().inputs) {
    const Object& object = scheme()[in];
    const std::string& path = object.source.path;
    if (object.role == Role::kInput) {
      const auto range = ranges_.find(path);
      const RandomStream stream{random_key(options_.seed, path + ":data"),
                                static_cast<uint64_t>(step_)};
      const Type whole = whole_type(object);
      const bool others =
          options_.other_from >= 0 && options_.not_other.count(path) == 0 && whole.rank() > 1;
      const RandomStream other{random_key(options_.seed, path + ":other"),
                               static_cast<uint64_t>(step_)};
      const int64_t row = others ? whole.num_elements() / (whole.dim(0) * whole.dim(1)) : 1;
      Numbers numbers(whole.num_elements());
      for (size_t i = 0; i < numbers.size(); ++i) {
        const int64_t index = static_cast<int64_t>(i);
        const bool late = others && index / row % whole.dim(1) >= options_.other_from;
        const RandomStream& from = late ? other : stream;
        numbers[i] =
            is_float(object.type.dtype)
                ? from.normal(i)
                : datum(range == ranges_.end() ? InputRange{} : range->second, from, index, whole);
      }
      const int64_t padding = range == ranges_.end() ? 0 : range->second.padding;
      set_whole(in, numbers, static_cast<double>(padding));
    } else if (path == "rate") {
      run_.set_number(in, 1e-3 * (1 + step_));
    } else if (path == kRandomCounter) {
      run_.set_values(in, {static_cast<double>(options_.seed), double(step_), 0});
    }
  }
}

void RankTracer::after_call(int at) {
  const int index = run_.plan().calls[at].morphism;
  const Morphism& m = scheme().morphisms[index];
  for (size_t k = 0; k < m.outputs.size(); ++k) {
    const Value out = m.outputs[k];
    if (chosen_.count(out)) note_choice(out);
    if (const Value of = gradient_of_[out]; of >= 0) {
      // Undoes loss scaling; the scale is a power of two, so no bit is lost.
      Numbers numbers = run_.values(out);
      if (scale_ != 1) {
        for (double& n : numbers) n /= scale_;
      }
      traced({TensorKey::Kind::kGradient, to_string(scheme()[of].source), step_}, out) =
          std::move(numbers);
    }
    if (options_.nodes_of == step_) {
      Numbers& kept = nodes_[first_node_[index] + k].numbers;
      const Numbers numbers = run_.values(out);
      kept.insert(kept.end(), numbers.begin(), numbers.end());
    }
  }
}

// This rank's piece of a whole object; what pads it is `fill`.
void RankTracer::set_whole(Value v, const Numbers& whole, double fill) {
  Numbers piece(scheme()[v].type.num_elements(), fill);
  for (const ShardRun& r : run_.runs_of(v)) {
    std::copy_n(whole.begin() + r.whole, r.count, piece.begin() + r.local);
  }
  run_.set_values(v, piece);
}

Numbers& RankTracer::traced(TensorKey key, Value v) {
  traced_[key] = v;
  return trace_.tensors[std::move(key)];
}

// Stages have an object for every part of the batch (functors/stage_step.h), in the order of a
// list. The object of the whole step, and which part of it this is.
std::pair<Source, int> RankTracer::part_of_whole(Source source) const {
  constexpr int kLast = std::numeric_limits<int>::max();
  constexpr std::string_view kPart = "part";
  const size_t at = source.facet.rfind(kPart);
  if (scheme().of_all_stages.empty() || at == std::string::npos) return {source, kLast};
  const std::string number = source.facet.substr(at + kPart.size());
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (number.empty() || !std::all_of(number.begin(), number.end(), is_digit)) {
    return {source, kLast};
  }
  source.facet.resize(at > 0 ? at - 1 : 0);  // with the dot before it
  return {source, std::stoi(number)};
}

// Parts of a batch make their choices one after another, and ranks side by side; a reference with
// the whole batch takes them in that order.
void RankTracer::note_choice(Value out) {
  const std::string source = to_string(scheme()[out].source);
  if (!options_.replayed) {
    const auto [whole, part] = part_of_whole(scheme()[out].source);
    Numbers& kept = chosen_in_parts_[to_string(whole)][part];
    const Numbers numbers = run_.values(out);
    kept.insert(kept.end(), numbers.begin(), numbers.end());
    return;
  }
  const auto& said = options_.replayed->choices;
  if (std::cmp_less_equal(said.size(), step_)) return;
  const auto found = said[step_].find(source);
  if (found == said[step_].end()) return;
  const int64_t size = scheme()[out].type.num_elements();
  const auto [place, first_time] = replayed_.emplace(source, 0);
  int64_t& next = place->second;
  if (first_time && run_.seat()) {
    next = first_choice(scheme()[out], scheme().mesh, run_.seat()->coordinates());
  }
  if (next + size > static_cast<int64_t>(found->second.size())) return;
  const auto first = found->second.begin() + next;
  run_.set_values(out, Numbers(first, first + size));
  next += size;
}

std::string to_string(const TensorKey& key) {
  switch (key.kind) {
    case TensorKey::Kind::kMetric:
      return "the " + key.source + " of step " + std::to_string(key.step);
    case TensorKey::Kind::kGradient:
      return "the gradient of " + key.source + " at step " + std::to_string(key.step);
    case TensorKey::Kind::kState:
      return key.source + " after step " + std::to_string(key.step);
  }
  return "";
}

Trace trace_run(const Scheme& step, const InputRanges& ranges, const TraceOptions& options) {
  return Tracer(step, ranges, options).trace(options);
}

}  // namespace adjoint

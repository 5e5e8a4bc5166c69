#include "laws/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "base/philox.h"
#include "device/parallel.h"
#include "ops/builder.h"
#include "ops/elements.h"
#include "train/trainer.h"

namespace adjoint {

namespace {

// Halvings that take a loss scale of 2^16 to 1, and some.
constexpr int kMostSkips = 20;

// A gradient below this share of all gradients is measured by this share.
constexpr double kNegligible = 0x1p-12;

// One number of a batch. About one target in seven is masked, every sample but the first ends
// early, and the second one counts for nothing at all.
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
  return static_cast<double>((bits >> 3) % range.below);
}

class Tracer {
 public:
  Tracer(const Scheme& step, const InputRanges& ranges, const TraceOptions& options)
      : ranges_(ranges),
        options_(options),
        run_(step,
             make_plan(step, {.threads = num_threads(),
                              .target = options.reference ? Target::kCpu : options.target,
                              .deterministic = true}),
             {.reference = options.reference, .poison = options.nodes_of < 0}),
        gradient_of_(step.objects.size(), -1) {
    choices_.resize(options.replayed ? 0 : options.steps);
    find_gradients();
    find_choices();
    run_.after_call = [this](int at) { after_call(at); };
  }

  Trace trace() {
    begin();
    for (step_ = 0; step_ < options_.steps; ++step_) {
      if (options_.jitter > 0) jitter();
      take_step();
      constexpr const char* kOutputs[] = {"loss", "count", "norm"};
      for (size_t i = 0; i < 3 && i < scheme().outputs.size(); ++i) {
        const Value out = scheme().outputs[i];
        trace_.tensors[{TensorKey::Kind::kMetric, kOutputs[i], step_}] = run_.values(out);
      }
    }
    for (const Value in : scheme().inputs) {
      const Role role = scheme()[in].role;
      if (role != Role::kParameter && role != Role::kState) continue;
      trace_
          .tensors[{TensorKey::Kind::kState, to_string(scheme()[in].source), options_.steps - 1}] =
          run_.values(in);
    }
    for (Node& node : nodes_) {
      if (!node.numbers.empty()) trace_.nodes.push_back(std::move(node));
    }
    trace_.choices = std::move(choices_);
    return std::move(trace_);
  }

 private:
  const Scheme& scheme() const { return run_.scheme(); }

  void take_step() {
    for (int tries = 0; tries < kMostSkips; ++tries) {
      feed();  // every time: a step may use the bytes of its data for something else
      scale_ = 1;
      for (const char* name : {"scale", "loss_scale"}) {
        if (const Value v = input_named(scheme(), name); v >= 0) scale_ = run_.number(v);
      }
      replayed_.clear();
      for (Node& node : nodes_) node.numbers.clear();
      if (!options_.replayed) choices_[step_].clear();
      run_.step();
      if (std::isfinite(run_.number(scheme().outputs[2]))) return;
    }
  }

  // The last object of a source is the whole gradient: parts and iterations come before it.
  void find_gradients() {
    std::map<std::string, Value> last;
    for (size_t v = 0; v < scheme().objects.size(); ++v) {
      const Source& source = scheme().objects[v].source;
      if (source.facet == "grad") last[source.path] = static_cast<Value>(v);
    }
    for (const Value in : scheme().inputs) {
      if (scheme()[in].role != Role::kParameter || scheme()[in].frozen) continue;
      const auto found = last.find(scheme()[in].source.path);
      if (found != last.end()) gradient_of_[found->second] = in;
    }
  }

  void find_choices() {
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
        Node node{
            .source = to_string(scheme()[out].source), .op = m.op, .sizes = {}, .numbers = {}};
        for (const Axis& axis : scheme()[out].type.axes) node.sizes.push_back(axis.size);
        nodes_.push_back(std::move(node));
      }
    }
  }

  bool has_state(Value in) const {
    const Role role = scheme()[in].role;
    return role == Role::kParameter || role == Role::kState;
  }

  void begin() {
    const auto said = [&](Value in) -> const Numbers* {
      if (!options_.replayed) return nullptr;
      const auto found = options_.replayed->begin.find(to_string(scheme()[in].source));
      return found == options_.replayed->begin.end() ? nullptr : &found->second;
    };
    const std::vector<Value>& inputs = scheme().inputs;
    const bool all_said = std::all_of(inputs.begin(), inputs.end(),
                                      [&](Value in) { return !has_state(in) || said(in); });
    if (!all_said) initialize(run_, options_.seed);
    for (const Value in : inputs) {
      if (!has_state(in)) continue;
      if (const Numbers* numbers = said(in)) run_.set_values(in, *numbers);
      trace_.begin[to_string(scheme()[in].source)] = run_.values(in);
    }
  }

  void jitter() {
    for (const Value in : scheme().inputs) {
      const Object& object = scheme()[in];
      if (object.role != Role::kParameter || !is_float(object.type.dtype)) continue;
      const RandomStream stream{random_key(options_.seed, to_string(object.source) + ":jitter"),
                                static_cast<uint64_t>(step_) + (uint64_t(options_.draw) << 32)};
      Numbers numbers = run_.values(in);
      for (size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] *= 1 + options_.jitter * (2 * stream.uniform(i) - 1);
      }
      run_.set_values(in, numbers);
    }
  }

  void feed() {
    for (const Value in : scheme().inputs) {
      const Object& object = scheme()[in];
      const std::string& path = object.source.path;
      if (object.role == Role::kInput) {
        const auto range = ranges_.find(path);
        const RandomStream stream{random_key(options_.seed, path + ":data"),
                                  static_cast<uint64_t>(step_)};
        Numbers numbers(object.type.num_elements());
        for (size_t i = 0; i < numbers.size(); ++i) {
          const int64_t index = static_cast<int64_t>(i);
          numbers[i] = is_float(object.type.dtype)
                           ? stream.normal(i)
                           : datum(range == ranges_.end() ? InputRange{} : range->second, stream,
                                   index, object.type);
        }
        run_.set_values(in, numbers);
      } else if (path == "rate") {
        run_.set_number(in, 1e-3 * (1 + step_));
      } else if (path == kRandomCounter) {
        run_.set_values(in, {static_cast<double>(options_.seed), double(step_), 0});
      }
    }
  }

  void after_call(int at) {
    const int index = run_.plan().calls[at].morphism;
    const Morphism& m = scheme().morphisms[index];
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      const Value out = m.outputs[k];
      if (chosen_.count(out)) note_choice(out);
      if (const Value of = gradient_of_[out]; of >= 0) {
        // Loss scaling is undone: it is a power of two, so no bit is lost.
        Numbers numbers = run_.values(out);
        for (double& n : numbers) n /= scale_;
        trace_.tensors[{TensorKey::Kind::kGradient, to_string(scheme()[of].source), step_}] =
            std::move(numbers);
      }
      if (options_.nodes_of == step_) {
        Numbers& kept = nodes_[first_node_[index] + k].numbers;
        const Numbers numbers = run_.values(out);
        kept.insert(kept.end(), numbers.begin(), numbers.end());
      }
    }
  }

  // Parts of a batch choose one after the other; a reference that sees the whole batch takes their
  // choices in that order.
  void note_choice(Value out) {
    const std::string source = to_string(scheme()[out].source);
    if (!options_.replayed) {
      Numbers& kept = choices_[step_][source];
      const Numbers numbers = run_.values(out);
      kept.insert(kept.end(), numbers.begin(), numbers.end());
      return;
    }
    const auto& said = options_.replayed->choices;
    if (std::cmp_less_equal(said.size(), step_)) return;
    const auto found = said[step_].find(source);
    if (found == said[step_].end()) return;
    const int64_t size = scheme()[out].type.num_elements();
    int64_t& next = replayed_[source];
    if (next + size > static_cast<int64_t>(found->second.size())) return;
    const auto first = found->second.begin() + next;
    run_.set_values(out, Numbers(first, first + size));
    next += size;
  }

  const InputRanges& ranges_;
  const TraceOptions& options_;
  Run run_;
  Trace trace_;
  int step_ = 0;
  double scale_ = 1;
  std::vector<Value> gradient_of_;  // per object: the parameter
  std::set<Value> chosen_;
  std::vector<std::map<std::string, Numbers>> choices_;
  std::map<std::string, int64_t> replayed_;  // how much of a source's choices is used up
  std::vector<int> first_node_;              // per morphism
  std::vector<Node> nodes_;
};

double squares_of(const Numbers& numbers) {
  double sum = 0;
  for (const double n : numbers) sum += n * n;
  return sum;
}

// The path and the facet of a source's text.
std::pair<std::string, std::string> parts_of(const std::string& source) {
  const size_t colon = source.find(':');
  if (colon == std::string::npos) return {source, ""};
  return {source.substr(0, colon), source.substr(colon)};
}

// The least that a tensor of a reference is measured by.
class Scales {
 public:
  explicit Scales(const Trace& reference) {
    for (const auto& [key, numbers] : reference.tensors) {
      if (key.kind == TensorKey::Kind::kGradient) gradients_[key.step] += squares_of(numbers);
      if (key.kind == TensorKey::Kind::kState) {
        changes_[parts_of(key.source).second] += change(reference, key, numbers);
      }
    }
    for (const auto& [key, numbers] : reference.tensors) {
      if (key.kind != TensorKey::Kind::kGradient) continue;
      const bool noise =
          std::sqrt(squares_of(numbers)) <= kNegligible * std::sqrt(gradients_[key.step]);
      const auto [found, fresh] = noise_.emplace(key.source, noise);
      found->second = found->second && noise;
    }
  }

  double least(const TensorKey& key) const {
    if (key.kind == TensorKey::Kind::kGradient) {
      return kNegligible * std::sqrt(gradients_.at(key.step));
    }
    if (key.kind != TensorKey::Kind::kState) return 0;
    const auto [path, facet] = parts_of(key.source);
    const auto found = noise_.find(path);
    if (found == noise_.end() || !found->second) return 0;
    return kNegligible * std::sqrt(changes_.at(facet));
  }

 private:
  // The square of how far a tensor is from where it began.
  static double change(const Trace& reference, const TensorKey& key, const Numbers& numbers) {
    const auto began = reference.begin.find(key.source);
    if (began == reference.begin.end() || began->second.size() != numbers.size()) {
      return squares_of(numbers);
    }
    double sum = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      sum += (numbers[i] - began->second[i]) * (numbers[i] - began->second[i]);
    }
    return sum;
  }

  std::map<int, double> gradients_;        // squares, of all in a step
  std::map<std::string, double> changes_;  // squares, of all state of a facet
  std::map<std::string, bool> noise_;      // by path: its gradients are never more
};

}  // namespace

InputRanges input_ranges(const Scheme& forward) {
  // For every object the inputs that it is made of without arithmetic on floats.
  std::vector<std::set<Value>> from(forward.objects.size());
  for (const Value in : forward.inputs) {
    if (forward[in].role == Role::kInput) from[in] = {in};
  }
  std::map<Value, InputRange> ranges;
  const auto bound = [&](Value ids, int64_t below, std::optional<int64_t> ignored) {
    for (const Value in : from[ids]) {
      const auto [found, fresh] = ranges.emplace(in, InputRange{below, ignored});
      if (fresh) continue;
      found->second.below = std::min(found->second.below, below);
      // What is looked up somewhere must be an id everywhere.
      if (!ignored) found->second.ignored.reset();
    }
  };
  for (const Morphism& m : forward.morphisms) {
    if (m.op == "embed") bound(m.inputs[0], forward[m.inputs[1]].type.dim(0), std::nullopt);
    if (m.op == "cross_entropy") {
      bound(m.inputs[1], forward[m.inputs[0]].type.dim(-1),
            call_of(forward, m).integer("ignore", -1));
    }
    for (const Value out : m.outputs) {
      if (is_float(forward[out].type.dtype)) continue;
      for (const Value in : m.inputs) from[out].insert(from[in].begin(), from[in].end());
    }
  }
  InputRanges by_path;
  for (const auto& [in, range] : ranges) by_path[forward[in].source.path] = range;
  return by_path;
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
  return Tracer(step, ranges, options).trace();
}

bool has_narrow(const Scheme& scheme) {
  return std::any_of(scheme.objects.begin(), scheme.objects.end(), [](const Object& o) {
    return o.type.dtype == Dtype::kBF16 || o.type.dtype == Dtype::kF16;
  });
}

Scheme without_narrow(const Scheme& scheme) {
  const auto narrow = [](Dtype d) { return d == Dtype::kBF16 || d == Dtype::kF16; };
  Scheme result = scheme;
  for (Object& object : result.objects) {
    if (narrow(object.type.dtype)) object.type.dtype = Dtype::kF32;
  }
  for (Morphism& m : result.morphisms) {
    if (const auto found = m.attrs.find("dtype"); found != m.attrs.end()) {
      auto& word = std::get<std::string>(found->second);
      if (const auto dtype = dtype_named(word); dtype && narrow(*dtype)) word = "f32";
    }
    if (m.op != "map" && (m.op != "gang" || !m.attrs.count("body"))) continue;
    auto& text = std::get<std::string>(m.attrs["body"]);
    Body body = parse_body(text);
    for (BodyOutput& out : body.outputs) {
      if (out.dtype && narrow(*out.dtype)) out.dtype = Dtype::kF32;
    }
    for (ExprNode& node : body.nodes) {
      const bool rounds = node.kind == ExprKind::kRound && narrow(static_cast<Dtype>(node.index));
      if (rounds) node.index = static_cast<int>(Dtype::kF64);  // which is no rounding
    }
    text = print(body);
  }
  verify(result);
  return result;
}

bool same_bits(const Numbers& a, const Numbers& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  });
}

double relative_error(const Numbers& a, const Numbers& b, double least) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(a[i]) && !std::isfinite(b[i])) continue;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  if (difference == 0) return 0;
  if (!std::isfinite(difference)) return INFINITY;
  return std::sqrt(difference) / std::max({std::sqrt(size), least, 1e-30});
}

Errors errors_against(const Trace& run, const Trace& reference) {
  const Scales scales(reference);
  Errors errors;
  for (const auto& [key, numbers] : run.tensors) {
    const auto found = reference.tensors.find(key);
    if (found == reference.tensors.end()) continue;
    errors[key] = relative_error(numbers, found->second, scales.least(key));
  }
  return errors;
}

Moved moved_from(const Trace& run, const Trace& other) {
  Moved moved;
  Numbers mine, theirs;
  for (const auto& [key, numbers] : run.tensors) {
    const auto found = other.tensors.find(key);
    if (key.step != 0 || found == other.tensors.end()) continue;
    if (key.source == "loss") moved.loss = relative_error(numbers, found->second);
    if (key.kind != TensorKey::Kind::kGradient || numbers.size() != found->second.size()) continue;
    mine.insert(mine.end(), numbers.begin(), numbers.end());
    theirs.insert(theirs.end(), found->second.begin(), found->second.end());
  }
  if (!mine.empty()) moved.gradients = relative_error(mine, theirs);
  return moved;
}

void raise(Moved& moved, const Moved& other) {
  moved.loss = std::max(moved.loss, other.loss);
  if (!other.gradients) return;
  moved.gradients = std::max(moved.gradients.value_or(0), *other.gradients);
}

Errors bit_differences(const Trace& a, const Trace& b) {
  Errors errors;
  for (const auto& [key, numbers] : a.tensors) {
    const auto found = b.tensors.find(key);
    if (found == b.tensors.end() || same_bits(numbers, found->second)) continue;
    errors[key] = relative_error(numbers, found->second);
  }
  return errors;
}

bool is_finite_somewhere(const Trace& trace) {
  return std::any_of(trace.tensors.begin(), trace.tensors.end(), [](const auto& entry) {
    return entry.first.source == "norm" && std::isfinite(entry.second[0]);
  });
}

void raise(Errors& errors, const Errors& others) {
  for (const auto& [key, error] : others) {
    double& mine = errors[key];
    mine = std::max(mine, error);
  }
}

}  // namespace adjoint

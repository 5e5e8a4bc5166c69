#include "train/quantize_run.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "analysis/structure.h"
#include "base/error.h"
#include "data/batches.h"
#include "data/byte_reader.h"
#include "data/corpus.h"
#include "data/source.h"
#include "data/tokenizer.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "ops/builder.h"
#include "ops/product_letters.h"
#include "run/parameters.h"
#include "train/bound_model.h"
#include "train/derived_run.h"
#include "train/evaluate.h"
#include "train/gptq.h"
#include "train/merge.h"
#include "train/resolve_config.h"
#include "train/save.h"
#include "train/trainer.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

using Floats = std::map<std::string, std::vector<float>>;  // parameters by source

void write_all(Run& run, const Floats& parameters) {
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (object.role != Role::kParameter) continue;
    write_parameter(run, object.source, parameters.at(to_string(object.source)));
  }
}

// H = X^T X of what linear maps read, summed over batches of text. Maps are asked about in the
// order of the forward pass, each when all that the pass reads before it is final; so what a block
// gives is computed once, held for every batch, and the next block's maps begin there.
class Calibration {
 public:
  Calibration(const BoundModel& model, std::span<const int32_t> text, const TrainConfig& config,
              int64_t num_batches, Bytes most_carried, PlanOptions plan)
      : forward_(without_randomness(model.forward())),
        batches_(fields_of(text), static_cast<int64_t>(text.size()), model.batch(), model.context(),
                 config.seed, "train"),
        num_batches_(num_batches),
        plan_(std::move(plan)) {
    for (const Value in : forward_.inputs) {
      const std::string& name = forward_[in].source.path;
      if (forward_[in].role != Role::kInput || name == "tokens" || name == "targets") continue;
      fail("the model reads '", name, "', and only tokens and targets of a text can be fed here");
    }
    const std::vector<int> made_by = producers(forward_);
    for (const Value state : find_chain(forward_).states) {
      const bool made_alone =
          made_by[state] >= 0 && forward_.morphisms[made_by[state]].outputs.size() == 1;
      if (!made_alone || most_carried < num_batches_ * forward_[state].type.bytes()) continue;
      State s{.at = state, .behind = std::vector<bool>(forward_.objects.size(), false)};
      s.behind[state] = true;
      for (const Morphism& m : forward_.morphisms) {
        const auto is_behind = [&](Value in) { return s.behind[in]; };
        if (std::none_of(m.inputs.begin(), m.inputs.end(), is_behind)) continue;
        for (const Value out : m.outputs) s.behind[out] = true;
      }
      states_.push_back(std::move(s));
    }
  }

  const Scheme& forward() const { return forward_; }
  int64_t calls() const { return calls_; }

  // What the linear maps read whose weight this parameter is; nothing if something else reads it.
  std::vector<Value> inputs_of_maps(const Source& weight) const {
    std::vector<Value> inputs;
    for (const Morphism& m : forward_.morphisms) {
      for (size_t k = 0; k < m.inputs.size(); ++k) {
        if (forward_[m.inputs[k]].source != weight) continue;
        const bool maps = op_named(m.op).weight == static_cast<int>(k);
        if (!maps || forward_[m.inputs[k]].type.rank() != 2) return {};
        inputs.push_back(m.inputs[0]);
      }
    }
    return inputs;
  }

  std::vector<double> hessian(const std::vector<Value>& of, const Floats& parameters) {
    const int state = last_state_before(of);
    carry_to(state, parameters);
    Scheme scheme = beginning_at(state);
    Builder builder(scheme);
    for (const Value x : of) {
      const std::string letters = leading_letters_of(scheme[x].type);
      const std::string map = letters + "i," + letters + "j->ij";
      scheme.outputs.push_back(builder.emit("contract", {x, x}, {{"map", map}}));
    }
    std::vector<double> sum;
    run_batches(std::move(scheme), parameters, [&](Run& run, int64_t) {
      for (const Value out : run.scheme().outputs) {
        const std::vector<double> part = run.values(out);
        sum.resize(part.size());
        for (size_t k = 0; k < part.size(); ++k) sum[k] += part[k];
      }
    });
    return sum;
  }

 private:
  static std::vector<Field> fields_of(std::span<const int32_t> text) {
    Field tokens{.name = "tokens", .data = std::as_bytes(text).data()};
    Field targets = tokens;
    targets.name = "targets";
    targets.ahead = 1;
    return {std::move(tokens), std::move(targets)};
  }

  // The last state that all of these are computed from; -1: the tokens alone.
  int last_state_before(const std::vector<Value>& all) const {
    for (size_t s = states_.size(); s-- > 0;) {
      const auto is_behind = [&](Value v) { return states_[s].behind[v]; };
      if (std::all_of(all.begin(), all.end(), is_behind)) return static_cast<int>(s);
    }
    return -1;
  }

  // The forward pass without outputs, which is given this state instead of what makes it.
  Scheme beginning_at(int state) const {
    Scheme scheme = forward_;
    scheme.outputs.clear();
    if (state < 0) return scheme;
    const Value at = states_[state].at;
    std::erase_if(scheme.morphisms, [&](const Morphism& m) { return m.outputs[0] == at; });
    scheme[at].role = Role::kInput;
    scheme.inputs.push_back(at);
    return scheme;
  }

  // Computes what this state is for every batch, from the one that is held.
  void carry_to(int state, const Floats& parameters) {
    if (state == held_ || state < 0) return;
    const bool is_behind = held_ >= 0 && states_[held_].behind[states_[state].at];
    if (!is_behind) held_ = -1;
    Scheme scheme = beginning_at(held_);
    scheme.outputs = {states_[state].at};
    carried_.resize(num_batches_);
    run_batches(std::move(scheme), parameters, [&](Run& run, int64_t i) {
      const std::vector<double> numbers = run.values(run.scheme().outputs[0]);
      carried_[i].assign(numbers.begin(), numbers.end());
    });
    held_ = state;
  }

  // Runs a scheme that begins at the state that is held, or at the tokens, for every batch.
  template <class Visit>
  void run_batches(Scheme scheme, const Floats& parameters, const Visit& visit) {
    const Source state = held_ < 0 ? Source{} : forward_[states_[held_].at].source;
    scheme = without_dead(std::move(scheme));
    calls_ += static_cast<int64_t>(scheme.morphisms.size());
    Run run(scheme, make_plan(scheme, plan_));
    write_all(run, parameters);
    const int64_t size = batches_.batch() * batches_.context();
    std::vector<int32_t> tokens(size), targets(size);
    for (int64_t i = 0; i < num_batches_; ++i) {
      void* const to[] = {tokens.data(), targets.data()};
      batches_.fill(i, to);
      for (const Value in : scheme.inputs) {
        if (scheme[in].role != Role::kInput) continue;
        const std::string& name = scheme[in].source.path;
        run.write(in, scheme[in].source == state ? static_cast<const void*>(carried_[i].data())
                      : name == "tokens"         ? tokens.data()
                                                 : targets.data());
      }
      run.step();
      visit(run, i);
    }
  }

  // A state of the chain, and what is computed from it.
  struct State {
    Value at;
    std::vector<bool> behind;  // per object
  };

  Scheme forward_;
  Batches batches_;
  int64_t num_batches_;
  PlanOptions plan_;
  std::vector<State> states_;
  int held_ = -1;                            // which state is held; -1: none
  std::vector<std::vector<float>> carried_;  // that state, for every batch
  int64_t calls_ = 0;
};

// Which matrices become codes is the stack's to say, so that whoever reads the folder agrees.
std::string stack_of(const CodeFormat& format) {
  const std::string kind(name(format.kind));
  const std::string per = format.per == CodeFormat::Per::kTensor ? "per=tensor"
                          : format.per == CodeFormat::Per::kChannel
                              ? "per=channel"
                              : "group=" + std::to_string(format.group);
  return "freeze([attention, feed_forward]) | quantize(" + kind + ", " + per + ")";
}

// Codes stand for a plain map's matrix, and the stack is gone afterwards. So a stack may do no more
// to linear maps than the codes themselves do, as training for these codes does.
void check_stack_is_in_codes(const fs::path& folder, const std::string& stack,
                             const std::vector<Encoded>& matrices, const Floats& parameters) {
  SavedValues values;
  for (const auto& [name, numbers] : parameters) values[name] = {numbers.begin(), numbers.end()};
  for (const Encoded& e : matrices) {
    const std::string name = to_string(e.source);
    const std::vector<float> rounded =
        decoded(round_to_codes(parameters.at(name), e.type, e.format), e.type, e.format);
    values[name] = {rounded.begin(), rounded.end()};
  }
  if (const auto path = map_changed_by_stack(folder, values)) {
    fail(folder.string(), ": its stack '", stack, "' makes another map of '", *path,
         "', which codes of its matrix would lose; make a plain model of it first, with adjoint "
         "merge");
  }
}

// The two parts of a text, as the run that is quantized split it.
struct Parts {
  std::vector<int32_t> train, validation;
};

Parts parts_of(const fs::path& data, const Tokenizer& tokenizer, double val_fraction) {
  // Anything else would be read as a text all the same, with all its marks.
  if (kind_of(data) != DataKind::kText || without_compression(data) != data) {
    fail(data.string(), ": wanted a plain text to calibrate with; say which with --data FILE");
  }
  const std::vector<int32_t> tokens = tokens_of(data, tokenizer);
  const auto middle =
      tokens.begin() + tokens_to_train_on(static_cast<int64_t>(tokens.size()), val_fraction);
  return {{tokens.begin(), middle}, {middle, tokens.end()}};
}

double loss_of(Run& run, const Parts& corpus, const fs::path& data) {
  const auto loss = mean_loss(run, corpus.validation, std::atomic<bool>(false));
  if (!loss) fail(data.string(), ": its validation part is too short for one window of text");
  return *loss;
}

}  // namespace

QuantizeResult quantize_run(const fs::path& folder, const fs::path& out,
                            const QuantizeOptions& options, const PlanOptions& plan) {
  const SavePaths from(folder), to(out);
  check_is_run(from);
  check_unheld(to);
  const ResolvedConfig resolved = saved_config(folder);
  TrainConfig config = resolved.config;
  config.step.target = plan.target;
  const auto tokenizer = load_tokenizer(from.tokenizer());
  const BoundModel model(resolved.text, {.batch = config.batch,
                                         .context = config.context,
                                         .seq = config.seq,
                                         .vocab = tokenizer->vocab_size(),
                                         .settings = config.settings});
  if (options.data.empty() && config.data.size() != 1) {
    fail(folder.string(), ": this run has ", config.data.size(),
         " sources of data; say which text to calibrate with: --data FILE");
  }
  const fs::path data = options.data.empty() ? fs::path(config.data[0]) : options.data;
  const Parts corpus = parts_of(data, *tokenizer, config.val_fraction);
  const Scheme plain = without_randomness(model.forward(1, model.context()));
  const std::string print = print_of(model, resolved.printed_with);
  const SavedModel saved(from);
  for (const SafetensorView& t : saved.file().tensors()) {
    if (t.dtype != "I8" && t.dtype != "U8") continue;
    fail(folder.string(), ": '", t.name,
         "' holds codes already; quantize the run that it was made of");
  }
  std::set<std::string> names;
  for (const Value v : plain.inputs) names.insert(to_string(plain[v].source));
  for (const SafetensorView& t : saved.file().tensors()) {
    if (names.count(t.name) || config.step.stack.empty()) continue;
    fail(folder.string(), ": its stack '", config.step.stack, "' added '", t.name,
         "'; make a plain model of it first, with adjoint merge");
  }
  saved.check_fits(plain);
  saved.check_model(print);
  Floats parameters;
  for (const Value v : plain.inputs) {
    if (plain[v].role != Role::kParameter) continue;
    const std::string name = to_string(plain[v].source);
    parameters[name] = saved.floats(name);
  }
  QuantizeResult result{.step = saved.step(), .stack = stack_of(options.format)};
  const Scheme coded = evaluation_scheme(model.forward(), parse_stack(result.stack), config.step);
  std::vector<Encoded> matrices = encoded_parameters(coded);
  if (has_adapters(folder)) {
    check_stack_is_in_codes(folder, config.step.stack, matrices, parameters);
  }
  {
    const Scheme scheme =
        evaluation_scheme(model.forward(), parse_stack(config.step.stack), config.step);
    Run run(scheme, make_plan(scheme, plan));
    write_all(run, parameters);
    result.loss_before = loss_of(run, corpus, data);
  }

  Calibration calibration(model, corpus.train, config, options.batches, options.most_carried, plan);
  // In the order in which the forward pass reads them.
  std::map<std::string, size_t> order;
  for (const Morphism& m : calibration.forward().morphisms) {
    for (const Value in : m.inputs) {
      order.emplace(to_string(calibration.forward()[in].source), order.size());
    }
  }
  std::stable_sort(matrices.begin(), matrices.end(), [&](const Encoded& a, const Encoded& b) {
    return order.at(to_string(a.source)) < order.at(to_string(b.source));
  });
  std::map<std::string, EncodedMatrix> codes;
  std::vector<Value> read;  // by the maps whose hessian this is: q, k and v read the same
  std::vector<double> hessian;
  for (const Encoded& e : matrices) {
    const std::string name = to_string(e.source);
    std::vector<float>& numbers = parameters.at(name);
    const std::vector<Value> inputs =
        options.calibrated ? calibration.inputs_of_maps(e.source) : std::vector<Value>{};
    if (!inputs.empty() && inputs != read) {
      hessian = calibration.hessian(inputs, parameters);
      read = inputs;
    }
    EncodedMatrix made = inputs.empty() ? round_to_codes(numbers, e.type, e.format)
                                        : gptq(numbers, e.type, e.format, hessian);
    numbers = decoded(made, e.type, e.format);
    result.calibrated += !inputs.empty();
    result.before += e.type.bytes();
    result.after += coded[e.codes].type.bytes() + coded[e.scales].type.bytes();
    codes[name] = std::move(made);
  }
  result.matrices = static_cast<int64_t>(matrices.size());
  result.calls = calibration.calls();

  Run run(coded, make_plan(coded, plan));
  for (const Encoded& e : matrices) {
    const EncodedMatrix& made = codes.at(to_string(e.source));
    run.write(e.codes, made.codes.data());
    run.write(e.scales, made.scales.data());
  }
  for (const Value v : coded.inputs) {
    const Object& object = coded[v];
    const auto found = parameters.find(to_string(object.source));
    if (object.role != Role::kParameter || found == parameters.end()) continue;
    write_parameter(run, object.source, found->second);
  }
  result.loss_after = loss_of(run, corpus, data);
  const nlohmann::json about = {{"method", options.calibrated ? "gptq" : "round"},
                                {"batches", options.calibrated ? options.batches : 0},
                                {"data", fs::absolute(data).string()}};
  write_derived_run(from, to, result.stack, "quantized", about,
                    [&] { save_parameters(to, run, saved.step(), print); });
  return result;
}

}  // namespace adjoint

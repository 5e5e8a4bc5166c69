// Everything before the first step: what was asked for becomes data, a model, a plan and a folder.
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/input_ranges.h"
#include "analysis/totals.h"
#include "base/activity.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/note.h"
#include "base/text.h"
#include "comm/at_work.h"
#include "device/limits.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "functors/evaluation_beside.h"
#include "functors/norms.h"
#include "functors/optimizer_text.h"
#include "functors/pipeline.h"
#include "functors/stage_step.h"
#include "models/settings.h"
#include "ops/builder.h"
#include "ops/segments.h"
#include "run/machine.h"
#include "run/parameters.h"
#include "run/random_steps.h"
#include "scheme/shards.h"
#include "train/doubts.h"
#include "train/gpu_ranks.h"
#include "train/job.h"
#include "train/merge.h"
#include "train/metrics.h"
#include "train/model_folder.h"
#include "train/peft_adapter.h"
#include "train/provenance.h"
#include "train/side_saves.h"
#include "train/state_copy.h"
#include "train/take_over.h"

namespace adjoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int64_t kBeforeSteps = -1;  // of what a rank tells the watchdog

// What is being done before the first step, for the watchdog of ranks and for whoever waits.
struct Preparation {
  Preparation(const std::optional<Communicator>& world, bool told, const std::string& what)
      : at_work(world, kBeforeSteps, what), activity(what, told) {}
  AtWork at_work;
  Activity activity;
};

void warn_of(const std::vector<std::string>& doubts) {
  for (const std::string& doubt : doubts) warn_once(doubt);
}

// Where the parameters come from, if they are not new: they were trained with that tokenizer's ids.
std::optional<SavePaths> trained_before(const TrainConfig& config, const SavePaths& paths) {
  if (config.resume) return paths;
  if (!config.repeat.empty()) return SavePaths(config.repeat);  // the same tokenizer
  if (!config.init.empty()) return SavePaths(config.init);
  return std::nullopt;
}

// Checks that a text has what the model asks for.
void check_takes_text(const Scheme& forward, const std::string& file) {
  for (const char* name : {"tokens", "targets"}) {
    const Value v = input_named(forward, name);
    if (v < 0 || forward[v].type.dtype != Dtype::kI32 || forward[v].type.rank() != 2) {
      fail(file,
           ": a model that is trained on text takes tokens[batch, seq] and targets[batch, seq]");
    }
  }
}

// Checks that every token id is inside all tables and rows of logits, because kernels do not check.
void check_ids_fit(const Scheme& forward, const std::string& file, int64_t vocab) {
  for (const Morphism& m : forward.morphisms) {
    const OpDef& op = op_named(m.op);
    const bool table = op.table >= 0 && forward[m.inputs[0]].source.path == "tokens";
    if (!table && !op.loss) continue;
    const Type& type = forward[m.inputs[table ? op.table : 0]].type;
    const int64_t have = table ? type.dim(0) : type.dim(-1);
    if (have >= vocab) continue;
    fail(file, ": '", m.source.path, "' has room for ", have,
         " different tokens, the tokenizer has ", vocab);
  }
}

}  // namespace

Trainer::~Trainer() = default;

Trainer::Trainer(ResolvedConfig resolved, std::optional<Communicator> world)
    : world_(std::move(world)),
      config_(std::move(resolved.config)),
      paths_(config_.out),
      before_(std::move(resolved.before)),
      unsettled_(resolved.unsettled),
      threads_shared_(resolved.threads_shared),
      printed_with_(resolved.printed_with),
      schedule_(config_) {
  if (config_.data.empty()) fail("which text to train on? Say --data FILE");
  // What needs no data is told before data are read and tokenized.
  parse_stack(config_.step.stack);
  find_optimizer(config_.step.optimizer, config_.step);
  if (config_.wish.budget.empty() &&
      (!config_.wish.profile.empty() || config_.wish.may_approximate ||
       config_.wish.seconds != kFitSeconds)) {
    fail(
        "--profile, --allow-approximating and --fit-seconds go with --fit: nothing else is chosen");
  }
  if (config_.threads > 0) set_num_threads(static_cast<int>(config_.threads));
  if (!world_ && config_.check_replicas > 0 && !config_.resume) {
    fail("--check-replicas compares ranks, and this run has one");
  }
  if (world_) {
    agree_on_options(*world_, config_, resolved.text);
    check_all_see(*world_, paths_.folder);
    if (config_.device == "cuda") take_own_gpu(*world_);
  }
  if (writes()) check_folder();
  const bool must_be_same = (config_.resume || !config_.repeat.empty()) && !resolved.data_given;
  std::optional<Preparation> at_work(std::in_place, world_, writes(), "reading the data");
  if (writes()) {
    if (!config_.resume) made_of_ = made_of(config_, resolved.text);
    if (!config_.repeat.empty()) check_made_of(SavePaths(config_.repeat), made_of_);
  }
  // The first rank tokenizes, and the others find what it made.
  if (world_ && !writes()) world_->barrier().wait();
  RunData data = read_data(config_, trained_before(config_, paths_), resolved.text.weights,
                           must_be_same ? std::optional(resolved.data_print) : std::nullopt,
                           world_ ? Tokenized::kOnce : Tokenized::kWhenever);
  if (world_ && writes()) world_->barrier().wait();
  data_print_ = data.print;
  if (world_) world_->agree(hash_of(data_print_), "data");
  at_work.emplace(world_, writes(), "planning");
  corpus_ = std::move(data.corpus);
  documents_ = std::move(data.documents);
  const bool has_tokenizer = data.tokenizer != nullptr;
  tokenizer_ = std::move(data.tokenizer);
  const std::optional<int64_t> vocab =
      tokenizer_ ? tokenizer_->vocab_of_model() : std::optional<int64_t>();
  model_ = std::make_unique<BoundModel>(std::move(resolved.text),
                                        ModelSizes{.batch = config_.batch,
                                                   .context = config_.context,
                                                   .seq = config_.seq,
                                                   .vocab = vocab,
                                                   .settings = config_.settings});
  // Refused before memory is taken: a folder that is not what its config.json says.
  std::optional<ModelFolder> weights;
  if (!config_.resume && config_.init.empty() && !model_->text().weights.empty()) {
    weights.emplace(model_->text().weights);
    weights->parameters(*model_);
  }
  Scheme forward = model_->forward();
  if (!data.fields) {
    check_takes_text(forward, model_->text().file);
    if (has_tokenizer) check_ids_fit(forward, model_->text().file, tokenizer_->vocab_size());
  }
  if (!tokenizer_) tokenizer_ = make_ids_tokenizer(ids_below(forward));
  const bool apart = config_.documents == "apart";
  if (apart) forward = with_segments(std::move(forward));
  const std::vector<FieldWish> wishes = wished_fields(forward, model_->text().file);
  const std::map<std::string, int64_t> ignored_by_input = ignored_values(forward);
  Sampling sampling{.batch = config_.batch,
                    .context = model_->context(),
                    .seed = static_cast<uint64_t>(config_.seed),
                    .packing = data.packing,
                    .apart = apart};
  if (const auto ignored = ignored_by_input.find("targets"); ignored != ignored_by_input.end()) {
    sampling.ignored = static_cast<int32_t>(ignored->second);
  }
  batches_ = std::make_unique<Batches>(corpus_->batches(wishes, Split::kTrain, sampling));
  val_batches_ = std::make_unique<Batches>(corpus_->batches(wishes, Split::kValidation, sampling));
  for (Batches* batches : {batches_.get(), val_batches_.get()}) {
    batches->pad_with(ignored_by_input);
  }
  check_entries(*corpus_, wishes, forward);
  const TrainingPart part = corpus_->training_part(sampling);
  // A file of fields may have targets of another name as well.
  if (!data.fields || ignored_by_input.size() == 1) check_learns(part, data.fields);
  if (config_.resume) set_position(*corpus_, wishes, sampling);
  if (config_.epochs > 0) {
    // What is left of the epochs, in steps of as many samples as there are now.
    const DataPosition& at = batches_->position();
    const auto read = static_cast<double>(at.sample_of(at.batch_of(first_step_), config_.batch));
    const auto all = config_.epochs * static_cast<double>(batches_->count_in_order());
    const double left = (all - read) / static_cast<double>(config_.batch);
    config_.set_steps(std::max<int64_t>(1, first_step_ + std::llround(left)));
    schedule_ = RateSchedule(config_);
  }
  // A save is known by the length that the run began with.
  if (config_.resume && printed_with_ == 0) {
    printed_with_ = before("seq", 0) > 0 ? before("seq", 0) : before("context", 0);
  }
  if (config_.resume) check_saved_positions();
  model_print_ = print_of(*model_, printed_with_);
  DeviceSheet sheet = sheet_here(target_named(config_.device));
  if (!config_.workspace.empty()) sheet.workspace = workspace_of(config_.workspace);
  const PlanOptions planned = plan_options(
      {.sheet = sheet, .threads = num_threads(), .deterministic = config_.deterministic});
  config_.step.target = planned.target;
  config_.step.deterministic = planned.deterministic;
  config_.step.guarded = config_.spike > 0 || config_.on_spike != "stop";
  config_.step.spike = config_.spike;
  config_.step.norms = config_.norms > 0;
  config_.step.on_mesh = true;
  config_.step.ranks = world_ ? world_->size() : 1;
  if (planned.target == Target::kCuda && config_.wish.profile.empty()) {
    config_.wish.device = sheet.name;
  }
  workspace_cap_ = planned.workspace_cap;
  if (!config_.wish.budget.empty()) fit_stack(forward);
  const Stack stack = parse_stack(config_.step.stack);
  if (config_.resume) stack_texts_ = StackTexts(paths_);
  saved_stack_ = stack_texts_.localized(config_.step.stack);
  if (asked_stack_) asked_stack_ = stack_texts_.localized(*asked_stack_);
  for (std::string& note : stack_texts_.changed()) notes_.push_back(std::move(note));
  saved_optimizer_ = with_optimizer_file(config_.step.optimizer, [&](const std::string& file) {
    optimizer_text_ = read_file(file);
    return paths_.rule().filename().string();
  });
  if (world_) {
    uint64_t texts = hash_of(optimizer_text_);
    for (const auto& [name, file] : stack_texts_.files()) {
      texts = hash_of(file.text, hash_of(name, texts));
    }
    world_->agree(texts, "text of the functors, schedules and the optimizer");
  }
  const BuiltStep built = build_step(forward, stack, config_.step);
  for (const Applied& applied : built.applied) {
    idle_rules_.insert(idle_rules_.end(), applied.idle_rules.begin(), applied.idle_rules.end());
  }
  check_mesh(built.scheme.mesh, world_ ? world_->size() : 1);
  if (world_) seat_ = std::make_unique<Seat>(*world_, built.scheme.mesh);
  const bool staged = !built.scheme.schedule.empty();
  const auto here = [&](const Scheme& whole) {
    return staged ? step_of_stage(whole, seat_->coordinates().at(kStageAxis)) : whole;
  };
  const Scheme step = here(built.scheme);
  const Plan plan = make_plan(step, planned);
  const Scheme whole_evaluation = evaluation_beside(built.scheme, forward, stack, config_.step);
  const Scheme evaluation = here(whole_evaluation);
  if (seat_) {
    *batches_ = drawn_by(*batches_, built.scheme, seat_->coordinates());
    *val_batches_ = drawn_by(*val_batches_, whole_evaluation, seat_->coordinates());
  }
  for (const Value in : evaluation.inputs) {
    const auto held = step.find(evaluation[in].source);
    if (!seat_ || evaluation[in].role != Role::kParameter || !held) continue;
    CHECK(shard_runs(evaluation[in], step.mesh, seat_->coordinates()) ==
              shard_runs(step[*held], step.mesh, seat_->coordinates()),
          "an evaluation reads what the step holds of " + to_string(evaluation[in].source));
  }
  Plan eval_plan = make_plan(evaluation, beside(step, plan, num_threads()));
  Plan train_plan = plan;
  train_plan.make_room_for(eval_plan);
  Scheme weights_scheme;
  Plan weights_plan;
  if (config_.norms > 0 && world_) {
    weights_by_role_ = weights_by_role(said_step(forward, stack, config_.step), step);
  } else if (config_.norms > 0) {
    weights_scheme = weight_squares(said_step(forward, stack, config_.step), step);
    weights_plan = make_plan(weights_scheme, beside(step, plan, num_threads()));
    train_plan.make_room_for(weights_plan);
  }
  const bool cpu = planned.target == Target::kCpu;
  const Bytes needed = train_plan.footprint();
  if (!config_.wish.budget.empty()) {
    const Bytes budget = budget_of(config_.wish.budget);
    if (needed > budget) {
      fail("--fit ", config_.wish.budget, ": with the evaluation in the same memory it takes ",
           with_commas(needed.count), " bytes; say at least that");
    }
    if (cpu) room_to_save_ = budget - needed;  // a copy for saving is in the same memory
  }
  if (!cpu && world_) meet_on_gpu(*seat_, train_plan, config_.deterministic);
  if (!cpu && !config_.deterministic) {
    if (config_.resume) load_products(paths_);
    if (!config_.repeat.empty()) load_products(SavePaths(config_.repeat));
  }
  at_work.emplace(world_, writes(), "preparing kernels");
  RunOptions at_seat{.seat = seat_.get()};
  RunOptions training = at_seat;
  training.advice =
      "; take a smaller --batch or --context, say --stack checkpoint, or let --fit SIZE choose the "
      "stack";
  training.told = [&](int64_t done, int64_t of, const std::string& what) {
    at_work->activity.at(done, of, what);
  };
  std::optional<ProductShare> products;
  if (!cpu && world_) products.emplace(*seat_);
  run_ = std::make_unique<Run>(step, train_plan, std::move(training));
  if (products) products->prepared();
  eval_ = std::make_unique<Run>(evaluation, eval_plan, *run_, at_seat);
  if (config_.norms > 0 && !world_)
    weights_ = std::make_unique<Run>(weights_scheme, weights_plan, *run_);
  follow(*run_);
  follow(*eval_);
  at_work.emplace(world_, writes(), "reading parameters");
  rate_ = input_named(step, "rate");
  counter_ = input_named(step, kRandomCounter);
  if (config_.resume) {
    if (!config_.adapter.empty()) {
      fail("--resume and --adapter contradict each other: a run that goes on has its parameters");
    }
    load_resumed();
    if (first_step_ >= config_.steps) {
      fail(config_.out, ": this run is already at step ", first_step_, " of ", config_.steps,
           "; say a larger --steps to go on");
    }
    if (config_.stop_after > 0 && config_.stop_after <= first_step_) {
      fail(config_.out, ": this run is already at step ", first_step_, ", past --stop-after ",
           config_.stop_after);
    }
  } else {
    initialize(*run_, config_.seed);
    if (!config_.init.empty()) load_base();
    if (weights) weights->load(*model_, *run_);
    if (!config_.adapter.empty()) {
      const std::vector<ThinPair> pairs = thin_pairs(forward, stack, config_.step);
      if (pairs.empty()) {
        fail(
            "--adapter: the stack adds nothing to linear maps; say --stack 'lora(rank=R, "
            "alpha=A)'");
      }
      PeftAdapter(config_.adapter).load(*model_, pairs, *run_);
    }
  }
  if (writes()) check_disk();
  if (writes()) {
    // Only now, because what is refused is told alone.
    warn_of(doubts_about(config_, resolved.said));
    warn_of(data.doubts);
    warn_of(doubts_about_silence(part, silent_places(part)));
    for (const std::string& note : notes_about_length(part, model_->context())) note_once(note);
    warn_of(doubts_about_data(config_.batch, model_->context(), corpus_->size(Split::kTrain)));
    const bool at_random = !config_.resume && config_.init.empty() && !weights;
    if (at_random) warn_of(doubts_about_frozen(num_parameters(step), num_trained(step)));
    for (const Applied& applied : built.applied) warn_of(applied.doubts);
  }
  if (world_) world_->barrier().wait();  // nothing is written before all ranks are ready
  if (writes()) begin_folder();
  if (world_) world_->barrier().wait();  // the folder is this run's
}

void Trainer::check_learns(const TrainingPart& part, bool fields) const {
  if (part.learned) return;
  fail(config_.data[0], config_.data.size() > 1 ? " and others" : "",
       ": no token of the training part is learned, because ",
       fields
           ? "all of its targets are the one that the loss ignores"
           : "all of it is read alone: prompts, what others than the assistant say, and messages "
             "with \"weight\": 0 or \"train\": false");
}

// A source is tokenized again to tell, so only what is quickly tokenized.
std::vector<DocumentPlace> Trainer::silent_places(const TrainingPart& part) const {
  constexpr int64_t kQuickly = int64_t{1} << 22;  // tokens
  if (!documents_ || part.silent == 0 || part.tokens > kQuickly) return {};
  const size_t source = part.first_silent[0].source;
  std::vector<int64_t> tokens;
  for (const TrainingPart::Place& at : part.first_silent) {
    if (at.source == source) tokens.push_back(at.token);
  }
  return documents_(source, tokens);
}

// Says where the run is whenever a call of it begins.
void Trainer::follow(Run& run) {
  if (!world_ || run.on_gpu()) return;  // where calls are launched, nobody knows which is done
  std::vector<std::string> names;       // by place in the order: what the call makes
  for (const PlannedCall& call : run.plan().calls) {
    const Morphism& m = run.scheme().morphisms[call.morphism];
    names.push_back(m.outputs.empty() ? m.source.path
                                      : to_string(run.scheme()[m.outputs[0]].source));
  }
  run.before_call = [this, names = std::move(names)](int at) {
    world_->progress(at_step_, names[at]);
  };
}

bool Trainer::agreed(bool mine) const {
  if (!world_) return mine;
  std::byte said{mine};
  world_->broadcast(0, {&said, 1}).wait();
  return said != std::byte{0};
}

// A resumed run holds the folder's lock from its first read. A new run takes the lock when it
// begins to write; if the folder already has a lock file, it takes it now, so that it is refused at
// once if another run holds it.
void Trainer::check_folder() {
  if (!config_.resume) check_unheld();
  std::error_code ignored;
  if (config_.resume || fs::exists(paths_.lock(), ignored)) {
    take_lock();
  }
}

void Trainer::take_lock() {
  const bool removes = config_.overwrite;
  lock_ = std::make_unique<FolderLock>(
      paths_, removes ? FolderLock::Left::kAsItIs : FolderLock::Left::kSettled);
}

void Trainer::check_unheld() const {
  if (config_.overwrite) return;
  if (const std::string found = holds_run(paths_); !found.empty()) {
    fail(config_.out, ": this folder already holds a run, ", found,
         "; go on with --resume, begin anew with --overwrite, or choose another --out");
  }
}

// A save is written beside the one before it, which is there at the first one of a resumed run.
void Trainer::check_disk() const {
  if (config_.overwrite && !holds_run(paths_).empty()) return;  // what is removed makes room
  const int64_t last =
      config_.stop_after > 0 ? std::min(config_.stop_after, config_.steps) : config_.steps;
  const bool two = !config_.resume && config_.save_every > 0 && config_.save_every < last;
  const Bytes save = StateCopy(*run_).size();
  check_space(paths_.folder, two ? 2 * save : save,
              two ? "a save beside the one before it" : "a save",
              "; nothing was trained: choose an --out on another disk");
}

void Trainer::fit_stack(const Scheme& forward) {
  asked_stack_ = config_.step.stack;
  std::string cut_off;
  config_.step.stack = found_by_first_rank(world_, [&] {
    PlansMade plans(budget_of(config_.wish.budget));
    FitOptions options = fit_options(config_.wish, *model_, config_.step, num_threads());
    options.costs.sheet.workspace = options.plan.workspace_cap = workspace_cap_;
    options.say = plans.told();
    Fit fit(forward, options);
    const FitPoint point = fitted(fit, config_.wish);
    cut_off = told_if_cut_off(fit, config_.wish);
    return point.stack;
  });
  if (!cut_off.empty()) notes_.push_back(cut_off);
}

int64_t Trainer::before(const char* option, int64_t otherwise) const {
  const auto found = before_.find(option);
  return found != before_.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

void Trainer::set_position(const Corpus& corpus, std::span<const FieldWish> wishes,
                           Sampling sampling) {
  first_step_ = saved_step(paths_).value_or(0);
  DataPosition position = read_position(paths_);
  const int64_t batch = before("batch", config_.batch);
  if (batch != config_.batch) {
    const int64_t ahead =
        std::count_if(position.left_out.begin(), position.left_out.end(),
                      [&](int64_t out) { return out >= position.batch_of(first_step_); });
    position.change_size(first_step_, batch);
    notes_.push_back(
        fmt::format("batches have {} samples from step {} on, before {}: the run goes on at {}",
                    config_.batch, first_step_, batch,
                    sampling.packing == Packing::kCrops
                        ? "new crops"
                        : fmt::format("sample {}", position.sizes.back().sample)));
    if (ahead > 0) notes_.push_back("batches that were left out ahead are other samples now");
  }
  const int64_t tokens = before("seq", 0) > 0 ? before("seq", 0) : before("context", 0);
  if (tokens > 0 && tokens != model_->context()) {
    // Crops begin anywhere. A row of one document stays that row where none is cut otherwise than
    // before; other rows are others, and nobody knows which of their tokens were read in this
    // epoch.
    const int64_t rows = batches_->count_in_order();
    sampling.context = tokens;
    const bool same_rows = sampling.packing == Packing::kPadded &&
                           corpus.batches(wishes, Split::kTrain, sampling).count_in_order() == rows;
    if (sampling.packing != Packing::kCrops && !same_rows) {
      fail("samples have ", model_->context(), " tokens, and before step ", first_step_,
           " they had ", tokens,
           ": which of these rows the run has read is not known; go on with --seq ", tokens,
           ", or begin a run with --init ", paths_.folder.string());
    }
    notes_.push_back(fmt::format("samples have {} tokens from step {} on, before {}",
                                 model_->context(), first_step_, tokens));
  }
  batches_->set_position(std::move(position));
}

// One row a position: such a table of the save can neither grow nor shrink.
void Trainer::check_saved_positions() const {
  if (before("context", config_.context) == config_.context) return;
  const SavedModel held(paths_);
  const Scheme plain = without_randomness(model_->forward(1, model_->context()));
  for (const Value v : plain.inputs) {
    const SafetensorView* view = held.file().find(to_string(plain[v].source));
    if (plain[v].role != Role::kParameter || !view) continue;
    const Type& type = plain[v].type;
    for (int axis = 0; axis < type.rank(); ++axis) {
      if (axis < static_cast<int>(view->shape.size()) && view->shape[axis] == type.dim(axis)) {
        continue;
      }
      fail("--context ", config_.context, ": '", to_string(plain[v].source), "' has ",
           view->shape[axis], " rows, one for each position of this run's context, and would have ",
           type.dim(axis), "; --seq chooses shorter samples");
    }
  }
}

void Trainer::load_resumed() {
  const auto saved = [&](const char* option) { return before_.value(option, std::string()); };
  const bool guarded =
      before_.value("spike", 0.0) > 0 || before_.value("on_spike", "stop") != "stop";
  const bool same = saved("stack") == config_.step.stack && guarded == config_.step.guarded &&
                    saved("optimizer") == config_.step.optimizer;
  const Scheme one = model_->forward(1, printed_with_ > 0 ? printed_with_ : model_->context());
  const Scheme plain = without_randomness(one);
  // A save knows nothing of meshes, so ranks take their pieces of it whatever mesh it was made on.
  if (world_ || (same && !unsettled_)) {
    first_step_ = load_state(paths_, *run_, true, model_print_);
    return;
  }
  if (unsettled_) {
    // The one who resumed it otherwise may have come to write the save.
    try {
      first_step_ = load_state(paths_, *run_, true, model_print_);
      return;
    } catch (const Error&) {
    }
  }
  initialize(*run_, config_.seed);
  const TrainConfig was = make_config(std::span(&before_, 1));
  const Scheme held = evaluation_scheme(one, parse_stack(was.step.stack), was.step);
  TakenOver taken = take_over(paths_, *run_, held, plain, model_print_);
  first_step_ = taken.step;
  notes_.insert(notes_.end(), taken.notes.begin(), taken.notes.end());
  taken_over_ = true;
}

// The base must have all parameters of the model; parameters that the stack added keep their
// initial values. Of a base whose matrices are codes the run takes the codes themselves where it
// holds the matrix in the same format, so that it begins with what was calibrated, and what they
// stand for elsewhere.
void Trainer::load_base() {
  const SavePaths base(config_.init);
  const ResolvedConfig of_base = saved_config(base.folder);
  const Scheme one = model_->forward(1, model_->context());
  const SavedModel saved(base);
  const Scheme held = held_by(saved, one, of_base.config.step);
  // The context length is not part of a model's identity, so the base's is used to compare.
  const TrainConfig& base_config = of_base.config;
  const int64_t context = base_config.seq > 0 ? base_config.seq : base_config.context;
  saved.check_model(print_of(*model_, of_base.printed_with > 0 ? of_base.printed_with : context));
  give_parameters(saved, held, without_randomness(one), *run_);
}

void Trainer::begin_folder() {
  check_writable(paths_);
  if (!lock_) take_lock();
  if (!config_.resume) check_unheld();  // another run may have begun since the first check
  json settings = to_json(config_, model_->text());
  std::vector<std::string> data;
  for (const std::string& said : config_.data) data.push_back(fs::absolute(said).string());
  settings["options"]["data"] = data.size() == 1 ? json(data[0]) : json(data);
  if (!model_->text().weights.empty() && fs::exists(config_.model)) {
    settings["options"]["model"] = fs::absolute(config_.model).string();
  }
  if (!config_.init.empty()) settings["options"]["init"] = fs::absolute(config_.init).string();
  if (fs::exists(config_.chat_template)) {
    settings["options"]["template"] = fs::absolute(config_.chat_template).string();
  }
  if (!learns_tokenizer(config_.tokenizer)) {
    settings["options"]["tokenizer"] = fs::absolute(config_.tokenizer).string();
  } else if (!model_->text().weights.empty() && tokenizer_->kind() != config_.tokenizer) {
    settings["options"]["tokenizer"] = fs::absolute(model_->text().weights).string();  // its own
  }
  settings["options"]["stack"] = saved_stack_;
  settings["options"]["optimizer"] = saved_optimizer_;
  if (asked_stack_) settings["asked_stack"] = *asked_stack_;
  settings["options"]["fit"] = settings["options"]["profile"] = "";  // the stack is --fit's answer
  if (config_.seq == 0) settings["options"]["context"] = model_->context();
  // The saved text does not know the weights that it came with, whose vocabulary it keeps.
  if (const auto vocab = model_->settings().find("vocab");
      !model_->text().weights.empty() && vocab != model_->settings().end()) {
    settings["options"]["set"]["vocab"] = vocab->second;
  }
  // The bits of products depend on threads and workspace.
  settings["options"]["threads"] = num_threads();
  if (threads_shared_) settings["threads_shared"] = true;
  settings["options"]["workspace"] = std::to_string(workspace_cap_.count);
  settings["data"] = data_print_;
  settings["params"] = num_parameters(run_->scheme());
  settings["trained_params"] = num_trained(run_->scheme());
  settings["peak_bytes"] = run_->plan().arena.count;
  settings["made_by"] = made_by(run_->on_gpu());
  settings["made_of"] = made_of_;
  if (config_.resume) {
    const json about = read_json(paths_.run());
    // What it began with, which a resumed run does not read again.
    if (about.contains("made_of")) settings["made_of"] = about["made_of"];
    const Settings own =
        resolve_settings(model_->document(), model_->text().file,
                         {.preset = model_->text().preset,
                          .settings = {{"batch", static_cast<double>(model_->batch())},
                                       {"seq", static_cast<double>(model_->context())}}});
    const std::vector<ChangedOption> changed =
        changed_options(about.value("options", json::object()), settings["options"], own);
    for (const ResumedDoubt& doubt : doubts_of_resuming(
             changed, make_config(std::array{about.value("options", json::object())}), config_,
             first_step_)) {
      doubt.matters ? warn_once(doubt.sentence) : note_once(doubt.sentence);
    }
    settings["history"] = history_with(about, settings["options"], first_step_);
  }
  if (printed_with_ > 0) settings["printed_with"] = printed_with_;
  if (json files = stack_texts_.origins(); !files.empty()) settings["files"] = std::move(files);
  const std::string text = settings.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  if (config_.resume) {
    write_position(paths_, batches_->position());
    cut_metrics(paths_.metrics(), first_step_);
    cut_spikes(paths_, first_step_);
  } else {
    remove_run(paths_);  // --overwrite: old weights must not meet new settings
    remove_side_saves(paths_);
    write_file_atomically(paths_.text(), model_->text().text);
    save_tokenizer(*tokenizer_, paths_.tokenizer());
  }
  // Deterministic runs do not use the table.
  if (run_->on_gpu() && !config_.deterministic) save_products(paths_);
  stack_texts_.write(paths_);
  if (!optimizer_text_.empty()) write_file_atomically(paths_.rule(), optimizer_text_);
  if (taken_over_) {
    // The save is not of this stack until it is written, and run.json says so in between.
    json between = settings;
    between["before"] = before_;
    write_file_atomically(paths_.run(), between.dump(2) + "\n");
    save_state(paths_, *run_, first_step_, model_print_);
  }
  write_file_atomically(paths_.run(), text);
}

Bytes Trainer::copied_to_save() const {
  const bool saves = config_.save_every > 0 && config_.save_every < config_.steps;
  const Bytes size = StateCopy(*run_).size();
  return saves && size <= room_to_save_ ? size : Bytes{0};
}

}  // namespace adjoint

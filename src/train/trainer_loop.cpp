// The loop: a batch, a rate, a step; and in between evaluations, lines of metrics and saves.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "comm/at_work.h"
#include "functors/norms.h"
#include "ops/builder.h"
#include "run/late_numbers.h"
#include "run/profile.h"
#include "train/evaluate.h"
#include "train/fed_inputs.h"
#include "train/metrics.h"
#include "train/replicas.h"
#include "train/saver.h"
#include "train/side_saves.h"
#include "train/step_rate.h"
#include "train/trainer.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr int kSkipsInARow = 10;  // updates, before a run is given up
constexpr int kBacksInARow = 10;  // to one save

std::string shown(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "(no targets counted)";
}
json json_of(const std::optional<double>& loss) { return loss ? json(*loss) : json(); }

// While it lasts: for the watchdog of ranks, and for whoever waits.
struct Saving {
  Saving(const std::optional<Communicator>& world, int64_t step, bool told)
      : at_work(world, step, "saving"), activity("saving", told) {}
  AtWork at_work;
  Activity activity;
};

}  // namespace

void Trainer::set_control(int64_t step) {
  if (rate_ >= 0) run_->set_number(rate_, schedule_.rate(step));  // a stage may train nothing
  if (counter_ >= 0) {
    const int64_t counter[] = {static_cast<int64_t>(config_.seed), step, 0};
    run_->write(counter_, counter);
  }
}

std::optional<double> Trainer::evaluate(const std::atomic<bool>& stop) {
  Activity activity(Progress{.what = "evaluating", .unit = "batches"}, writes());
  if (config_.eval_batches == 0) {
    const auto found = loss_in_order(*eval_, *val_batches_, stop,
                                     [&](int64_t done, int64_t of) { activity.at(done, of); });
    return found ? found->mean() : std::nullopt;
  }
  const Scheme& s = eval_->scheme();
  Batch data(*val_batches_);
  LossSum all;
  for (int64_t i = 0; i < config_.eval_batches; ++i) {
    if (stop) return std::nullopt;
    val_batches_->fill(i, data.to);
    feed(*eval_, *val_batches_, data);
    eval_->step();
    all.sum += eval_->number(s.outputs[0]);
    all.count += eval_->number(s.outputs[1]);
    activity.at(i + 1, config_.eval_batches);
  }
  return all.mean();
}

std::vector<std::vector<DocumentPlace>> Trainer::documents_of(int64_t step) const {
  std::vector<std::vector<DocumentPlace>> by_row(config_.batch);
  if (!documents_) return by_row;
  // All of a source at once, because its files are gone through to find them.
  std::map<size_t, std::vector<std::pair<int64_t, int64_t>>> wanted;  // token, row
  for (int64_t row = 0; row < config_.batch; ++row) {
    const Batches::Origin from = batches_->origin(step, row);
    for (const int64_t token : corpus_->documents_in(from.source, batches_->tokens_of(from))) {
      wanted[from.source].emplace_back(token, row);
    }
  }
  for (auto& [source, begins] : wanted) {
    std::sort(begins.begin(), begins.end());
    std::vector<int64_t> tokens;
    for (const auto& [token, row] : begins) tokens.push_back(token);
    const std::vector<DocumentPlace> found = documents_(source, tokens);
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].file.empty()) by_row[begins[i].second].push_back(found[i]);
    }
  }
  return by_row;
}

std::vector<DocumentPlace> Trainer::write_samples_of(const Spike& spike) {
  const int64_t step = spike.step - 1, context = model_->context();
  const Batches batches = batches_->whole();
  Batch data(batches);
  batches.fill(step, data.to);
  const auto& fields = batches.fields();
  const auto tokens = std::find_if(fields.begin(), fields.end(),
                                   [](const Field& field) { return field.name == "tokens"; });
  const auto* const ids = static_cast<const int32_t*>(data.to[tokens - fields.begin()]);
  json rows = json::array();
  std::vector<DocumentPlace> all;
  const auto by_row = documents_of(step);
  for (int64_t row = 0; row < config_.batch; ++row) {
    const Batches::Origin from = batches_->origin(step, row);
    json documents = json::array();
    for (const DocumentPlace& at : by_row[row]) {
      documents.push_back({{"file", at.file.string()}});
      if (at.line > 0) documents.back()["line"] = at.line;
      all.push_back(at);
    }
    rows.push_back(
        {{"source", from.source},
         {"sample", from.sample},
         {"documents", documents},
         {"text", tokenizer_->decode({ids + row * context, ids + (row + 1) * context})}});
  }
  const json told = {{"step", spike.step},
                     {"batch", spike.batch},
                     {"wrong", name(spike.what)},
                     {"loss", spike.loss},
                     {"samples", rows}};
  write_file_atomically(paths_.spike(),
                        told.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  return all;
}

void Trainer::stop_at(const Spike& spike, int64_t step, int skipped, Saver& saver) {
  const std::string documents = writes() ? words_for(write_samples_of(spike)) : "";
  const std::string samples = join_parts("; its samples are in ", paths_.spike().string(),
                                         documents.empty() ? "" : " (" + documents + ")");
  if (writes()) note_spike(paths_, spike, "stopped");
  saver.save(step);
  if (spike.what == Wrong::kSpike) fail(spike.sentence(), samples, "; saved what there is");
  // Where the data hold it already, a lower rate would not help.
  const Batches batches = batches_->whole();
  Batch fed(batches);
  batches.fill(spike.step - 1, fed.to);
  const std::string odd = field_not_finite(batches, fed);
  fail(spike.sentence(), " (rate ", schedule_.rate(spike.step - 1), "; ", skipped,
       " updates skipped in a row): ", odd.empty() ? "try a lower --lr" : odd, samples,
       "; saved what there is");
}

int64_t Trainer::go_back_of(const Spike& spike, Saver& saver) {
  saver.wait();
  const int64_t to = saver.saved_at();
  CHECK(to >= 0 && to < spike.step, "a run that may go back has saved, and never a spike");
  if (writes()) {
    write_samples_of(spike);
    note_spike(paths_, spike, join_parts("went back to step ", to));
  }
  // First of all, so that who is killed meanwhile and resumes leaves the batch out, too.
  DataPosition position = batches_->position();
  position.leave_out(spike.batch);
  if (writes()) write_position(paths_, position);
  batches_->set_position(std::move(position));
  run_->synchronize();
  load_state(paths_, *run_, true, model_print_);
  return to;
}

json Trainer::weight_norms() {
  if (world_) return norms_over_ranks(*run_, weights_by_role_);
  weights_->step();
  json norms = json::object();
  for (const Value out : weights_->scheme().outputs) {
    norms[role_of_norm(weights_->scheme()[out].source)] = std::sqrt(weights_->number(out));
  }
  return norms;
}

TrainResult Trainer::train(const std::atomic<bool>& stop, std::ostream* log) {
  const Scheme& s = run_->scheme();
  const int64_t last =
      config_.stop_after > 0 ? std::min(config_.stop_after, config_.steps) : config_.steps;
  TrainResult result{.step = first_step_, .predicted = run_->plan().arena};
  // Saves are written beside the steps, and beside each other: each has calls of its own.
  const auto own_group = [&] { return world_ ? std::optional(world_->split(0, 0)) : std::nullopt; };
  Saver saver(paths_, *run_, model_print_, config_.resume ? first_step_ : -1, room_to_save_,
              own_group());
  const SideSaves side(paths_, *run_, model_print_, config_, own_group());
  const bool goes_back = config_.on_spike == "back";
  if (goes_back) saver.save(first_step_);  // there is always something to go back to
  std::optional<Prefetcher> data(std::in_place, *batches_, first_step_);
  std::optional<LateNumbers> late(std::in_place, *run_, s.outputs);
  std::optional<Metrics> metrics;
  if (writes()) metrics.emplace(paths_, config_.tensorboard, first_step_);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto began = now();
  Activity progress(Progress{.what = "training",
                             .unit = "step",
                             .one_by_one = true,
                             .at_once = true,
                             .done = first_step_,
                             .of = last},
                    writes());
  StepRate rate(static_cast<double>(config_.batch * model_->context()));
  rate.begin(began);
  double stalled = 0, norm = 0;
  int skipped = 0, backs = 0;      // in a row
  int64_t skips_since_logged = 0;  // by --on-spike
  int64_t went_back_to = -1;
  json gradient_norms = json::object();
  // Where the loss is scaled, its scale is state and no control.
  const bool scales_loss = input_named(s, "scale") < 0, guarded = config_.step.guarded;
  const auto take_loss = [&](const StepNumbers& numbers) {
    result.loss = numbers.count > 0 ? std::optional(numbers.loss) : std::nullopt;
  };
  BestLoss best = best_loss_in(paths_.metrics());
  // Whoever prints does so where no line is drawn.
  const auto print = [&](const std::string& line) {
    if (!log) return;
    const Teller::Quiet quiet(teller());
    *log << line << "\n" << std::flush;
  };
  // An interrupt and a clock reach one rank first; in an evaluation, where ranks wait for each
  // other, nobody looks.
  const std::atomic<bool> never = false;
  bool stopped = false;
  while (result.step < last) {
    stopped = agreed(stop);
    if (stopped || agreed(!result.ended_by.empty())) break;
    saver.check();
    const int64_t step = result.step;
    at_step_ = step + 1;
    if (world_) world_->progress(at_step_, "its batch");
    const Batch& batch = data->next();
    feed(*run_, *batches_, batch);
    set_control(step);
    run_->step();
    result.step = step + 1;
    late->note();
    const auto is_due = [&](int64_t every) { return every > 0 && result.step % every == 0; };
    const bool ends = result.step == last;
    const bool evaluates = ends || is_due(config_.eval_every);
    // An evaluation that is made because this call stops here would not be made by a run that goes
    // on, so nothing may be decided by it.
    const bool decides = is_due(config_.eval_every) || result.step == config_.steps;
    const bool tells_norms = is_due(config_.norms);
    const bool logs = evaluates || tells_norms || is_due(config_.log_every);
    const bool saves = !ends && is_due(config_.save_every);
    const bool compares = is_due(config_.check_replicas);
    std::optional<Spike> back_of;
    // Where somebody wants to know, or saves, now; else a step later, while the next one runs.
    while (!back_of && late->waiting() > (logs || saves ? 0 : late->lag())) {
      const std::vector<double> outputs = late->take();
      rate.done(now());
      const StepNumbers numbers(outputs, guarded);
      take_loss(numbers);
      norm = numbers.norm;
      if (tells_norms) {
        for (size_t i = numbers.num_read; i < outputs.size(); ++i) {
          gradient_norms[role_of_norm(s[s.outputs[i]].source)] = outputs[i];
        }
      }
      // An update whose gradient is not finite was skipped, so what is saved is still good.
      skipped = numbers.taken || numbers.count == 0 ? 0 : skipped + 1;
      const int64_t at = result.step - static_cast<int64_t>(late->waiting());
      Spike spike{.step = at,
                  .batch = batches_->position().batch_of(at - 1),
                  .what = Wrong::kGradient,
                  .loss = numbers.loss,
                  .norm = norm,
                  .usual = numbers.usual};
      const auto wrong = wrong_with(numbers, scales_loss);
      if (wrong) spike.what = *wrong;
      const bool stops = config_.on_spike == "stop";
      if (skipped == kSkipsInARow || (stops && wrong && *wrong != Wrong::kGradient)) {
        stop_at(spike, result.step, skipped, saver);
      }
      if (!wrong || stops) continue;
      if (goes_back) {
        back_of = spike;
        continue;
      }
      const std::string documents = writes() ? words_for(write_samples_of(spike)) : "";
      if (writes()) note_spike(paths_, spike, "skipped");
      ++skips_since_logged;
      print(spike.sentence() + "; skipped" + (documents.empty() ? "" : ": ") + documents);
    }
    if (back_of) {
      // A second spike of the same step number would be another batch's, so this ends.
      const int64_t to = go_back_of(*back_of, saver);
      backs = to == went_back_to ? backs + 1 : 1;
      went_back_to = to;
      if (backs > kBacksInARow) {
        fail(back_of->sentence(), "; the run went back to step ", to, " ", kBacksInARow,
             " times already: try a lower --lr, a larger --spike or an earlier save; the save of "
             "step ",
             to, " stays");
      }
      print(join_parts(back_of->sentence(), "; back to step ", to));
      data.emplace(*batches_, to);
      late.emplace(*run_, s.outputs);
      if (metrics) metrics->go_back(to);
      if (world_) world_->barrier().wait();  // all read what is left of the metrics
      best = best_loss_in(paths_.metrics());
      result.step = to;
      rate.take();
      rate.begin(now());
      stalled = 0;
      skipped = 0;
      continue;
    }
    const std::optional<double> pace = rate.per_second();
    const std::string loss = "loss " + shown(result.loss);
    progress.at(result.step, last, pace ? fmt::format("{}  {:.0f} tokens/s", loss, *pace) : loss);
    if (logs) {
      const double tokens_per_s = rate.take().value_or(0);
      json line = {{"step", result.step},
                   {"loss", json_of(result.loss)},
                   {"lr", schedule_.rate(step)},
                   {"tokens_per_s", tokens_per_s}};
      line["grad_norm"] = norm;
      line["epoch"] = batches_->epoch(result.step);
      line["stall_s"] = data->stalled_seconds() - stalled;
      // A GPU does not say cheaply what of it is ours.
      if (!run_->on_gpu()) line["memory_bytes"] = resident_memory_quickly().count;
      if (skips_since_logged > 0) line["skipped"] = std::exchange(skips_since_logged, 0);
      if (tells_norms) line["grad_norms"] = gradient_norms, line["weight_norms"] = weight_norms();
      stalled = data->stalled_seconds();
      if (evaluates) {
        const std::optional<double> val_loss = evaluate(world_ ? never : stop);
        const bool whole = val_loss || world_ || !stop;
        if (whole) {
          result.val_loss = val_loss;
          line["val_loss"] = json_of(val_loss);
          if (!decides) line[kOfAStop] = true;
        }
        const AtWork at_work(world_, at_step_, "saving");
        if (decides && val_loss && best.note(*val_loss) && config_.keep_best) {
          const Activity activity("saving", writes());
          side.keep_best(result.step);
        }
        if (decides && config_.patience > 0 && best.evaluations_since >= config_.patience) {
          result.ended_by =
              fmt::format("no lower validation loss in {} evaluations: the best is {:.4f}",
                          best.evaluations_since, best.loss);
        }
        if (whole) {
          print(fmt::format("step {:>6}  loss {}  val {}  lr {:.2e}  {:>7.0f} tokens/s",
                            result.step, shown(result.loss), shown(val_loss), schedule_.rate(step),
                            tokens_per_s));
        }
      }
      if (metrics) metrics->write(line);
    }
    if (compares) check_replicas(*run_, result.step);
    if (saves) {
      const Saving saving(world_, at_step_, writes());
      saver.save_behind(result.step);
      side.keep(result.step);
    }
    if (config_.max_minutes > 0 && !ends &&
        now() - began >= std::chrono::duration<double>(60 * config_.max_minutes)) {
      result.ended_by = fmt::format("{} minutes are over", shortest(config_.max_minutes));
    }
    // Whatever was no step is not counted as one.
    if (logs || saves || compares) rate.begin(now());
  }
  while (late->waiting() > 0) take_loss(StepNumbers(late->take(), guarded));
  result.interrupted = world_ ? stopped : stop.load();
  const Saving saving(world_, at_step_, writes());
  saver.save(result.step);
  side.keep(result.step);
  if (world_) world_->barrier().wait();  // what one rank saved is there for all
  return result;
}

}  // namespace adjoint

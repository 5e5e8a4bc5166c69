// The loop: a batch, a rate, a step; and in between evaluations, lines of metrics and saves.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <deque>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "ops/builder.h"
#include "run/late_numbers.h"
#include "train/evaluate.h"
#include "train/event_file.h"
#include "train/fed_inputs.h"
#include "train/progress.h"
#include "train/saver.h"
#include "train/side_saves.h"
#include "train/trainer.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr int kSkipsInARow = 10;  // updates, before a run is given up

// The mean of the losses of the last steps, once there are enough of them to tell.
class RecentLosses {
 public:
  std::optional<double> mean() const {
    if (losses_.size() < kEnough) return std::nullopt;
    return std::accumulate(losses_.begin(), losses_.end(), 0.0) /
           static_cast<double>(losses_.size());
  }
  void add(double loss) {
    losses_.push_back(loss);
    if (losses_.size() > kMost) losses_.pop_front();
  }

 private:
  static constexpr size_t kEnough = 10, kMost = 100;
  std::deque<double> losses_;
};

// A mean of nothing is none.
std::optional<double> mean(double sum, double count) {
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}
std::string shown(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "(no targets counted)";
}
json json_of(const std::optional<double>& loss) { return loss ? json(*loss) : json(); }

}  // namespace

void Trainer::set_control(int64_t step) {
  run_->set_number(rate_, schedule_.rate(step));
  if (counter_ >= 0) {
    const int64_t counter[] = {static_cast<int64_t>(config_.seed), step, 0};
    run_->write(counter_, counter);
  }
}

std::optional<double> Trainer::evaluate(const std::atomic<bool>& stop) {
  const Scheme& s = eval_->scheme();
  Batch data(*val_batches_);
  double sum = 0, count = 0;
  const auto add = [&] {
    feed(*eval_, *val_batches_, data);
    eval_->step();
    sum += eval_->number(s.outputs[0]);
    count += eval_->number(s.outputs[1]);
  };
  if (config_.eval_batches > 0) {
    for (int64_t i = 0; i < config_.eval_batches; ++i) {
      if (stop) return std::nullopt;
      val_batches_->fill(i, data.to);
      add();
    }
    return mean(sum, count);
  }
  // Once through, window by window; what does not fill a window is left out, and rows of the last
  // batch that have no window count for nothing.
  const int64_t batch = config_.batch, context = model_->context();
  const int64_t windows = val_batches_->count_in_order();
  for (int64_t first = 0; first < windows; first += batch) {
    if (stop) return std::nullopt;
    for (int64_t row = 0; row < batch; ++row) {
      const int64_t window = std::min(first + row, windows - 1);
      val_batches_->fill_in_order(window, row, data.to);
      if (first + row < windows) continue;
      for (size_t i = 0; i < data.to.size(); ++i) {
        const auto ignored = ignored_.find(val_batches_->fields()[i].name);
        if (ignored == ignored_.end()) continue;
        auto* ids = static_cast<int32_t*>(data.to[i]);
        std::fill_n(ids + row * context, context, static_cast<int32_t>(ignored->second));
      }
    }
    add();
  }
  return mean(sum, count);
}

std::string Trainer::write_samples_of(int64_t step, double loss) {
  Batch data(*batches_);
  batches_->fill(step, data.to);
  const int64_t context = model_->context();
  json rows = json::array();
  for (size_t i = 0; i < data.to.size(); ++i) {
    if (batches_->fields()[i].name != "tokens") continue;
    const auto* const ids = static_cast<const int32_t*>(data.to[i]);
    for (int64_t row = 0; row < config_.batch; ++row) {
      const Batches::Origin from = batches_->origin(step, row);
      rows.push_back(
          {{"source", from.source},
           {"sample", from.sample},
           {"text", tokenizer_->decode({ids + row * context, ids + (row + 1) * context})}});
    }
  }
  const json told = {{"step", step + 1}, {"loss", loss}, {"samples", rows}};
  const std::filesystem::path file = paths_.folder / "spike.json";
  write_file_atomically(file, told.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  return file.string();
}

TrainResult Trainer::train(const std::atomic<bool>& stop, std::ostream* log) {
  const Scheme& s = run_->scheme();
  const int64_t last =
      config_.stop_after > 0 ? std::min(config_.stop_after, config_.steps) : config_.steps;
  TrainResult result{.step = first_step_, .predicted = run_->plan().arena};
  Saver saver(paths_, *run_, model_print_, config_.resume ? first_step_ : -1, room_to_save_);
  Prefetcher data(*batches_, first_step_);
  std::ofstream metrics(paths_.metrics(), std::ios::app);
  std::optional<EventFile> events;
  if (config_.tensorboard) events.emplace(paths_.folder, first_step_);
  Progress progress(last, first_step_);
  auto logged_at = std::chrono::steady_clock::now();
  double stalled = 0;
  int64_t logged_step = first_step_;
  double tokens_per_s = 0, norm = 0;
  int skipped = 0;
  LateNumbers metrics_of_steps(*run_, {s.outputs[0], s.outputs[1], s.outputs[2]});
  const auto take_loss = [&](const std::vector<double>& numbers) {
    result.loss = numbers[1] > 0 ? std::optional(numbers[0]) : std::nullopt;
  };
  const SideSaves side(paths_, *run_, model_print_, config_);
  BestLoss best = best_loss_in(paths_.metrics());
  RecentLosses recent;
  const double tokens_per_step = static_cast<double>(config_.batch * model_->context());
  for (int64_t step = first_step_; step < last && !stop && result.ended_by.empty(); ++step) {
    saver.check();
    const Batch& batch = data.next();
    feed(*run_, *batches_, batch);
    set_control(step);
    run_->step();
    result.step = step + 1;
    metrics_of_steps.note();
    const bool ends = result.step == last;
    const bool evaluates =
        ends || (config_.eval_every > 0 && result.step % config_.eval_every == 0);
    const bool logs = evaluates || result.step % config_.log_every == 0;
    // Where somebody wants to know, now; else a step later, while the next one runs.
    while (metrics_of_steps.waiting() > (logs ? 0 : metrics_of_steps.lag())) {
      const std::vector<double> numbers = metrics_of_steps.take();
      take_loss(numbers);
      norm = numbers[2];
      // An update whose gradient is not finite was skipped, so what is saved is still good.
      skipped = std::isfinite(norm) ? 0 : skipped + 1;
      const auto usual = recent.mean();
      const bool spike = config_.spike > 0 && usual && numbers[0] > config_.spike * *usual;
      if (std::isfinite(numbers[0]) && skipped < kSkipsInARow && !spike) {
        recent.add(numbers[0]);
        continue;
      }
      const int64_t at = result.step - static_cast<int64_t>(metrics_of_steps.waiting());
      progress.clear();
      const std::string samples = write_samples_of(at - 1, numbers[0]);
      saver.save(result.step);
      if (spike) {
        fail("at step ", at, " the loss is ", numbers[0], ", and the mean of the steps before is ",
             *usual, "; its samples are in ", samples, "; saved what there is");
      }
      // Where the data hold it already, a lower rate would not help.
      Batch fed(*batches_);
      batches_->fill(at - 1, fed.to);
      const std::string odd = field_not_finite(*batches_, fed);
      fail("at step ", at, " the ", skipped == kSkipsInARow ? "gradient" : "loss",
           " is no longer a number (rate ", schedule_.rate(at - 1), "; ", skipped,
           " updates skipped in a row): ", odd.empty() ? "try a lower --lr" : odd,
           "; its samples are in ", samples, "; saved what there is");
    }
    if (logs) {
      const auto now = std::chrono::steady_clock::now();
      const double seconds = std::chrono::duration<double>(now - logged_at).count();
      tokens_per_s = tokens_per_step * static_cast<double>(result.step - logged_step) /
                     std::max(seconds, 1e-9);
      json line = {{"step", result.step},
                   {"loss", json_of(result.loss)},
                   {"lr", schedule_.rate(step)},
                   {"tokens_per_s", tokens_per_s}};
      line["grad_norm"] = norm;
      line["epoch"] = batches_->epoch(result.step);
      line["stall_s"] = data.stalled_seconds() - stalled;
      stalled = data.stalled_seconds();
      if (evaluates) {
        progress.show(result.step, "evaluating");
        const std::optional<double> val_loss = evaluate(stop);
        const bool whole = val_loss || !stop;
        if (whole) {
          result.val_loss = val_loss;
          line["val_loss"] = json_of(val_loss);
        }
        progress.clear();
        if (val_loss && best.note(*val_loss)) side.keep_best(result.step);
        if (config_.patience > 0 && best.evaluations_since >= config_.patience) {
          result.ended_by =
              fmt::format("no lower validation loss in {} evaluations: the best is {:.4f}",
                          best.evaluations_since, best.loss);
        }
        if (log && whole) {
          *log << fmt::format("step {:>6}  loss {}  val {}  lr {:.2e}  {:>7.0f} tokens/s\n",
                              result.step, shown(result.loss), shown(val_loss),
                              schedule_.rate(step), tokens_per_s)
               << std::flush;
        }
      }
      metrics << line.dump() << "\n" << std::flush;
      if (!metrics) throw MachineError(paths_.metrics().string() + ": cannot be written");
      if (events) {
        std::vector<std::pair<std::string, double>> numbers;
        for (const auto& [name, number] : line.items()) {
          if (name != "step" && number.is_number()) numbers.emplace_back(name, number);
        }
        events->add(result.step, numbers);
      }
      logged_at = std::chrono::steady_clock::now();
      logged_step = result.step;
    }
    if (!ends && config_.save_every > 0 && result.step % config_.save_every == 0) {
      saver.save_behind(result.step);
      side.keep(result.step);
    }
    if (config_.max_minutes > 0 && !ends && progress.seconds() >= 60 * config_.max_minutes) {
      result.ended_by = fmt::format("{} minutes are over", shortest(config_.max_minutes));
    }
    progress.show(result.step,
                  fmt::format("loss {}  {:.0f} tokens/s", shown(result.loss), tokens_per_s));
  }
  while (metrics_of_steps.waiting() > 0) take_loss(metrics_of_steps.take());
  progress.clear();
  result.interrupted = stop;
  saver.save(result.step);
  side.keep(result.step);
  return result;
}

}  // namespace adjoint

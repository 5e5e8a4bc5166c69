#include "bench/step_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>

#include "analysis/totals.h"
#include "bench/repeat.h"
#include "cost/cost.h"
#include "report/step_times.h"
#include "run/profile.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr uint64_t kSeed = 1;

Bytes touched_by(Run& run, RandomSteps& steps, const std::function<void()>& told) {
  Bytes most = {0};
  for (const std::byte poison : kPoisons) {
    const Touched touched = touched_by_step(run, steps, poison);
    most = std::max(most, touched.device + touched.host);
    told();
  }
  return most;
}

Bytes peak_resident_memory() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return {usage.ru_maxrss * 1024};
}

double model_flops(const Scheme& step, const Plan& plan) {
  return flops_of(time_of_step(step, plan, std::vector<double>(plan.calls.size()))).model;
}

Dtype product_dtype(const Scheme& step) {
  std::map<Dtype, double> flops;
  for (const Morphism& m : step.morphisms) {
    if (!is_product(m.op)) continue;
    flops[step[m.inputs[0]].type.dtype] += static_cast<double>(count_flops(call_of(step, m)));
  }
  const auto most = std::max_element(
      flops.begin(), flops.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == flops.end() ? Dtype::kF32 : most->first;
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

double StepBench::median_seconds() const { return median(seconds); }
double StepBench::seconds_per_token() const {
  return ratio(median_seconds(), static_cast<double>(step.tokens()));
}
double StepBench::utilization() const { return ratio(flops, products * median_seconds()); }

StepBench bench_step(const BenchedStep& which, const Scheme& step, const Plan& plan,
                     const StepBenchOptions& options) {
  StepBench bench{.step = which,
                  .flops = model_flops(step, plan),
                  .dtype = product_dtype(step),
                  .parameters = num_parameters(step),
                  .predicted = plan.footprint()};
  const int64_t all = options.warmup + options.steps + (options.touched ? 2 : 0);
  int64_t done = 0;
  const auto tell = [&] {
    if (options.told) options.told(++done, all, "steps");
  };
  Run run(step, plan, {.reference = false, .poison = false, .told = options.told});
  RandomSteps steps(run, kSeed);
  steps.begin();
  for (int i = 0; i < options.warmup; ++i) {
    steps.feed();
    steps.step();
    tell();
  }
  bench.seconds = time_work(
      which.title,
      [&] {
        steps.step();
        bench.loss = steps.loss();
      },
      {.count = options.steps, .iterations = 1},
      [&] {
        steps.feed();
        tell();
      });
  bench.resident = peak_resident_memory();
  if (options.touched) bench.touched = touched_by(run, steps, tell);
  return bench;
}

json step_bench_json(const StepBench& b) {
  const auto [fastest, slowest] = std::minmax_element(b.seconds.begin(), b.seconds.end());
  json out = {{"model", b.step.model},
              {"batch", b.step.batch},
              {"seq", b.step.context},
              {"stack", b.step.stack},
              {"threads", b.step.threads},
              {"params", b.parameters},
              {"loss", b.loss},
              {"measured_step_s", b.median_seconds()},
              {"fastest_s", *fastest},
              {"slowest_s", *slowest},
              {"measured_steps_s", b.seconds},
              {"tokens_per_s", ratio(1, b.seconds_per_token())},
              {"model_flops", b.flops},
              {"peak_bytes", b.predicted.count}};
  if (b.touched.count > 0) out["measured_peak_bytes"] = b.touched.count;
  if (b.resident.count > 0) out["peak_resident_bytes"] = b.resident.count;
  if (b.products > 0) {
    out["peak_flops_per_s"] = b.products;
    out["model_utilization"] = b.utilization();
  }
  return out;
}

std::string step_bench_table(const StepBench& b) {
  const auto [fastest, slowest] = std::minmax_element(b.seconds.begin(), b.seconds.end());
  std::string out;
  const auto line = [&](const char* what, const std::string& value, const std::string& note) {
    out += fmt::format("{:<22} {:>16}{}{}\n", what, value, note.empty() ? "" : "  ", note);
  };
  line("step", fmt::format("{:.2f} ms", 1e3 * b.median_seconds()),
       fmt::format("median of {}; {:.2f} to {:.2f}", b.seconds.size(), 1e3 * *fastest,
                   1e3 * *slowest));
  line("tokens per second", fmt::format("{:.0f}", ratio(1, b.seconds_per_token())), "");
  line("model FLOPs", fmt::format("{:.4g}", b.flops),
       fmt::format("{:.1f} GFLOP/s", ratio(b.flops, b.median_seconds()) / 1e9));
  if (b.products > 0) {
    line("utilization", fmt::format("{:.1f}%", 100 * b.utilization()),
         fmt::format("of {:.1f} GFLOP/s, a large product's rate", b.products / 1e9));
  }
  line("predicted peak bytes", with_commas(b.predicted.count), "");
  if (b.touched.count > 0) line("measured peak bytes", with_commas(b.touched.count), "");
  if (b.resident.count > 0) {
    line("peak resident bytes", with_commas(b.resident.count), "of the whole process");
  }
  return out;
}

json sweep_json(const std::vector<StepBench>& rows) {
  json all = json::array();
  for (const StepBench& row : rows) {
    json each = step_bench_json(row);
    const StepBench& first = rows.front();
    const double tokens = static_cast<double>(row.step.tokens());
    each["token_s"] = row.seconds_per_token();
    each["seconds_to_first"] = ratio(row.seconds_per_token(), first.seconds_per_token());
    each["flops_to_first"] =
        ratio(row.flops / tokens, first.flops / static_cast<double>(first.step.tokens()));
    all.push_back(each);
  }
  return all;
}

std::string sweep_table(const std::vector<StepBench>& rows) {
  std::string out =
      fmt::format("{:>6} {:>8} {:>12} {:>12} {:>10} {:>10} {:>12} {:>14}\n", "batch", "context",
                  "ms", "tokens/s", "us/token", "of first", "FLOPs/token", "time to FLOPs");
  for (const json& row : sweep_json(rows)) {
    const double time = row["seconds_to_first"], flops = row["flops_to_first"];
    out +=
        fmt::format("{:>6} {:>8} {:>12.2f} {:>12.0f} {:>10.3f} {:>9.2f}x {:>11.2f}x {:>13.2f}x\n",
                    row["batch"].get<int64_t>(), row["seq"].get<int64_t>(),
                    1e3 * row["measured_step_s"].get<double>(), row["tokens_per_s"].get<double>(),
                    1e6 * row["token_s"].get<double>(), time, flops, ratio(time, flops));
  }
  return out;
}

}  // namespace adjoint

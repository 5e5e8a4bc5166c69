#include "train/fitting.h"

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "run/machine.h"
#include "train/save.h"

namespace adjoint {

using nlohmann::json;

namespace {

json read_profile(const std::string& folder, const BoundModel& model) {
  const std::filesystem::path file = std::filesystem::path(folder) / "profile.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    fail("--profile: '", folder, "' is no folder of `adjoint profile` (no profile.json)");
  }
  const json profile = json::parse(read_file(file), nullptr, false);
  const bool whole = profile.is_object() && profile.contains("calls_s") &&
                     profile["calls_s"].is_object() && profile.contains("fingerprint") &&
                     profile.value("peak_flops_per_s", 0.0) > 0 &&
                     profile.value("peak_bytes_per_s", 0.0) > 0;
  if (!whole) fail("--profile: '", file.string(), "' is damaged, or of another program");
  const std::string own = fingerprint(without_randomness(model.forward(1, model.context())));
  if (profile["fingerprint"] != own) {
    fail("--profile: '", folder, "' is a profile of another model, ",
         profile.value("model", std::string("?")), " with context ", profile.value("context", 0),
         "; this is ", model.name(), " with context ", model.context());
  }
  return profile;
}

}  // namespace

Bytes budget_of(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->count == 0) {
    fail("--fit: wanted a size above 0 such as 24GB, 512MiB or 1000000000, found '", text, "'");
  }
  return *bytes;
}

Costs costs_for(const FitWish& wish, const BoundModel& model, int threads) {
  if (wish.profile.empty()) return {.sheet = find_device(wish.device), .threads = threads};
  if (wish.device != "cpu") {
    fail("--profile and --device contradict each other: a profile is of the machine it ran on");
  }
  const json profile = read_profile(wish.profile, model);
  const MachinePeak peak{.flops = profile["peak_flops_per_s"],
                         .bytes_per_second = profile["peak_bytes_per_s"],
                         .threads = profile.value("threads", 1)};
  return {.sheet = measured_sheet(peak), .threads = threads};
}

Costs costs_for(const FitWish& wish, const BoundModel& model, int threads, const Scheme& step) {
  Costs costs = costs_for(wish, model, threads);
  if (wish.profile.empty()) return costs;
  Timings timings;
  for (const auto& [key, seconds] : read_profile(wish.profile, model)["calls_s"].items()) {
    if (seconds.is_number()) timings[key] = seconds;
  }
  costs.learn(step, timings);
  return costs;
}

PlanOptions plan_options(const Costs& costs) {
  PlanOptions options;
  options.threads = costs.threads;
  if (costs.sheet.workspace.count > 0) options.workspace_cap = costs.sheet.workspace;
  return options;
}

FitOptions fit_options(const FitWish& wish, const BoundModel& model, const StepOptions& step,
                       int threads) {
  const Scheme given = training_step(model.forward(), step);
  FitOptions options{.step = step,
                     .costs = costs_for(wish, model, threads, given),
                     .may_approximate = wish.may_approximate,
                     .batch = model.batch()};
  options.plan = plan_options(options.costs);
  return options;
}

FitPoint fitted(Fit& fit, const FitWish& wish) {
  const Bytes budget = budget_of(wish.budget);
  if (const auto point = fit.best(budget)) return *point;
  const FitPoint least = fit.smallest();
  if (least.peak <= budget) return least;
  fail("--fit ", wish.budget, ": no choice needs so little; the smallest budget is ",
       with_commas(least.peak.count), " bytes (", human(least.peak), "), with the stack \"",
       least.stack, "\"");
}

}  // namespace adjoint

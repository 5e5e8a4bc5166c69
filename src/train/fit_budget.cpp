#include "train/fit_budget.h"

#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/text.h"
#include "comm/texts.h"
#include "functors/evaluation.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "run/machine.h"
#include "train/save.h"

namespace adjoint {

using nlohmann::json;

namespace {

// profile.json of a folder that `adjoint profile` made of this model.
json read_profile(const std::string& folder, const BoundModel& model) {
  const std::filesystem::path file = std::filesystem::path(folder) / "profile.json";
  if (!is_visible(file)) {
    fail("--profile: '", folder, "' is no folder of `adjoint profile` (no profile.json)");
  }
  const json profile = json::parse(read_file(file), nullptr, false);
  const auto is = [&](const char* key, json::value_t type) {
    return profile.contains(key) && profile[key].type() == type;
  };
  const auto is_rate = [&](const char* key) {
    return profile.contains(key) && profile[key].is_number() && profile[key] > 0;
  };
  const bool whole = profile.is_object() && is("calls_s", json::value_t::object) &&
                     is("slower", json::value_t::object) &&
                     is("fingerprint", json::value_t::string) && is_rate("peak_flops_per_s") &&
                     is_rate("peak_bytes_per_s") && is_rate("threads");
  if (!whole) fail("--profile: '", file.string(), "' is damaged, or not of this program");
  const std::string own = fingerprint(without_randomness(model.forward(1, model.context())));
  if (profile["fingerprint"] != own) {
    fail("--profile: '", folder, "' is a profile of another model: ", profile.value("about", "?"),
         "; this is ", model.name(),
         " with other parameters (vocabulary, context and settings count)");
  }
  return profile;
}

Timings numbers_of(const json& object) {
  Timings numbers;
  for (const auto& [key, value] : object.items()) {
    if (value.is_number()) numbers[key] = value;
  }
  return numbers;
}

}  // namespace

Costs costs_for(const FitWish& wish, const BoundModel& model, int threads) {
  if (wish.profile.empty()) return costs_on(find_device(wish.device), threads, product_table());
  if (wish.device != "cpu") {
    fail("--profile and --device contradict each other: a profile is of the machine it ran on");
  }
  const json profile = read_profile(wish.profile, model);
  const MachinePeak peak{
      .flops = profile["peak_flops_per_s"],
      .bytes_per_second = profile["peak_bytes_per_s"],
      .threads = profile["threads"],
      .target = profile.value("device", "cpu") == "cuda" ? Target::kCuda : Target::kCpu};
  Costs costs{.sheet = measured_sheet(peak), .threads = threads};
  costs.ratio = numbers_of(profile["slower"]);
  // With another number of threads single calls take other times, so only the ratio per op is used.
  if (peak.threads == threads || peak.target == Target::kCuda)
    costs.measured = numbers_of(profile["calls_s"]);
  return costs;
}

PlanOptions plan_options(const Costs& costs) {
  PlanOptions options;
  options.threads = costs.threads;
  options.target = costs.sheet.per_core ? Target::kCpu : Target::kCuda;
  options.deterministic = costs.deterministic;
  options.host_apart = !costs.sheet.one_memory();
  if (costs.sheet.workspace.count > 0) options.workspace_cap = costs.sheet.workspace;
  return options;
}

FitOptions fit_options(const FitWish& wish, const BoundModel& model, const StepOptions& step,
                       int threads) {
  FitOptions options{.step = step,
                     .costs = costs_for(wish, model, threads),
                     .may_approximate = wish.may_approximate,
                     .batch = model.batch()};
  // Timed products are ignored, because most stacks have products that were never timed, and stacks
  // must be compared by one measure.
  options.costs.tuned.clear();
  options.costs.deterministic = step.deterministic;
  options.plan = plan_options(options.costs);
  if (wish.seconds > 0) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(wish.seconds);
    options.enough = [end] { return Clock::now() >= end; };
  }
  options.step.target = options.plan.target;
  return options;
}

std::function<void(const FitPoint&)> PlansMade::told() {
  return [this](const FitPoint& p) {
    const bool fits = budget_ && p.peak <= *budget_;
    if (fits && (best_ == 0 || p.seconds < best_)) best_ = p.seconds;
    const std::string best = best_ > 0 ? fmt::format("best so far {:.2f} ms a step", 1e3 * best_)
                             : budget_ ? "none fits yet"
                                       : "";
    activity_.at(++count_, 0, best);
  };
}

FitPoint fitted(Fit& fit, const FitWish& wish) {
  const Bytes budget = budget_of(wish.budget);
  if (const auto point = fit.best(budget)) return *point;
  const FitPoint least = fit.smallest();
  if (least.peak <= budget) return least;
  if (fit.cut_off()) {
    fail("--fit ", wish.budget, ": nothing that needs so little was found in ",
         shortest(wish.seconds), " s; the smallest that was has ", with_commas(least.peak.count),
         " bytes (", human(least.peak), "), with --stack '", least.stack,
         "'; say a larger --fit-seconds, or 0 to try everything");
  }
  fail("--fit ", wish.budget, ": no choice needs so little; the smallest that --fit can choose is ",
       with_commas(least.peak.count), " bytes (", human(least.peak), "), with --stack '",
       least.stack, "'");
}

std::string told_if_cut_off(const Fit& fit, const FitWish& wish) {
  if (!fit.cut_off()) return "";
  return fmt::format(
      "the search was cut off after {} s: it may find a faster stack with a larger --fit-seconds",
      shortest(wish.seconds));
}

std::string found_by_first_rank(const std::optional<Communicator>& world,
                                const std::function<std::string()>& find) {
  if (!world) return find();
  std::string found, trouble;
  if (world->rank() == 0) {
    try {
      found = find();
    } catch (const Error& e) {
      trouble = e.what();
    }
  }
  trouble = broadcast_text(*world, 0, trouble);
  if (!trouble.empty()) fail(trouble);
  return broadcast_text(*world, 0, found);
}

}  // namespace adjoint

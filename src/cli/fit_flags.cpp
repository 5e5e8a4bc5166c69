#include "cli/fit_flags.h"

#include <fmt/format.h>

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "device/parallel.h"
#include "report/choice_labels.h"
#include "report/pareto_chart.h"
#include "train/config.h"

namespace adjoint {

namespace {

constexpr size_t kMostRows = 9;  // of what was considered, beside the chosen one

std::string shortened(const std::string& text, size_t width) {
  if (text.empty()) return "(as given)";
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

std::string point_line(const FitPoint& p, double fastest) {
  return fmt::format("{:>10} {:>12.2f} {:>8.1f}% {:>12.4g}", human(p.peak), 1e3 * p.seconds,
                     100 * (p.seconds / fastest - 1), p.recomputed_flops);
}

std::string header(std::string_view last) {
  return fmt::format("{:>10} {:>12} {:>9} {:>12}  {}\n", "peak", "ms a step", "slower",
                     "recomputed", last);
}

// The stack without its residences: what kind of choice it is.
std::string kind_of(const std::string& stack) {
  const size_t at = stack.find("reside(");
  if (at == std::string::npos) return stack;
  return stack.substr(0, at) + "reside(...)";
}

nlohmann::json fit_json(const FitPoint& p) {
  return {{"stack", p.stack},
          {"ranks", p.ranks},
          {"peak_bytes", p.peak.count},
          {"host_peak_bytes", p.host.count},
          {"step_s", p.seconds},
          {"flops", p.flops},
          {"recomputed_flops", p.recomputed_flops}};
}

std::string fit_table(const Fit& fit, const FitPoint& chosen, Bytes budget) {
  // The fastest that fits of each kind, and of those that do not fit the smallest.
  std::map<std::string, FitPoint> kinds;
  for (const FitPoint& p : fit.considered()) {
    const auto [found, fresh] = kinds.emplace(kind_of(p.stack), p);
    if (fresh) continue;
    FitPoint& known = found->second;
    const bool fits = p.peak <= budget, fitted = known.peak <= budget;
    const bool better = fits != fitted ? fits
                        : fits         ? p.seconds < known.seconds
                                       : p.peak < known.peak;
    if (better) known = p;
  }
  std::vector<FitPoint> rows;
  for (const auto& [kind, p] : kinds) rows.push_back(p);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const FitPoint& a, const FitPoint& b) { return a.seconds < b.seconds; });
  double fastest = chosen.seconds;
  for (const FitPoint& p : rows) fastest = std::min(fastest, p.seconds);
  std::string out = header("considered");
  size_t shown = 0;
  for (const FitPoint& p : rows) {
    const bool is_it = p.stack == chosen.stack;
    if (!is_it && ++shown > kMostRows) continue;
    out += fmt::format("{}  {}{}\n", point_line(p, fastest), shortened(kind_of(p.stack), 60),
                       is_it             ? "  <- chosen"
                       : p.peak > budget ? "  (too large)"
                                         : "");
  }
  if (shown > kMostRows) out += fmt::format("{:>47}  and {} more\n", "", shown - kMostRows);
  return out;
}

}  // namespace

void FitFlags::add_to(CLI::App& command) {
  // An empty size is refused like any other that is none.
  command.add_option_function<std::string>(
      "--fit", [this](const std::string& size) { wish.budget = size.empty() ? " " : size; },
      "choose the fastest stack within this many bytes, such as 24GB or 512MiB");
  command.add_option("--fit-seconds", seconds, run_help("fit_seconds"))
      ->default_str(std::to_string(kFitSeconds));
  command.add_flag("--allow-approximating", wish.may_approximate, run_help("allow_approximating"));
  command.add_option("--profile", wish.profile,
                     "a folder of `adjoint profile` of this model: costs as they were measured");
}

void FitFlags::check(bool chooses) const {
  if (!chooses && wish.may_approximate) {
    fail("--allow-approximating goes with --fit or --pareto: nothing else is chosen");
  }
  if (!wanted() && !seconds.empty()) {
    fail("--fit-seconds goes with --fit: nothing else is searched for that long");
  }
  limited();
}

FitWish FitFlags::limited() const {
  FitWish limited = wish;
  if (seconds.empty()) return limited;
  const OptionSpec& option = option_named(train_options(), "fit_seconds");
  const nlohmann::json value = option.parse(seconds);
  option.check(value);
  limited.seconds = value;
  return limited;
}

Chosen FitFlags::choose(const BoundModel& model, const StepOptions& step) const {
  const FitWish wish = limited();
  const Bytes budget = budget_of(wish.budget);
  FitOptions options = fit_options(wish, model, step, num_threads());
  PlansMade plans(budget);
  options.say = plans.told();
  Fit fit(model.forward(), options);
  Chosen chosen{.point = fitted(fit, wish), .why = {}};
  chosen.plans = fit.considered().size();
  chosen.cut_off = fit.cut_off();
  const FitPoint &p = chosen.point, &plain = fit.plain();
  const std::string who = p.ranks > 1 ? fmt::format("each of {} ranks, ", p.ranks) : "";
  chosen.why = fmt::format("within {} on {}{}\n\n", human(budget), who, options.costs.sheet.name) +
               fit_table(fit, p, budget) + "\n";
  const auto line = [&](std::string_view what, const std::string& text) {
    chosen.why += fmt::format("{:<18} {}\n", what, text);
  };
  line("peak", fmt::format("{} of {} bytes", with_commas(p.peak.count), with_commas(budget.count)));
  line("everything kept", fmt::format("{} bytes, {:.2f} ms a step", with_commas(plain.peak.count),
                                      1e3 * plain.seconds));
  line("predicted", fmt::format("{:.2f} ms a step, {:+.1f}% of that", 1e3 * p.seconds,
                                100 * (p.seconds / plain.seconds - 1)));
  line("recomputed", fmt::format("{:.4g} FLOPs a step, {:.1f}% of all", p.recomputed_flops,
                                 p.flops > 0 ? 100 * p.recomputed_flops / p.flops : 0.0));
  if (chosen.cut_off) line("cut off", told_if_cut_off(fit, wish));
  chosen.why += "\nuse it with --stack '" + p.stack + "'\n";
  return chosen;
}

void ParetoFlags::add_to(CLI::App& command) {
  command.add_flag("--pareto", asked, "the curve of memory against time: what each budget costs");
  command.add_option("--pareto-chart", file, "draw that curve into this .svg file");
}

int run_pareto(const ParetoFlags& pareto, const FitFlags& flags, const StepFlags& step, bool json) {
  const std::string& file = pareto.file;
  const bool draws = !file.empty();
  if (draws && !file.ends_with(".svg")) {
    fail("--pareto-chart: wanted a file that ends in .svg, found '", file, "'");
  }
  if (draws) AtomicFile{file};  // refused before anything is computed
  const BoundModel model = step.bound();
  share_cores(step.threads, num_ranks(step.built(model).scheme.mesh));
  FitOptions options = fit_options(flags.wish, model, step.step, num_threads());
  std::vector<FitPoint> curve;
  Bytes everything_kept{0};
  {
    PlansMade plans;
    options.say = plans.told();
    options.enough = nullptr;
    Fit fit(model.forward(), options);
    curve = fit.pareto(static_cast<int>(pareto.points));
    everything_kept = fit.plain().peak;
  }
  ParetoChart chart{.title = step.describe(model),
                    .subtitle = "memory against time, predicted for " + options.costs.sheet.name,
                    .everything_kept = everything_kept};
  std::vector<std::string> stacks;
  for (const FitPoint& p : curve) stacks.push_back(p.stack);
  const std::vector<std::string> labels = choice_labels(stacks);
  nlohmann::json points = nlohmann::json::array();
  std::string table = header("stack");
  for (const FitPoint& p : curve) {
    chart.points.push_back({.bytes = p.peak,
                            .seconds = p.seconds,
                            .label = labels[chart.points.size()],
                            .recomputed = p.flops > 0 ? p.recomputed_flops / p.flops : 0});
    points.push_back(fit_json(p));
    table += fmt::format("{}  {}\n", point_line(p, curve.back().seconds),
                         shortened(kind_of(p.stack), 70));
  }
  if (draws) write_file_atomically(file, pareto_chart(chart));
  if (json) {
    nlohmann::json out = {{"model", model.name()},
                          {"batch", model.batch()},
                          {"seq", model.context()},
                          {"device", options.costs.sheet.name},
                          {"points", points}};
    if (draws) out["chart"] = file;
    return print_answer("plan", std::move(out));
  }
  std::cout << chart.title << ", " << chart.subtitle << "\n\n" << table;
  std::cout << "\n"
            << (draws ? "drawn in " + file : "--pareto-chart FILE.svg draws it")
            << "; --json has the stacks in full\n";
  return kDone;
}

}  // namespace adjoint

// adjoint plan: what a step of training would need, without running it.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/totals.h"
#include "base/activity.h"
#include "base/counts.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/fit_flags.h"
#include "cli/pictures.h"
#include "cli/step_flags.h"
#include "device/parallel.h"
#include "plan/timing.h"
#include "report/memory_table.h"
#include "report/model_states.h"
#include "report/rank_table.h"
#include "report/schedule_chart.h"
#include "report/schedule_search.h"
#include "report/scheme_json.h"
#include "report/stack_table.h"
#include "report/stage_table.h"
#include "report/timeline.h"
#include "report/timeline_json.h"

namespace adjoint {

namespace {

struct PlanFlags {
  StepFlags step;
  PictureFlags pictures;
  FitFlags fit;
  ParetoFlags pareto;
  bool json = false, measure = false, timeline = false;
  std::string write_schedule, schedule_memory;

  std::optional<Bytes> most_of_a_stage() const {
    if (schedule_memory.empty()) return std::nullopt;
    const auto bytes = parse_bytes(schedule_memory);
    if (!bytes || bytes->count < 1) {
      fail("--schedule-memory: wanted a number of bytes such as 8GB or 512MiB, found '",
           schedule_memory, "'");
    }
    return bytes;
  }
};

// One stack's step, planned and timed.
struct PlannedStep {
  std::string title;
  BuiltStep built;
  Plan plan = {};
  StepTime time = {};
  std::string clock = {};  // whose time it is
  Fabric fabric = {};      // between ranks
  Bytes memory = {0};      // of that device; 0: unknown
  // Of a pipeline: all its stages. The step, the plan and the time are then those of the largest
  // one.
  std::optional<PlannedStages> stages = {};
  Scheme whole = {};  // and the step of all of them
  Costs costs = {};

  // Of a pipeline, those of the stage that has most on the host.
  const Scheme& scheme_on_host() const {
    return stages ? stages->steps[stages->largest_on_host()] : built.scheme;
  }
  const Plan& plan_on_host() const {
    return stages ? stages->plans[stages->largest_on_host()] : plan;
  }
  // What all stages do together, in which time, and how much of it they do again.
  const Scheme& all() const { return stages ? whole : built.scheme; }
  double seconds() const { return stages ? stages->simulated.seconds : time.step; }
  double recomputed_flops() const {
    if (!stages) return time.recomputed_flops;
    double flops = 0;
    for (const StepTime& each : stages->times) flops += each.recomputed_flops;
    return flops;
  }
  bool fits() const { return memory.count == 0 || plan.footprint() <= memory; }
};

// How many of a step's products a table of this device knows; nothing where it knows none.
std::string timed_products(const Scheme& scheme, const Costs& costs) {
  int known = 0, all = 0;
  for (const Morphism& m : scheme.morphisms) {
    if (!is_product(m.op)) continue;
    known += costs.by_contest(scheme, m).has_value();
    ++all;
  }
  return known ? fmt::format(" ({} of {} products as they were timed)", known, all) : "";
}

// Ranks share the cores of a machine, as those of a run do; `cores` are all that there are. Leaves
// as many threads as one rank has.
PlannedStep planned_step(const PlanFlags& flags, const BoundModel& model, const std::string& stack,
                         int cores) {
  StepOptions options = flags.step.step;
  options.stack = stack;
  use_threads(cores);
  options.target = plan_options(costs_for(flags.fit.wish, model, cores)).target;
  const Activity activity("planning");
  PlannedStep step{.title = stack_title(stack),
                   .built = build_step(model.forward(), parse_stack(stack), options)};
  StepFlags::warn_of(step.built);
  share_cores(flags.step.threads, num_ranks(step.built.scheme.mesh));
  const Costs costs = costs_for(flags.fit.wish, model, num_threads());
  const PlanOptions planned = plan_options(costs);
  if (step.built.scheme.schedule.empty()) {
    step.plan = make_plan(step.built.scheme, planned);
    step.time = predict_time(step.built.scheme, step.plan, costs);
  } else {
    step.stages = plan_stages(step.built.scheme, planned, costs);
    step.whole = std::move(step.built.scheme);
    const size_t largest = step.stages->largest();
    step.built.scheme = step.stages->steps[largest];
    step.plan = step.stages->plans[largest];
    step.time = step.stages->times[largest];
  }
  step.costs = costs;
  step.memory = costs.sheet.memory;
  step.fabric = costs.sheet.fabric;
  step.clock = costs.sheet.name;
  step.clock += timed_products(step.built.scheme, costs);
  if (costs.sheet.per_core) step.clock += ", " + counted(costs.threads, "thread");
  return step;
}

ChartedStep charted(const PlannedStep& step) {
  return {.title = step.title,
          .scheme = step.built.scheme,
          .plan = step.plan,
          .seconds = step.time.seconds,
          .clock = "predicted for " + step.clock};
}

void draw(const PlanFlags& flags, const std::string& title, const PlannedStep& first,
          const std::optional<PlannedStep>& second, const StagesAtWork* at_work) {
  if (flags.pictures.chart.empty() && flags.pictures.trace.empty()) return;
  if (first.stages) {
    if (!flags.pictures.trace.empty()) fail("--trace: a pipeline is drawn with --chart alone yet");
    const std::string picture =
        at_work ? schedule_chart(*at_work, title,
                                 counted(num_threads(), "thread") + " a rank, one process")
                : schedule_chart(first.stages->schedule, first.stages->simulated, title,
                                 "ranks over one step, predicted for " + first.clock);
    write_file_atomically(flags.pictures.chart, picture);
    return;
  }
  std::vector<ChartedStep> steps = {charted(first)};
  if (second) steps.push_back(charted(*second));
  std::string what = "live memory of the device over one step of training, as planned";
  if (!second && !first.built.scheme.mesh.empty()) {
    what += fmt::format(" for each of {} ranks", num_ranks(first.built.scheme.mesh));
  }
  write_pictures(flags.pictures, title, what, steps);
}

std::string tables(const PlanFlags& flags, const PlannedStep& first,
                   const std::optional<PlannedStep>& second,
                   const std::optional<Measured>& measured) {
  const By by = by_named(flags.pictures.by);
  const auto owned = [&](const PlannedStep& s) {
    return owner_table(s.built.scheme, s.plan, by, flags.pictures.rows());
  };
  const auto moment = [](const PlannedStep& s) {
    return moment_in_words(s.built.scheme, s.plan, s.plan.peak_at) + "\n";
  };
  if (second && by == By::kCategory) {
    return comparison_table({first.title, first.plan}, {second->title, second->plan}) +
           "\nA's peak is " + moment(first) + "B's peak is " + moment(*second);
  }
  if (second) {
    return fmt::format("{}\n\n{}\n{}\n\n{}", first.title, owned(first), second->title,
                       owned(*second));
  }
  if (by == By::kCategory) {
    return memory_table(first.plan, measured) + "the peak is " + moment(first);
  }
  return owned(first);
}

std::string told_of_ranks(const PlannedStep& step, std::string_view whose) {
  const std::vector<MeshAxis>& mesh = step.built.scheme.mesh;
  if (mesh.empty()) return "";
  if (step.stages) {
    return fmt::format(
        "{}{}, by {}\n{}\nBytes below are those of stage {}, the largest; FLOPs and the step's "
        "time "
        "are of all stages\n\n",
        whose, mesh_in_words(mesh), step.stages->schedule.name, stage_table(*step.stages),
        step.stages->largest());
  }
  return fmt::format("{}{} have one plan: its bytes, FLOPs and times are those of each rank\n\n",
                     whose, mesh_in_words(mesh));
}

std::string told_of_messages(const PlannedStep& step, const std::string& title) {
  if (step.built.scheme.mesh.empty()) return "";
  // What stages send is in their own table.
  if (step.stages && step.built.scheme.mesh.size() == 1) return "";
  return "\n" + (title.empty() ? "" : title + "\n") + rank_table(step.built.scheme, step.fabric) +
         fmt::format("{:<18} {:.2f} ms behind other calls, {:.2f} ms are waited for\n", "hidden",
                     1e3 * (step.time.ranks - step.time.ranks_waited),
                     1e3 * step.time.ranks_waited);
}

nlohmann::json memory_of(const PlannedStep& step, const PictureFlags& pictures) {
  nlohmann::json out = memory_json(step.plan, step.plan_on_host());
  const By by = by_named(pictures.by);
  add_owners(out, step.built.scheme, step.plan, Tier::kDevice, by, pictures.rows());
  add_owners(out, step.scheme_on_host(), step.plan_on_host(), Tier::kHost, by, pictures.rows());
  return out;
}

std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Searches for a schedule with the times at hand, and writes it as the text that `schedule=` reads.
FoundSchedule write_found_schedule(const PlanFlags& flags, const PlannedStep& step,
                                   const StagesAtWork* at_work) {
  const PlannedStages& stages = *step.stages;
  const bool once = step.whole.schedule == "zb_1p";
  const Activity activity("searching for a schedule");
  const FoundSchedule found =
      search_schedule(step.whole, stages, at_work ? at_work->slots : stages.slots,
                      plan_options(step.costs), step.costs,
                      {.most_parts = static_cast<double>((once ? 1 : 2) * stages.schedule.ranks),
                       .most = flags.most_of_a_stage()});
  write_file_atomically(
      flags.write_schedule,
      fmt::format(
          "# Zero bubble, searched for with the times of {}, batch {}, stack {},\n# {}.\n{}",
          flags.step.model.model, flags.step.model.batch, in_one_line(flags.step.step.stack),
          at_work ? "measured with " + counted(num_threads(), "thread") + " a rank"
                  : "predicted for " + step.clock,
          print(found.schedule)));
  return found;
}

std::string told_of_schedule(const std::string& file, const std::string& asked,
                             const FoundSchedule& found) {
  return fmt::format(
      "\n{}: a schedule for a step of {:.2f} ms, {:.1f}% of it bubbles ({} by the same times: "
      "{:.2f} "
      "ms, {:.1f}%), with at most {} parts in flight and {} bytes planned for a rank\n",
      file, 1e3 * found.simulated.seconds, 100 * found.simulated.bubble, asked,
      1e3 * found.asked.seconds, 100 * found.asked.bubble, found.parts,
      with_commas(found.most.count));
}

int run(const PlanFlags& flags) {
  if (flags.timeline && !flags.json) {
    fail("--timeline is for machines: say --json too, or --chart FILE for a picture");
  }
  if (flags.write_schedule.empty() && !flags.schedule_memory.empty()) {
    fail("--schedule-memory goes with --write-schedule");
  }
  if (!flags.write_schedule.empty()) {
    flags.most_of_a_stage();
    if (!flags.write_schedule.ends_with(kScheduleFile)) {
      fail("--write-schedule: wanted a file that ends in ", kScheduleFile, ", found '",
           flags.write_schedule, "'");
    }
    AtomicFile probe(flags.write_schedule);  // refused now, not after the search
  }
  if (flags.pareto.wanted() && flags.fit.wanted()) {
    fail("--fit and --pareto contradict each other: the curve is all budgets");
  }
  flags.fit.check(flags.fit.wanted() || flags.pareto.wanted());
  flags.pictures.check();
  if (flags.pareto.wanted()) {
    const PictureFlags& p = flags.pictures;
    if (flags.measure || p.compare || !p.chart.empty() || !p.trace.empty() || p.by != "category") {
      fail(
          "--pareto is a curve of many steps: --by, --chart, --compare, --trace and --measure are "
          "of one");
    }
    return run_pareto(flags.pareto, flags.fit, flags.step, flags.json);
  }
  const BoundModel model = flags.step.bound();
  const int cores = num_threads();
  std::optional<Chosen> chosen;
  if (flags.fit.wanted()) {
    share_cores(flags.step.threads, num_ranks(flags.step.built(model).scheme.mesh));
    chosen = flags.fit.choose(model, flags.step.step);
  }
  const std::string stack = chosen ? chosen->point.stack : flags.step.step.stack;
  const PlannedStep first = planned_step(flags, model, stack, cores);
  if (!first.stages && !flags.write_schedule.empty()) {
    fail("--write-schedule: '", stack, "' has no pipeline");
  }
  CHECK(!chosen || first.plan.footprint() == chosen->point.peak,
        "the plan that is shown is the one that was chosen");
  std::optional<PlannedStep> second;
  if (flags.pictures.compare) {
    second = planned_step(flags, model, *flags.pictures.compare, cores);
    use_threads(first.costs.threads);
  }
  const Scheme& step = first.built.scheme;
  const Plan& plan = first.plan;
  std::vector<Measured> ranks;  // each of them
  std::optional<StagesAtWork> at_work;
  std::optional<Activity> measuring;
  if (flags.measure) measuring.emplace("measuring");
  if (flags.measure && first.stages) {
    const PlannedStages& stages = *first.stages;
    MeasuredPipeline found = measure_pipeline(stages.schedule, stages.steps, stages.plans);
    ranks = std::move(found.ranks);
    at_work.emplace(stages, std::move(found.stages));
  } else if (flags.measure) {
    ranks = measure_ranks(step, plan);
  }
  measuring.reset();
  std::optional<Measured> measured;
  if (at_work) {
    measured = ranks[rank_of_stage(step.mesh, first.stages->largest())];
    measured->step_seconds = at_work->measured.step_seconds();
  } else if (!ranks.empty()) {
    measured = most_touched(ranks);
  }
  std::optional<FoundSchedule> found;
  if (!flags.write_schedule.empty()) {
    found = write_found_schedule(flags, first, at_work ? &*at_work : nullptr);
  }
  const int64_t tokens = model.batch() * model.context();
  const auto flops = flops_by_phase(first.all());
  draw(flags, flags.step.describe(model), first, second, at_work ? &*at_work : nullptr);
  if (flags.json) {
    nlohmann::json out = memory_of(first, flags.pictures);
    if (second) {
      nlohmann::json& other = out["compare"] = memory_of(*second, flags.pictures);
      other["stack"] = *flags.pictures.compare;
      other["step_s"] = second->seconds();
      other["recomputed_flops"] = second->recomputed_flops();
      if (!second->built.scheme.mesh.empty()) {
        other["mesh"] = ranks_json(second->built.scheme, second->fabric);
      }
    }
    out["model"] = model.name();
    out["batch"] = model.batch();
    out["seq"] = model.context();
    out["params"] = num_parameters(first.all());
    out["trained_params"] = num_trained(first.all());
    const double total = flops[0] + flops[1] + flops[2];
    if (total < 9e15) {
      out["flops_per_step"] = static_cast<int64_t>(total);
    } else {
      out["flops_per_step"] = total;
    }
    out["tokens_per_step"] = tokens;
    out["model_states"] = model_states_json(model_states(step, plan));
    if (!step.mesh.empty()) {
      out["mesh"] = ranks_json(step, first.fabric);
      out["mesh"]["collectives_s"] = first.time.ranks;
      out["mesh"]["waited_s"] = first.time.ranks_waited;
    }
    if (first.stages) out["pipeline"] = stages_json(*first.stages, flags.timeline);
    if (at_work) out["pipeline"]["measured"] = measured_stages_json(*at_work);
    if (found) {
      out["pipeline"]["written"] = {
          {"file", flags.write_schedule},      {"step_s", found->simulated.seconds},
          {"bubble", found->simulated.bubble}, {"asked_step_s", found->asked.seconds},
          {"parts_in_flight", found->parts},   {"bytes", found->most.count}};
    }
    const Stack applied = parse_stack(stack);
    out["stack"] = stack;
    out["law"] = name(law_of(applied));
    out["against"] = against(applied);
    out["applied"] = applied_json(first.built.applied, applied);
    if (flags.timeline) {
      const StepClock clock =
          first.stages ? clock_of_stage(*first.stages, first.stages->largest()) : StepClock{};
      out["timeline"] =
          timeline_json(step, plan, first.time.seconds, first.costs.sheet.overlaps, clock);
    }
    out["device"] = first.clock;
    out["step_s"] = first.seconds();
    out["recomputed_flops"] = first.recomputed_flops();
    if (chosen) {
      out["fit"] = {{"budget_bytes", budget_of(flags.fit.wish.budget).count},
                    {"plans", chosen->plans},
                    {"cut_off", chosen->cut_off}};
    }
    if (first.memory.count > 0) out["fits"] = first.fits();
    if (measured) {
      out["measured_peak_bytes"] = measured->touched.count;
      out["measured_step_s"] = measured->step_seconds;
      if (at_work) {
        out["measured_ranks"] = ranks_of_stages_json(*at_work, ranks);
      } else if (ranks.size() > 1) {
        out["measured_ranks"] = measured_ranks_json(step, plan, ranks);
      }
    }
    return print_answer("plan", std::move(out), flags.timeline ? -1 : 2);
  }
  std::cout << flags.step.describe(model) << "\n";
  if (chosen) std::cout << chosen->why;
  std::cout << "\n" << stack_table(first.built.applied) << "\n";
  std::cout << fmt::format("{:<18} {:>20}\n", "parameters",
                           with_commas(num_parameters(first.all())));
  std::cout << fmt::format("{:<18} {:>20}\n\n", "of them trained",
                           with_commas(num_trained(first.all())));
  std::cout << told_of_ranks(first, second ? "A's " : "");
  if (second) std::cout << told_of_ranks(*second, "B's ");
  std::cout << tables(flags, first, second, measured);
  std::cout << told_of_messages(first, second ? first.title : "");
  if (second) std::cout << told_of_messages(*second, second->title);
  std::cout << fmt::format("\n{:<18} {:>12.4g} forward, {:.4g} backward, {:.4g} update\n",
                           "FLOPs per step", double(flops[0]), double(flops[1]), double(flops[2]));
  std::cout << fmt::format("{:<18} {:>12}\n", "tokens per step", with_commas(tokens));
  std::cout << fmt::format("{:<18} {:>9.1f} ms on {}, {:.4g} FLOPs of it recomputed\n",
                           "predicted step", 1e3 * first.seconds(), first.clock,
                           first.recomputed_flops());
  if (!first.fits()) {
    std::cout << fmt::format(
        "{:<18} the device has {} ({} bytes): --fit looks for a stack that does\n", "does not fit",
        human(first.memory), with_commas(first.memory.count));
  }
  if (second) {
    std::cout << fmt::format("{:<18} {:>9.1f} ms on {}, {:.4g} FLOPs of it recomputed\n",
                             "B's step", 1e3 * second->seconds(), second->clock,
                             second->recomputed_flops());
  }
  if (at_work) std::cout << "\n" << measured_stage_table(*at_work, ranks);
  if (found)
    std::cout << told_of_schedule(flags.write_schedule, first.stages->schedule.name, *found);
  if (at_work) return kDone;
  if (ranks.size() > 1) {
    std::cout << "\n" << measured_ranks_table(step, plan, ranks);
    return kDone;
  }
  if (measured) {
    std::cout << fmt::format("{:<18} {:>9.1f} ms, {:.1f} GFLOP/s\n", "measured step",
                             1e3 * measured->step_seconds,
                             double(flops[0] + flops[1] + flops[2]) / measured->step_seconds / 1e9);
  }
  return kDone;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("plan", "memory and time of a training step, without running it");
  auto flags = std::make_shared<PlanFlags>();
  flags->step.add_to(*command);
  flags->step.step.on_mesh = true;  // what one rank of the mesh does
  command->add_flag("--measure", flags->measure,
                    "run a few steps on random tokens, on all ranks of a mesh as threads, and say "
                    "what they really touched");
  command->add_option("--write-schedule", flags->write_schedule,
                      "search a zero-bubble schedule for a pipeline with these times (with "
                      "--measure: this machine's), and write it into this file");
  command->add_option("--schedule-memory", flags->schedule_memory,
                      "what the plan of any stage may have under that schedule, such as 8GB");
  flags->pictures.add_to(*command);
  flags->fit.add_to(*command);
  command
      ->add_option("--device", flags->fit.wish.device,
                   "times are predicted for this: a name, or a .device file")
      ->capture_default_str();
  flags->pareto.add_to(*command);
  command->add_flag("--timeline", flags->timeline,
                    "with --json: every call with its time, and whose bytes are alive when");
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Examples:\n"
      "  adjoint plan --model gpt2 --batch 32 --context 1024\n"
      "  adjoint plan --model gpt2 --batch 32 --stack 'bf16 | checkpoint(block)'\n"
      "  adjoint plan --model gpt2 --batch 8 --by tensor --top 10\n"
      "  adjoint plan --model gpt2 --batch 32 --compare 'checkpoint(block)' --chart memory.svg\n"
      "  adjoint plan --model gpt2 --batch 32 --fit 8GB --device rtx4090\n"
      "  adjoint plan --model gpt2 --batch 8 --pareto\n"
      "  adjoint plan --model ref --batch 16 --stack 'pipeline(2, schedule=zb_2p, parts=8)' \\\n"
      "    --measure --write-schedule my.schedule");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint

#include "report/profile_report.h"

#include <fmt/format.h>

#include "base/counts.h"
#include "report/memory_table.h"
#include "report/profile_folder.h"
#include "report/rank_table.h"
#include "report/step_times.h"
#include "run/stage_profile.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr size_t kMostOps = 16;    // rows of the table for a terminal; the page has all
constexpr size_t kNameWidth = 34;  // the page has whole names

TimeRow step_row(const Profile& p) {
  return time_of_step(p.scheme, p.plan, p.measured.call_seconds);
}

json rows_json(const std::vector<TimeRow>& rows) {
  json all = json::array();
  for (const TimeRow& row : rows) {
    json each = {{"name", row.name}, {"calls", row.calls}, {"flops", row.total_flops()}};
    for (int i = 0; i < kNumKinds; ++i) {
      each[std::string(name(static_cast<Kind>(i))) + "_s"] = row.seconds[i];
    }
    all.push_back(each);
  }
  return all;
}

std::string shortened(const std::string& text) {
  return text.size() <= kNameWidth ? text : text.substr(0, kNameWidth - 3) + "...";
}

std::string time_table(const std::vector<TimeRow>& rows, const std::string& title, double step,
                       size_t most) {
  std::string out =
      fmt::format("{:<{}} {:>6} {:>9} {:>9} {:>10} {:>9} {:>9} {:>6} {:>8}\n", title, kNameWidth,
                  "calls", "forward", "backward", "recomputed", "update", "ms", "%", "GFLOP/s");
  const auto line = [&](const TimeRow& row) {
    const double total = row.total_seconds();
    out += fmt::format(
        "{:<{}} {:>6} {:>9.2f} {:>9.2f} {:>10.2f} {:>9.2f} {:>9.2f} {:>6.1f} {:>8.1f}\n",
        shortened(row.name), kNameWidth, row.calls, 1e3 * row.seconds[0], 1e3 * row.seconds[1],
        1e3 * row.seconds[2], 1e3 * row.seconds[3], 1e3 * total, 100 * total / step,
        total > 0 ? row.total_flops() / total / 1e9 : 0);
  };
  TimeRow rest{.name = "others"};
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i < most || rows.size() == most + 1) {
      line(rows[i]);
      continue;
    }
    rest.calls += rows[i].calls;
    for (int k = 0; k < kNumKinds; ++k) {
      rest.seconds[k] += rows[i].seconds[k], rest.flops[k] += rows[i].flops[k];
    }
  }
  if (rest.calls > 0) line(rest);
  return out;
}

std::string difference(double measured, double predicted) {
  if (predicted <= 0) return "";
  return fmt::format("{:+.1f}%", 100 * (measured - predicted) / predicted);
}

}  // namespace

Bytes Profile::planned_of_process() const {
  return of_process.count > 0 ? of_process : plan.footprint();
}

Utilization utilization_of(const Profile& p) {
  const StepFlops flops = flops_of(step_row(p));
  const double possible = p.peak.flops * p.measured.step_seconds;
  if (possible <= 0) return {};
  return {.model = flops.model / possible, .hardware = flops.hardware / possible};
}

json profile_json(const Profile& p) {
  const Plan* on_host = &p.plan;
  Bytes host_touched = p.measured.host_touched;
  if (p.stages) {
    const size_t stage = p.stages->planned.largest_on_host();
    on_host = &p.stages->planned.plans[stage];
    host_touched = p.ranks[rank_of_stage(p.scheme.mesh, stage)].host_touched;
  }
  const json memory = memory_json(p.plan, *on_host);
  const StepFlops flops = flops_of(step_row(p));
  const Utilization used = utilization_of(p);
  json out = {{"peak_bytes", p.plan.arena.count},
              {"measured_peak_bytes", p.measured.touched.count},
              {"witness_bytes", p.measured.witness.count},
              {"step_s", p.predicted_seconds},
              {"measured_step_s", p.measured.step_seconds},
              {"categories", memory["categories"]},
              {"host_peak_bytes", on_host->host.size.count},
              {"measured_host_peak_bytes", host_touched.count},
              {"library_bytes", p.measured.library.count},
              {"model_flops", flops.model},
              {"hardware_flops", flops.hardware},
              {"model_utilization", used.model},
              {"hardware_utilization", used.hardware},
              {"peak_flops_per_s", p.peak.flops},
              {"peak_bytes_per_s", p.peak.bytes_per_second}};
  if (memory.contains("host_categories")) out["host_categories"] = memory["host_categories"];
  if (!p.scheme.mesh.empty()) {
    out["mesh"] = ranks_json(p.scheme, p.fabric);
    if (p.stages) {
      out["pipeline"] = stages_json(p.stages->planned);
      out["pipeline"]["measured"] = measured_stages_json(*p.stages);
      out["measured_ranks"] = ranks_of_stages_json(*p.stages, p.ranks);
    } else {
      out["measured_ranks"] = measured_ranks_json(p.scheme, p.plan, p.ranks);
    }
  }
  return out;
}

json full_profile_json(const Profile& p) {
  json out = profile_json(p);
  out["format"] = kProfileFormat;
  out["model"] = p.step.model;
  out["fingerprint"] = p.step.fingerprint;
  out["batch"] = p.step.batch;
  out["seq"] = p.step.context;
  out["stack"] = p.step.stack;
  out["optimizer"] = p.step.optimizer;
  out["clip"] = p.step.clip;
  out["threads"] = p.peak.threads;
  out["device"] = name(p.peak.target);
  out["losses"] = p.measured.losses;
  out["steps_s"] = p.measured.seconds;
  out["by_op"] = rows_json(time_by_op(p.scheme, p.plan, p.measured.call_seconds));
  out["by_block"] = rows_json(time_by_block(p.scheme, p.plan, p.measured.call_seconds));
  Costs costs{.sheet = measured_sheet(p.peak), .threads = p.peak.threads};
  const Timings timings = timings_of(p.scheme, p.plan, p.measured.call_seconds);
  costs.learn(p.scheme, timings);
  out["calls_s"] = timings;
  out["slower"] = costs.ratio;  // per op: measured time over the time by the machine's peak
  out["about"] = p.step.title;
  return out;
}

std::string profile_table(const Profile& p) {
  const Measured& m = p.measured;
  std::string out =
      fmt::format("{:<20} {:>16} {:>16} {:>9}\n", "", "predicted", "measured", "differs");
  const auto bytes = [&](const char* what, Bytes predicted, Bytes measured) {
    out += fmt::format("{:<20} {:>16} {:>16} {:>9}\n", what, with_commas(predicted.count),
                       with_commas(measured.count),
                       measured == predicted ? "0"
                                             : difference(static_cast<double>(measured.count),
                                                          static_cast<double>(predicted.count)));
  };
  bytes("peak bytes", p.plan.arena, m.touched);
  if (p.plan.host.size.count > 0) bytes("host peak bytes", p.plan.host.size, m.host_touched);
  bytes("witness bytes", p.planned_of_process(), m.witness);
  out += fmt::format("{:<20} {:>16} {:>16}\n", "library bytes", "", with_commas(m.library.count));
  out += fmt::format("{:<20} {:>13.2f} ms {:>13.2f} ms {:>9}\n", "step", 1e3 * p.predicted_seconds,
                     1e3 * m.step_seconds, difference(m.step_seconds, p.predicted_seconds));
  const TimeRow step = step_row(p);
  const StepFlops flops = flops_of(step);
  const Utilization used = utilization_of(p);
  const double tokens = static_cast<double>(p.step.batch * p.step.context);
  out += fmt::format("{:<20} {:>33.0f}\n\n", "tokens per second", tokens / m.step_seconds);
  out += fmt::format("{:<20} {:>16} {:>16} {:>9}\n", "", "FLOPs", "GFLOP/s", "of peak");
  const auto work = [&](const char* what, double count, double share) {
    out += fmt::format("{:<20} {:>16.4g} {:>16.1f} {:>8.1f}%\n", what, count,
                       count / m.step_seconds / 1e9, 100 * share);
  };
  work("model", flops.model, used.model);
  work("hardware", flops.hardware, used.hardware);
  const std::string how =
      p.peak.target == Target::kCuda ? "bf16" : counted(p.peak.threads, "thread");
  out += fmt::format("{:<20} {:>16} {:>16.1f}  {}, {:.1f} GB/s\n\n", "measured peak", "",
                     p.peak.flops / 1e9, how, p.peak.bytes_per_second / 1e9);
  if (!p.scheme.mesh.empty()) {
    out += fmt::format(
        "{} ran as {}; other figures here are {}\n\n", mesh_in_words(p.scheme.mesh),
        p.processes ? "processes" : "threads of this process",
        p.stages ? fmt::format("those of stage {}, the largest", p.stages->planned.largest())
                 : "the first rank's");
    out += (p.stages ? measured_stage_table(*p.stages, p.ranks)
                     : measured_ranks_table(p.scheme, p.plan, p.ranks)) +
           "\n";
    // What stages send is in their own table.
    if (!p.stages || p.scheme.mesh.size() > 1) out += rank_table(p.scheme, p.fabric) + "\n";
  }
  const double total = step.total_seconds();
  out += time_table(time_by_op(p.scheme, p.plan, m.call_seconds), "ms by op", total, kMostOps);
  out += "\n" + time_table(time_by_block(p.scheme, p.plan, m.call_seconds), "ms by block", total,
                           SIZE_MAX - 1);
  return out;
}

}  // namespace adjoint

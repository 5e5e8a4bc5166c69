#include "report/step_times.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "analysis/totals.h"
#include "base/text.h"
#include "ops/gang.h"
#include "run/profile.h"

namespace adjoint {

double TimeRow::total_seconds() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}
double TimeRow::total_flops() const { return std::accumulate(flops.begin(), flops.end(), 0.0); }

namespace {

// block[3].layer_norm#2:grad.out -> layer_norm:grad; the epoch of a recomputed call does not
// matter.
std::string short_name(const std::string& source) {
  const size_t colon = source.find(':');
  std::string path = source.substr(0, colon);
  path = path.substr(path.rfind('.') + 1);
  path = path.substr(0, path.find('#'));
  if (colon == std::string::npos) return path;
  const std::string facet = source.substr(colon);
  if (facet.starts_with(":epoch")) return path;
  return path + facet.substr(0, facet.find('.'));
}

std::string block_label(const Morphism& m) {
  const std::string block = block_of(m.source);
  return block.empty() ? m.source.path.substr(0, m.source.path.find('.')) : block;
}

template <class Label>
std::vector<TimeRow> rows_by(const Scheme& scheme, const Plan& plan,
                             const std::vector<double>& seconds, const Label& label) {
  std::vector<TimeRow> rows;
  std::map<std::string, size_t> row_of;
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    if (plan.calls[at].is_view) continue;
    const Morphism& m = scheme.morphisms[plan.calls[at].morphism];
    const auto [found, is_new] = row_of.emplace(label(m), rows.size());
    if (is_new) rows.push_back({.name = found->first});
    TimeRow& row = rows[found->second];
    const int times = times_in_step(scheme, plan, static_cast<int>(at));
    const auto kind = static_cast<size_t>(kind_of(m));
    row.calls += times;
    row.seconds[kind] += times * seconds[at];
    const int64_t again = repeated_flops(scheme, m);
    row.flops[kind] += times * static_cast<double>(count_flops(call_of(scheme, m)) - again);
    row.flops[static_cast<size_t>(Kind::kRecomputation)] += times * static_cast<double>(again);
  }
  return rows;
}

}  // namespace

std::string op_label(const Morphism& m) {
  const auto from = m.attrs.find("from");
  // A gang is called after its calls, a map after what it was made from.
  if (const auto op = op_of_gang(m)) return m.op + " (" + *op + ")";
  if (!says_body(m)) return m.op;
  if (from == m.attrs.end()) return m.op + " (" + short_name(to_string(m.source)) + ")";
  std::istringstream sources(std::get<std::string>(from->second));
  std::vector<std::string> names;
  for (std::string source; sources >> source;) {
    const std::string name = short_name(source);
    if (!std::count(names.begin(), names.end(), name)) names.push_back(name);
  }
  return m.op + " (" + join(names, ", ") + ")";
}

TimeRow time_of_step(const Scheme& scheme, const Plan& plan, const std::vector<double>& seconds) {
  const auto rows = rows_by(scheme, plan, seconds, [](const Morphism&) { return "step"; });
  return rows.empty() ? TimeRow{.name = "step"} : rows[0];
}

std::vector<TimeRow> time_by_op(const Scheme& scheme, const Plan& plan,
                                const std::vector<double>& seconds) {
  auto rows = rows_by(scheme, plan, seconds, op_label);
  std::stable_sort(rows.begin(), rows.end(), [](const TimeRow& a, const TimeRow& b) {
    return a.total_seconds() > b.total_seconds();
  });
  return rows;
}

std::vector<TimeRow> time_by_block(const Scheme& scheme, const Plan& plan,
                                   const std::vector<double>& seconds) {
  return rows_by(scheme, plan, seconds, block_label);
}

StepFlops flops_of(const TimeRow& step) {
  const double all = step.total_flops();
  return {.model = all - step.flops[static_cast<size_t>(Kind::kRecomputation)], .hardware = all};
}

}  // namespace adjoint

#include "bench/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>

#include "base/error.h"
#include "base/text.h"
#include "bench/hot_call.h"
#include "cost/cost.h"
#include "report/step_times.h"
#include "run/profile.h"

namespace adjoint {

namespace {

constexpr size_t kShownOperands = 4;  // of an optimizer's many

std::string shape_text(const Type& type) {
  std::vector<std::string> sizes;
  for (const Axis& axis : type.axes) sizes.push_back(std::to_string(axis.size));
  return sizes.empty() ? "1" : join(sizes, "x");
}

std::string call_text(const Scheme& scheme, const Morphism& m) {
  std::vector<std::string> in, out;
  for (const Value v : m.inputs) {
    if (in.size() == kShownOperands) {
      in.push_back(fmt::format("{} more", m.inputs.size() - kShownOperands));
      break;
    }
    in.push_back(shape_text(scheme[v].type));
  }
  for (const Value v : m.outputs) out.push_back(shape_text(scheme[v].type));
  const Value typed = m.inputs.empty() ? m.outputs[0] : m.inputs[0];
  std::string text = op_label(m) + " " + std::string(name(scheme[typed].type.dtype)) +
                     (in.empty() ? "" : " " + join(in, ", ")) + " -> " + join(out, ", ");
  if (const auto map = m.attrs.find("map"); map != m.attrs.end()) {
    text += " (" + std::get<std::string>(map->second) + ")";
  }
  return text;
}

// Calls with the same key take the same time if their operands also have the same strides.
std::string row_key(const Scheme& scheme, const Plan& plan, const Morphism& m) {
  std::string key = call_key(scheme, m);
  const auto add = [&](Value v) {
    for (const int64_t stride : plan.places[v].strides) key += " " + std::to_string(stride);
    key += ";";
  };
  for (const Value v : m.inputs) add(v);
  for (const Value v : m.outputs) add(v);
  return key;
}

// The peak rate that a call's floor is computed from: FLOP/s of a large product in its dtype; for
// other ops, in float32.
class Peaks {
 public:
  explicit Peaks(const MachinePeak& peak) : target_(peak.target) {
    rates_[target_ == Target::kCpu ? Dtype::kF32 : Dtype::kBF16] = peak.flops;
  }
  double rate(const Scheme& scheme, const Morphism& m) {
    const bool multiplies = op_named(m.op).cost != CostClass::kRows;
    const Dtype own = multiplies ? scheme[m.inputs[0]].type.dtype : Dtype::kF32;
    const Dtype dtype = is_float(own) ? own : Dtype::kF32;
    const auto [found, is_new] = rates_.emplace(dtype, 0);
    if (is_new) found->second = product_rate(dtype, target_);
    return found->second;
  }

 private:
  Target target_;
  std::map<Dtype, double> rates_;
};

// The calls of a step, with one row for all equal calls.
struct Gathered {
  OpRow row;
  int morphism = 0;  // one of them
  int planned = 0;   // how many the plan has
};

std::vector<Gathered> gather(const Scheme& step, const Plan& plan, const Measured& measured) {
  std::vector<Gathered> all;
  std::map<std::string, size_t> index;
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    const PlannedCall& planned = plan.calls[at];
    if (planned.is_view) continue;
    const Morphism& m = step.morphisms[planned.morphism];
    const auto [found, is_new] = index.emplace(row_key(step, plan, m), all.size());
    if (is_new) {
      all.push_back({.row = {.call = call_text(step, m),
                             .op = m.op,
                             .flops = static_cast<double>(count_flops(call_of(step, m))),
                             .bytes = bytes_moved(step, m),
                             .more = is_product(m.op) && m.attrs.count("body") > 0},
                     .morphism = planned.morphism});
    }
    Gathered& g = all[found->second];
    g.row.times += times_in_step(step, plan, static_cast<int>(at));
    g.row.in_step += measured.call_seconds[at];
    ++g.planned;
  }
  for (Gathered& g : all) g.row.in_step /= g.planned;
  std::stable_sort(all.begin(), all.end(), [](const Gathered& a, const Gathered& b) {
    return a.row.step_seconds() > b.row.step_seconds();
  });
  return all;
}

std::regex compiled(const std::string& filter) {
  try {
    return std::regex(filter);
  } catch (const std::regex_error&) {
    fail("--filter: '", filter, "' is no regular expression");
  }
}

}  // namespace

OpBench bench_ops(const BenchedStep& which, const Scheme& step, const Plan& plan,
                  const OpBenchOptions& options) {
  const std::regex filter = compiled(options.filter);
  const auto wanted = [&](const Morphism& m) {
    return std::regex_search(call_text(step, m), filter);
  };
  if (std::none_of(step.morphisms.begin(), step.morphisms.end(), wanted)) {
    fail("--filter: no call of this step is like '", options.filter, "'; one is '",
         call_text(step, step.morphisms.front()), "'");
  }
  OpBench bench{.step = which};
  const Measured measured =
      measure_step(step, plan, {.steps = options.steps, .poison = false, .told = options.told});
  bench.step_seconds = measured.step_seconds;
  bench.peak = measure_machine(plan.target);
  Peaks peaks(bench.peak);
  std::vector<Gathered> all = gather(step, plan, measured);
  std::erase_if(all, [&](const Gathered& g) { return !wanted(step.morphisms[g.morphism]); });
  std::optional<GpuStream> stream;
  if (plan.target == Target::kCuda) stream.emplace();
  int64_t done = 0;
  for (Gathered& g : all) {
    const Morphism& m = step.morphisms[g.morphism];
    OpRow& row = g.row;
    row.floor = std::max(row.flops / peaks.rate(step, m), row.bytes / bench.peak.bytes_per_second);
    const HotCall hot(step, plan, m, stream ? &*stream : nullptr);
    row.alone = hot.seconds(row.call);
    row.bare = hot.bare_seconds(row.call);
    bench.rows.push_back(row);
    if (options.told) options.told(++done, static_cast<int64_t>(all.size()), "calls alone");
  }
  return bench;
}

}  // namespace adjoint

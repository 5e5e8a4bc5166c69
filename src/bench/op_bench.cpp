#include "bench/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>

#include "base/error.h"
#include "base/philox.h"
#include "base/text.h"
#include "bench/bare_product.h"
#include "bench/repeat.h"
#include "cost/cost.h"
#include "device/parallel.h"
#include "ops/elements.h"
#include "report/step_times.h"
#include "run/profile.h"
#include "run/random_steps.h"

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

// Calls with the same key take the same time where their operands also lie alike.
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

// The bytes from an object's first element to its last, with these strides.
Bytes extent(const Type& type, const Strides& strides) {
  int64_t last = 0;
  for (int a = 0; a < type.rank(); ++a) last += (type.axes[a].physical() - 1) * strides[a];
  return (last + 1) * size_of(type.dtype);
}

// One call of the step with buffers of its own, laid out as the plan lays out the step's.
class HotCall {
 public:
  HotCall(const Scheme& scheme, const Plan& plan, const Morphism& m)
      : call_(call_of(scheme, m)),
        kernel_{.call = call_,
                .outputs = {},
                .in_strides = {},
                .out_strides = {},
                .threads = plan.threads,
                .workspace_cap = plan.workspace_cap,
                .target = plan.target,
                .deterministic = plan.deterministic} {
    const uint32_t below = ids_below(scheme);
    for (const Value v : m.inputs) {
      kernel_.in_strides.push_back(plan.places[v].strides);
      at_.in.push_back(fill(make(scheme[v].type, plan.places[v].strides), scheme[v].type, below));
    }
    for (const Value v : m.outputs) {
      kernel_.outputs.push_back(scheme[v].type);
      kernel_.out_strides.push_back(plan.places[v].strides);
      at_.out.push_back(make(scheme[v].type, plan.places[v].strides).data());
    }
    // A sum goes on in place. Nothing else does here: what is applied to its own result again and
    // again ends in numbers that no step sees.
    if (m.op == "contract" && m.inputs.size() > 2) at_.in[2] = at_.out[0];
    buffers_.emplace_back(workspace_bytes(kernel_));
    at_.workspace = buffers_.back().data();
  }
  HotCall(const HotCall&) = delete;
  HotCall& operator=(const HotCall&) = delete;

  Launch launch() const { return prepare_cpu(kernel_, at_); }
  std::optional<Launch> bare(BareLayout layout) const { return bare_product(kernel_, at_, layout); }

 private:
  const Buffer& make(const Type& type, const Strides& strides) {
    const Bytes size = extent(type, strides);
    buffers_.emplace_back(size);
    std::byte* data = buffers_.back().data();
    parallel_for(size.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
      std::fill(data + begin, data + end, std::byte{0});
    });
    return buffers_.back();
  }

  // Positive numbers, ids of the vocabulary, or a counter; a few thousand of them over and over.
  const std::byte* fill(const Buffer& buffer, const Type& type, uint32_t below) {
    constexpr int64_t kPattern = 4096;
    const Dtype dtype = type.dtype;
    const int64_t size = size_of(dtype).count, n = buffer.size().count / size;
    const RandomStream stream{random_key(1, "bench"), 0};
    std::vector<std::byte> pattern(kPattern * size);
    for (int64_t i = 0; i < kPattern; ++i) {
      const double number = is_float(dtype)        ? std::abs(stream.normal(i))
                            : dtype == Dtype::kI32 ? stream.bits(i) % below
                                                   : static_cast<double>(stream.bits(i) % 16);
      store_element(pattern.data(), dtype, i, number);
    }
    for (int64_t i = 0; i < n; i += kPattern) {
      const int64_t count = std::min(kPattern, n - i) * size;
      std::copy_n(pattern.data(), count, buffer.data() + i * size);
    }
    return buffer.data();
  }

  OpCall call_;
  KernelCall kernel_;
  std::vector<Buffer> buffers_;
  Pointers at_;
};

// FLOPs per second of the peak that a call is held to.
class Peaks {
 public:
  explicit Peaks(const MachinePeak& peak) : peak_(peak) {}
  double rate(const Scheme& scheme, const Morphism& m) {
    const bool multiplies = is_product(m.op) || m.op.starts_with("attention");
    const Dtype dtype = multiplies ? scheme[m.inputs[0]].type.dtype : Dtype::kF32;
    if (dtype == Dtype::kF32 || !is_float(dtype)) return peak_.flops;
    const auto [found, is_new] = rates_.emplace(dtype, 0);
    if (is_new) found->second = product_rate(dtype);
    return found->second;
  }

 private:
  const MachinePeak& peak_;
  std::map<Dtype, double> rates_;
};

// The calls of a step, one row for those that are alike.
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
                             .more = is_product(m.op) && m.op != "linear" && m.op != "contract"},
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
  bench.peak = measure_machine();
  Peaks peaks(bench.peak);
  std::vector<Gathered> all = gather(step, plan, measured);
  std::erase_if(all, [&](const Gathered& g) { return !wanted(step.morphisms[g.morphism]); });
  int64_t done = 0;
  for (Gathered& g : all) {
    const Morphism& m = step.morphisms[g.morphism];
    OpRow& row = g.row;
    row.floor = std::max(row.flops / peaks.rate(step, m), row.bytes / bench.peak.bytes_per_second);
    const HotCall hot(step, plan, m);
    row.alone = median(time_work(row.call, hot.launch(), {}));
    for (const BareLayout layout : {BareLayout::kPlain, BareLayout::kPacked}) {
      const auto bare = hot.bare(layout);
      if (!bare) continue;
      const double seconds = median(time_work(row.call + ", bare", *bare, {}));
      row.bare = row.bare ? std::min(*row.bare, seconds) : seconds;
    }
    bench.rows.push_back(row);
    if (options.told) options.told(++done, static_cast<int64_t>(all.size()), "calls alone");
  }
  return bench;
}

}  // namespace adjoint

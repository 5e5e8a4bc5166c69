#include "bench/token_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "ops/op_def.h"
#include "train/cached_model.h"

namespace adjoint {

namespace {

// The share of an operand that a call reads: none to speak of where it is a table whose rows are
// chosen by ids, and of a weight with a matrix for each expert at most as many as there are
// choices.
double share_read(const Scheme& scheme, const Morphism& m, size_t k) {
  const OpDef& def = op_named(m.op);
  if (static_cast<int>(k) == def.table) return 0;
  const Type& type = scheme[m.inputs[k]].type;
  if (static_cast<int>(k) != def.weight || type.rank() == 0) return 1;
  if (index_map_of(call_of(scheme, m)).inputs[k][0] != '.') return 1;
  int64_t choices = 0;
  for (const Value in : m.inputs) {
    if (scheme[in].type.dtype == Dtype::kI32) choices = scheme[in].type.num_elements();
  }
  return std::min(1.0, static_cast<double>(choices) / static_cast<double>(type.dim(0)));
}

// The bytes of parameters that a step reads, at most.
Bytes weights_read(const Scheme& scheme) {
  std::vector<double> share(scheme.objects.size(), 0);
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    const OpDef& def = op_named(m.op);
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const bool joins = def.view || def.lies == LiesWithin::kJoins;
      const double read = joins ? share[m.outputs[0]] : share_read(scheme, m, k);
      share[m.inputs[k]] = std::max(share[m.inputs[k]], read);
    }
  }
  double sum = 0;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role != Role::kParameter) continue;
    sum += share[in] * static_cast<double>(scheme[in].type.bytes().count);
  }
  return {static_cast<int64_t>(sum)};
}

Bytes bytes_of(const Scheme& scheme, Role role) {
  Bytes sum{0};
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == role) sum += scheme[in].type.bytes();
  }
  return sum;
}

double median_of(std::vector<double> numbers) {
  CHECK(!numbers.empty(), "something was timed");
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace

double TokenBench::median_seconds() const { return median_of(seconds); }
double TokenBench::tokens_per_second() const {
  return static_cast<double>(batch) / median_seconds();
}
double TokenBench::of_bandwidth() const {
  return static_cast<double>(weights.count) / median_seconds() / peak.bytes_per_second;
}

TokenBench bench_tokens(const std::string& title, const Scheme& logits, const StepOptions& step,
                        const PlanOptions& plan, const TokenBenchOptions& options) {
  TokenBench bench{.title = title, .peak = measure_machine(plan.target)};
  CachedModel model(logits, step, plan, {}, /*all_frozen=*/true);
  if (!model.draws()) fail(title, ": wanted a row of logits for each position");
  bench.batch = model.batch();
  bench.context = model.context();
  if (options.prompt + options.warmup + options.tokens > model.context()) {
    fail("--context: wanted room for ", options.prompt + options.warmup + options.tokens,
         " positions, found ", model.context());
  }
  bench.weights = weights_read(model.one().scheme());
  bench.kept = bytes_of(model.one().scheme(), Role::kState);
  bench.arena = model.one().plan().arena;
  // As text is generated: each token is drawn where the model is and goes into the next step, and
  // on a GPU the host learns of it while that step runs. The time of a token is that between two of
  // them.
  const int all = options.warmup + options.tokens;
  const auto begin_step = [&](int i) {
    const std::vector<int32_t> origins(model.batch(), static_cast<int32_t>(options.prompt + i));
    if (i > 0) {
      model.step_on(origins);
    } else {
      const std::vector<int32_t> zeros(model.batch(), 0);
      model.step(zeros, origins, zeros);
    }
    model.ask_drawn();
  };
  auto before = std::chrono::steady_clock::now();
  for (int i = 0, begun = 0; i < all; ++i) {
    while (begun < all && begun <= i + static_cast<int>(model.ahead())) begin_step(begun++);
    model.take_drawn();
    const auto now = std::chrono::steady_clock::now();
    if (i >= options.warmup) {
      bench.seconds.push_back(std::chrono::duration<double>(now - before).count());
    }
    before = now;
  }
  return bench;
}

nlohmann::json token_bench_json(const TokenBench& b) {
  return {{"model", b.title},
          {"batch", b.batch},
          {"seq", b.context},
          {"measured_steps_s", b.seconds},
          {"measured_step_s", b.median_seconds()},
          {"tokens_per_s", b.tokens_per_second()},
          {"weight_bytes", b.weights.count},
          {"kept_bytes", b.kept.count},
          {"peak_bytes", b.arena.count},
          {"peak_bytes_per_s", b.peak.bytes_per_second},
          {"of_bandwidth", b.of_bandwidth()}};
}

std::string token_bench_table(const TokenBench& b) {
  const double gb = 1e-9;
  return fmt::format(
      "a token            {:.3f} ms (median of {}), {:.1f} tokens/s\n"
      "weights read       {:.3f} GB at {:.2f} GB/s\n"
      "memory bandwidth   {:.2f} GB/s measured, {:.0f}% of it\n"
      "keys and values    {:.3f} GB for {} positions\n",
      b.median_seconds() * 1e3, b.seconds.size(), b.tokens_per_second(),
      static_cast<double>(b.weights.count) * gb,
      static_cast<double>(b.weights.count) * gb / b.median_seconds(), b.peak.bytes_per_second * gb,
      b.of_bandwidth() * 100, static_cast<double>(b.kept.count) * gb, b.context);
}

}  // namespace adjoint

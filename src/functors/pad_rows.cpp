// An object inside the step with an odd size, such as logits of 50257 tokens  ->  the same with
// room for a multiple of 128. Padding is absent from counts, saves and random indices. A GPU moves
// 16 bytes at a time, and its products need sizes that are multiples of that: with odd sizes they
// run at a sixth of the rate. On a CPU it makes no difference, and steps are not changed.
#include <algorithm>

#include "analysis/accumulators.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr int64_t kMultiple = 128;
constexpr int64_t kMoved = 16;  // bytes

bool is_odd(const Axis& axis, Dtype dtype, int64_t least) {
  return axis.size >= least && axis.padded == 0 &&
         axis.size * std::min<int64_t>(2, size_of(dtype).count) % kMoved != 0;
}

// Per accumulator: its value before and after an iteration, and the partial sums in between.
std::vector<std::vector<Value>> sums_of_parts(const Scheme& scheme) {
  const std::vector<Value> from = grown_from(scheme);
  std::vector<std::vector<Value>> sums;
  for (const Carry& c : scheme.loop) {
    sums.push_back({c.in, c.out});
    for (Value v = from[c.out]; v >= 0 && v != c.in; v = from[v]) sums.back().push_back(v);
  }
  return sums;
}

Scheme run(Scheme scheme, Application& application) {
  const int64_t least = application.args.whole("least");
  std::vector<bool> fixed(scheme.objects.size(), false);
  for (const auto* values : {&scheme.inputs, &scheme.outputs}) {
    for (const Value v : *values) fixed[v] = true;
  }
  for (const Carry& c : scheme.carries) fixed[c.in] = fixed[c.out] = true;
  // Only objects that a product reads or makes, and only if all other readers support padding.
  std::vector<bool> multiplied(scheme.objects.size(), false);
  for (const Morphism& m : scheme.morphisms) {
    const OpDef& def = op_named(m.op);
    for (const auto* values : {&m.inputs, &m.outputs}) {
      for (const Value v : *values) {
        if (def.multiplies) multiplied[v] = true;
        if (!def.body && !def.multiplies && !def.takes_padding) fixed[v] = true;
      }
    }
    if (!def.takes_padding) continue;
    // A result that may overwrite a padded operand is padded, too.
    for (const auto& [out, operand] : overwrites(call_of(scheme, m))) {
      if (multiplied[m.inputs[operand]]) multiplied[m.outputs[out]] = true;
    }
  }
  // An accumulator shares its bytes with its partial sums: all of them are padded, or none.
  for (const std::vector<Value>& sum : sums_of_parts(scheme)) {
    const auto any = [&](const std::vector<bool>& flags) {
      return std::any_of(sum.begin(), sum.end(), [&](Value v) { return flags[v]; });
    };
    const bool is_fixed = any(fixed), is_multiplied = any(multiplied);
    for (const Value v : sum) fixed[v] = is_fixed, multiplied[v] = is_multiplied;
  }
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    Type& type = scheme[static_cast<Value>(v)].type;
    if (fixed[v] || !multiplied[v] || type.rank() < 2 || !is_float(type.dtype)) continue;
    // The row length and, for a matrix, the number of rows, which is the row length of its
    // transpose.
    bool padded = false;
    for (Axis* axis : {&type.axes.back(), type.rank() == 2 ? &type.axes.front() : nullptr}) {
      if (!axis || !is_odd(*axis, type.dtype, least)) continue;
      axis->padded = (axis->size + kMultiple - 1) / kMultiple * kMultiple;
      padded = true;
    }
    application.matches += padded;
  }
  return scheme;
}

}  // namespace

extern const Functor functor_pad_rows = {
    .name = "pad_rows",
    .summary = "odd sizes get room for a multiple of 128",
    .law = Law::kReassociating,
    .params = {{.name = "least",
                .otherwise = "256",
                .summary = "the smallest size that gets room",
                .on_small = "16"}},
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact, run}},
};

}  // namespace adjoint

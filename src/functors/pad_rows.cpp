// An object inside the step with an odd size, such as logits of 50257 tokens  ->  the same with
// room for a multiple of 128. What is there beyond is nobody's: absent from counts, saves and
// random indices. A GPU moves 16 bytes at a time, and its products want sizes that are multiples of
// them: odd ones run at a sixth of the rate. A CPU does not care, and its steps are left alone.
#include <algorithm>

#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr int64_t kMultiple = 128, kLeastSize = 256;
constexpr int64_t kMoved = 16;  // bytes

bool is_odd(const Axis& axis, Dtype dtype) {
  return axis.size >= kLeastSize && axis.padded == 0 &&
         axis.size * std::min<int64_t>(2, size_of(dtype).count) % kMoved != 0;
}

Scheme run(const Scheme& scheme, Application& application) {
  Scheme result = scheme;
  std::vector<bool> fixed(scheme.objects.size(), false);
  for (const auto* values : {&scheme.inputs, &scheme.outputs}) {
    for (const Value v : *values) fixed[v] = true;
  }
  for (const auto* carries : {&scheme.carries, &scheme.loop}) {
    for (const Carry& c : *carries) fixed[c.in] = fixed[c.out] = true;
  }
  // Only what a product reads or makes, and where everybody else can do with it.
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
    // What may take a padded operand's place is as large as that.
    for (const auto& [out, operand] : overwrites(call_of(scheme, m))) {
      if (multiplied[m.inputs[operand]]) multiplied[m.outputs[out]] = true;
    }
  }
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    Type& type = result[static_cast<Value>(v)].type;
    if (fixed[v] || !multiplied[v] || type.rank() < 2 || !is_float(type.dtype)) continue;
    // The row, and of a matrix the number of rows: that is a row's length in its transpose.
    bool padded = false;
    for (Axis* axis : {&type.axes.back(), type.rank() == 2 ? &type.axes.front() : nullptr}) {
      if (!axis || !is_odd(*axis, type.dtype)) continue;
      axis->padded = (axis->size + kMultiple - 1) / kMultiple * kMultiple;
      padded = true;
    }
    application.matches += padded;
  }
  return result;
}

}  // namespace

extern const Functor functor_pad_rows = {
    .name = "pad_rows",
    .summary = "odd sizes get room for a multiple of 128",
    .law = Law::kReassociating,
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact, run}},
};

}  // namespace adjoint

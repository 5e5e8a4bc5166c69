// An object inside the step with an odd size, such as logits of 50257 tokens  ->  the same with
// room for a multiple of 128. Padding is absent from counts, saves and random indices. A GPU moves
// 16 bytes at a time, and its products need sizes that are multiples of that: with odd sizes they
// run at a sixth of the rate. On a CPU it makes no difference, and steps are not changed.
#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/accumulators.h"
#include "functors/functor.h"
#include "functors/phases.h"
#include "ops/padded.h"

namespace adjoint {

namespace {

constexpr int64_t kMultiple = 128;
constexpr int64_t kMoved = 16;  // bytes

bool is_odd(const Axis& axis, Dtype dtype, int64_t least) {
  return axis.size >= least && axis.padded == 0 &&
         axis.size * std::min<int64_t>(2, size_of(dtype).count) % kMoved != 0;
}

// Objects that are one or another's in what is asked of them.
class Groups {
 public:
  explicit Groups(size_t n) : of_(n) { std::iota(of_.begin(), of_.end(), 0); }
  void join(Value a, Value b) { of_[root(a)] = root(b); }
  // What holds of any object holds of its whole group.
  void spread(std::vector<bool>& flags) {
    std::vector<bool> any(flags.size(), false);
    for (size_t v = 0; v < flags.size(); ++v) {
      if (flags[v]) any[root(static_cast<Value>(v))] = true;
    }
    for (size_t v = 0; v < flags.size(); ++v) flags[v] = any[root(static_cast<Value>(v))];
  }

 private:
  Value root(Value v) {
    while (of_[v] != v) v = of_[v] = of_[of_[v]];
    return v;
  }
  std::vector<Value> of_;
};

// All of a group are padded, or none. An accumulator shares its bytes with its partial sums. What
// moves to another tier and back is one stretch of bytes; and a product of it, as of what is
// recomputed, has the bits that it has where nobody says so.
Groups padded_together(const Scheme& scheme) {
  Groups groups(scheme.objects.size());
  std::map<std::pair<std::string, Dtype>, Value> first;  // by the source of what is recomputed
  for (size_t i = 0; i < scheme.objects.size(); ++i) {
    const auto v = static_cast<Value>(i);
    const auto [known, fresh] =
        first.try_emplace({to_string(without_epochs(scheme[v].source)), scheme[v].type.dtype}, v);
    if (!fresh && same_shape(scheme[known->second].type, scheme[v].type)) {
      groups.join(known->second, v);
    }
  }
  const std::vector<Value> from = grown_from(scheme);
  for (const Carry& c : scheme.loop) {
    groups.join(c.in, c.out);
    for (Value v = from[c.out]; v >= 0 && v != c.in; v = from[v]) groups.join(c.in, v);
  }
  for (const Morphism& m : scheme.morphisms) {
    if (op_named(m.op).moves) groups.join(m.inputs[0], m.outputs[0]);
  }
  return groups;
}

Scheme run(Scheme scheme, Application& application) {
  const int64_t least = application.args.whole("least");
  std::vector<bool> fixed = may_be_padded(scheme);
  fixed.flip();
  for (const auto* values : {&scheme.inputs, &scheme.outputs}) {
    for (const Value v : *values) fixed[v] = true;
  }
  for (const Carry& c : scheme.carries) fixed[c.in] = fixed[c.out] = true;
  // Only objects that a product reads or makes gain by it. A result overwrites an operand only
  // where both have the same room.
  std::vector<bool> multiplied(scheme.objects.size(), false);
  Groups together = padded_together(scheme), alike = together;
  for (const Morphism& m : scheme.morphisms) {
    const OpDef& def = op_named(m.op);
    if (def.multiplies) {
      for (const auto* values : {&m.inputs, &m.outputs}) {
        for (const Value v : *values) multiplied[v] = true;
      }
    }
    if (!def.takes_padding) continue;
    for (const auto& [out, operand] : overwrites(call_of(scheme, m))) {
      alike.join(m.inputs[operand], m.outputs[out]);
    }
  }
  together.spread(fixed);
  alike.spread(multiplied);
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    Type& type = scheme[static_cast<Value>(v)].type;
    if (fixed[v] || !multiplied[v]) continue;
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

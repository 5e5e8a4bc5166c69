#include "plan/adjacent.h"

#include <algorithm>

#include "device/buffer.h"
#include "kernels/backend.h"
#include "ops/layout.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

int axis_of(const Scheme& scheme, const Morphism& m) {
  const int last = scheme[m.inputs[0]].type.rank() - 1;
  return static_cast<int>(
      call_of(scheme, m).integer("axis", op_named(m.op).lies == LiesWithin::kJoins ? 0 : last));
}

std::vector<bool> find_used_outside(const Scheme& scheme) {
  std::vector<bool> used = returned_or_carried(scheme);
  for (const Value v : scheme.inputs) used[v] = true;
  return used;
}

class AdjacentFinder {
 public:
  AdjacentFinder(const Scheme& scheme, const PlanOptions& options)
      : scheme_(scheme), options_(options), made_by_(producers(scheme)), read_by_(readers(scheme)) {
    found_.used_outside = find_used_outside(scheme);
  }

  Adjacent run() {
    found_.within.assign(scheme_.objects.size(), -1);
    found_.start.assign(scheme_.objects.size(), 0);
    found_.is_whole.assign(scheme_.morphisms.size(), false);
    for (const Object& object : scheme_.objects) {
      found_.strides.push_back(dense_strides(object.type));
    }
    std::vector<bool> joined(scheme_.objects.size(), false);
    // Backwards, so that a concat that is an operand of another one has its place before its
    // operands.
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      if (op_named(m.op).lies != LiesWithin::kJoins) continue;
      const auto again = std::find(found_.joined.begin(), found_.joined.end(), m.inputs);
      if (again != found_.joined.end() && axis_of(scheme_, m) == 0) {
        found_.joined_by.emplace_back(static_cast<int>(i), again - found_.joined.begin());
      } else if (can_join(m, joined)) {
        found_.joined_by.emplace_back(static_cast<int>(i), found_.joined.size());
        found_.joined.push_back(m.inputs);
        for (const Value v : m.inputs) joined[v] = true;
      } else {
        lay_operands(i);
      }
    }
    return std::move(found_);
  }

 private:
  // Parameters can be adjacent if all but the last end on the alignment, and if another plan that
  // has placed them already placed them adjacently.
  bool can_join(const Morphism& m, const std::vector<bool>& joined) const {
    if (axis_of(scheme_, m) != 0) return false;
    Bytes next{0};
    const auto place = [&](Value v) {
      const auto found = options_.fixed.find(to_string(scheme_[v].source));
      return found == options_.fixed.end() ? Bytes{-1} : found->second.offset;
    };
    const Bytes begin = place(m.inputs[0]);
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Value v = m.inputs[k];
      const bool again = std::count(m.inputs.begin(), m.inputs.end(), v) > 1;
      if (made_by_[v] >= 0 || scheme_[v].role != Role::kParameter || joined[v] || again) {
        return false;
      }
      if (scheme_[v].attributes.tier != scheme_[m.outputs[0]].attributes.tier) return false;
      if (next.count % kAlignment.count) return false;
      const Bytes at = place(v);
      if (begin.count < 0 ? at.count >= 0 : at != begin + next) return false;
      next += scheme_[v].type.bytes();
    }
    return true;
  }

  void lay_operands(size_t i) {
    const Morphism& m = scheme_.morphisms[i];
    const Value whole = m.outputs[0];
    const int axis = axis_of(scheme_, m);
    bool all = true;
    int64_t start = 0;
    for (const Value v : m.inputs) {
      Value made = v;
      Strides strides = found_.strides[whole];
      see_through_merges(made, strides);
      if (std::count(m.inputs.begin(), m.inputs.end(), v) == 1 && can_lie(m, made, strides)) {
        found_.within[made] = whole;
        found_.start[made] = start;
        if (!lies_densely(scheme_[made].type, strides)) found_.strides[made] = strides;
      } else {
        all = false;
      }
      start += scheme_[v].type.dim(axis) * found_.strides[whole][axis];
    }
    found_.is_whole[i] = all;
  }

  // A merge of two axes moves no element, so its operand can be made in the same place.
  void see_through_merges(Value& v, Strides& strides) const {
    while (made_by_[v] >= 0 &&
           op_named(scheme_.morphisms[made_by_[v]].op).lies == LiesWithin::kMerges) {
      if (read_by_[v].size() != 1 || found_.used_outside[v]) return;
      v = scheme_.morphisms[made_by_[v]].inputs[0];
      strides.insert(strides.end() - 1, strides.back() * scheme_[v].type.dim(-1));
    }
  }

  bool can_lie(const Morphism& concat, Value v, const Strides& strides) const {
    if (made_by_[v] < 0 || found_.used_outside[v] || found_.within[v] >= 0) return false;
    const Morphism& maker = scheme_.morphisms[made_by_[v]];
    if (op_named(maker.op).view || maker.section != concat.section) return false;
    if (scheme_[v].attributes.tier != scheme_[concat.outputs[0]].attributes.tier) return false;
    if (lies_densely(scheme_[v].type, strides)) return true;
    // An object with holes between its rows may have no other reader, and must not be a sum,
    // because kernels write sums in one piece.
    if (read_by_[v].size() != 1 || backend_of(options_.target).wants_dense(op_named(maker.op)))
      return false;
    if (!op_named(maker.op).body) return true;
    const Body body = body_of(call_of(scheme_, maker));
    return std::all_of(body.outputs.begin(), body.outputs.end(), [](const BodyOutput& out) {
      return out.summed_axes == 0 && out.row == BodyOutput::Row::kWhole;
    });
  }

  const Scheme& scheme_;
  const PlanOptions& options_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  Adjacent found_;
};

}  // namespace

Adjacent find_adjacent(const Scheme& scheme, const PlanOptions& options) {
  return AdjacentFinder(scheme, options).run();
}

std::optional<Value> slice_under_result(const Scheme& scheme, const std::vector<int>& made_by,
                                        const std::vector<std::vector<int>>& read_by,
                                        const std::vector<bool>& used_outside, int m, Value in) {
  const Section section = scheme.morphisms[m].section;
  std::vector<Value> passed = {in};
  if (read_by[in] != std::vector<int>{m}) return std::nullopt;
  while (made_by[passed.back()] >= 0) {
    const Morphism& maker = scheme.morphisms[made_by[passed.back()]];
    if (op_named(maker.op).lies != LiesWithin::kSplits || maker.section != section) break;
    passed.push_back(maker.inputs[0]);
    if (read_by[passed.back()].size() != 1) return std::nullopt;
  }
  const int slicer = made_by[passed.back()];
  if (slicer < 0 || op_named(scheme.morphisms[slicer].op).lies != LiesWithin::kSlice)
    return std::nullopt;
  const Value sliced = scheme.morphisms[slicer].inputs[0];
  passed.push_back(sliced);
  // The sliced object must be made whenever m runs, and must not be a view itself.
  const int maker = made_by[sliced];
  if (maker < 0 || scheme.morphisms[maker].section != section) return std::nullopt;
  if (op_named(scheme.morphisms[maker].op).view) return std::nullopt;
  // Operands that were made inside a concat share its bytes, and may be read after m has run.
  const std::vector<Value>& parts = scheme.morphisms[maker].inputs;
  if (op_named(scheme.morphisms[maker].op).lies == LiesWithin::kJoins &&
      std::any_of(parts.begin(), parts.end(), [&](Value v) { return read_by[v].size() > 1; })) {
    return std::nullopt;
  }
  if (std::any_of(passed.begin(), passed.end(), [&](Value v) { return used_outside[v]; }))
    return std::nullopt;

  const auto range = [&](int slice) {
    const OpCall call = call_of(scheme, scheme.morphisms[slice]);
    return std::pair{call.integer("start"), call.integer("start") + call.integer("size")};
  };
  // A single slice would only keep the rest of the object alive.
  if (read_by[sliced].size() < 2) return std::nullopt;
  const auto [begin, end] = range(slicer);
  for (const int reader : read_by[sliced]) {
    const Morphism& other = scheme.morphisms[reader];
    if (reader == slicer) continue;
    if (op_named(other.op).lies != LiesWithin::kSlice) return std::nullopt;
    if (axis_of(scheme, other) != axis_of(scheme, scheme.morphisms[slicer])) return std::nullopt;
    const auto [from, to] = range(reader);
    if (from < end && begin < to) return std::nullopt;
  }
  return scheme.morphisms[slicer].outputs[0];
}

}  // namespace adjoint

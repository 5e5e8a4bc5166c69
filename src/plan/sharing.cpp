#include "plan/sharing.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "analysis/accumulators.h"
#include "base/error.h"
#include "cost/cost.h"
#include "kernels/backend.h"
#include "ops/layout.h"

namespace adjoint {

namespace {

// A morphism whose result overwrites a slice that it reads, directly or through splits.
struct Over {
  int morphism;
  Value slice;
};

class SharingFinder {
 public:
  SharingFinder(const Scheme& scheme, const PlanOptions& options)
      : scheme_(scheme), options_(options) {}

  Sharing run() {
    const size_t n = scheme_.objects.size();
    found_.places.resize(n);
    found_.is_input.assign(n, false);
    for (const Value in : scheme_.inputs) found_.is_input[in] = true;
    find_carries();
    found_.view_of.assign(n, -1);
    found_.adjacent = find_adjacent(scheme_, options_);
    for (size_t v = 0; v < n; ++v) found_.places[v].strides = found_.adjacent.strides[v];
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {  // a holder before the objects in it
      for (const Value v : scheme_.morphisms[i].outputs) {
        if (within(v) >= 0) lie_within(v, within(v), found_.adjacent.start[v]);
      }
    }
    join_parameters();
    find_views();
    find_facts();
    return std::move(found_);
  }

 private:
  Value within(Value v) const { return found_.adjacent.within[v]; }
  Tier tier_of(Value v) const { return scheme_[v].attributes.tier; }

  void find_carries() {
    found_.carried_to.assign(scheme_.objects.size(), -1);
    found_.is_carried.assign(scheme_.objects.size(), false);
    for (const std::vector<Carry>* carries : {&scheme_.carries, &scheme_.loop}) {
      for (const Carry& c : *carries) {
        Value& to = found_.carried_to[c.out];
        CHECK(to < 0 || to == c.in,
              "a result is carried to one place: " + to_string(scheme_[c.out].source));
        to = c.in;
        found_.is_carried[c.in] = found_.is_carried[c.out] = true;
      }
    }
    begins_.assign(scheme_.objects.size(), false);
    for (const Carry& c : scheme_.loop) begins_[c.in] = true;
    found_.grown_from = grown_from(scheme_);
    for (size_t v = 0; v < scheme_.objects.size(); ++v) {
      if (found_.grown_from[v] >= 0) found_.is_carried[v] = true;
    }
  }

  void lie_within(Value v, Value holder, int64_t start) {
    found_.places[v].offset = found_.places[holder].offset + start * size_of(scheme_[v].type.dtype);
  }

  // A concat of adjacent parameters is a view that begins at the first of them.
  void join_parameters() {
    found_.joined.assign(scheme_.objects.size(), -1);
    for (size_t g = 0; g < found_.adjacent.joined.size(); ++g) {
      Bytes next{0};
      for (const Value v : found_.adjacent.joined[g]) {
        found_.joined[v] = static_cast<int>(g);
        found_.places[v].offset = next;
        next += scheme_[v].type.bytes();
      }
    }
    for (const auto& [concat, group] : found_.adjacent.joined_by) {
      found_.view_of[scheme_.morphisms[concat].outputs[0]] = found_.adjacent.joined[group][0];
    }
  }

  // A view shares its operand's storage, so the operand lives as long as its views are read. A view
  // that strides cannot express is a copy with bytes of its own.
  void find_views() {
    const std::vector<int> made_by = producers(scheme_);
    const std::vector<std::vector<int>> read_by = readers(scheme_);
    std::vector<bool> read_densely(scheme_.objects.size(), false);
    for (const Morphism& m : scheme_.morphisms) {
      if (!backend_of(options_.target).wants_dense(op_named(m.op))) continue;
      for (const Value in : m.inputs) read_densely[in] = true;
    }
    const Sharing start = found_;
    // Repeated without the overwrites that would cost memory, because each one changes what later
    // ones find.
    for (std::set<int> banned;;) {
      over_.clear();
      for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
        const Morphism& m = scheme_.morphisms[i];
        if (op_named(m.op).view) {
          see(m, read_densely);
        } else if (!banned.count(static_cast<int>(i))) {
          write_over_slice(static_cast<int>(i), made_by, read_by, read_densely);
        }
      }
      const size_t before = banned.size();
      for (const Over& over : over_) {
        if (keeps_the_rest(over, made_by, read_by)) banned.insert(over.morphism);
      }
      if (banned.size() == before) return;
      found_ = start;
    }
  }

  // A result that overwrites its slice keeps the whole object alive. If the backward reads it, it
  // must also read all other slices, or the results that overwrite them; else their bytes would be
  // kept for nothing.
  bool keeps_the_rest(const Over& over, const std::vector<int>& made_by,
                      const std::vector<std::vector<int>>& read_by) const {
    const Morphism& m = scheme_.morphisms[over.morphism];
    if (m.phase != Phase::kForward || !is_read_late(m.outputs[0], read_by)) return false;
    const Value whole = scheme_.morphisms[made_by[over.slice]].inputs[0];
    return std::any_of(read_by[whole].begin(), read_by[whole].end(), [&](int reader) {
      const Value slice = scheme_.morphisms[reader].outputs[0];
      if (is_read_late(slice, read_by)) return false;
      return std::none_of(over_.begin(), over_.end(), [&](const Over& other) {
        return other.slice == slice &&
               is_read_late(scheme_.morphisms[other.morphism].outputs[0], read_by);
      });
    });
  }

  // Whether v, or a view of it, is read after the forward.
  bool is_read_late(Value v, const std::vector<std::vector<int>>& read_by) const {
    return std::any_of(read_by[v].begin(), read_by[v].end(), [&](int reader) {
      const Morphism& m = scheme_.morphisms[reader];
      return m.phase != Phase::kForward ||
             (op_named(m.op).view && is_read_late(m.outputs[0], read_by));
    });
  }

  void see(const Morphism& m, const std::vector<bool>& read_densely) {
    const Value out = m.outputs[0], in = m.inputs[0];
    // A carried object has bytes of its own, a view cannot be in another tier, and a view of an
    // accumulator's initial value must not change as it grows.
    if (found_.is_carried[out] || tier_of(out) != tier_of(in)) return;
    if (m.section == Section::kPrologue && begins_[found_.root(in)]) return;
    int64_t offset = 0;
    auto strides = op_named(m.op).view(call_of(scheme_, m), found_.places[in].strides, offset);
    if (!strides) return;
    const Type& type = scheme_[out].type;
    if (lies_densely(type, *strides)) strides = dense_strides(type);
    if (read_densely[out] && *strides != dense_strides(type)) return;
    found_.view_of[out] = in;
    found_.places[out].strides = *strides;
    found_.places[out].offset = found_.places[in].offset + offset * size_of(type.dtype);
  }

  // An op's result may overwrite the slice that it reads while other slices of the object live on.
  void write_over_slice(int i, const std::vector<int>& made_by,
                        const std::vector<std::vector<int>>& read_by,
                        const std::vector<bool>& read_densely) {
    const Morphism& m = scheme_.morphisms[i];
    const Value out = m.outputs[0];
    if (within(out) >= 0 || read_densely[out] || found_.is_carried[out]) return;
    if (backend_of(options_.target).wants_dense(op_named(m.op))) return;
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Value in = m.inputs[k];
      if (found_.view_of[in] < 0 || scheme_[in].type != scheme_[out].type) continue;
      if (tier_of(in) != tier_of(out)) continue;
      const auto slice =
          slice_under_result(scheme_, made_by, read_by, found_.adjacent.used_outside, i, in);
      if (!slice) continue;
      const auto may = overwrites(call_of(scheme_, m));
      if (!std::count(may.begin(), may.end(), std::pair{0, static_cast<int>(k)})) continue;
      found_.adjacent.within[out] = in;
      found_.places[out].strides = found_.places[in].strides;
      lie_within(out, in, 0);
      over_.push_back({i, *slice});
      return;
    }
  }

  void find_facts() {
    std::unordered_map<std::string, CallFacts> known;
    const auto strides = [&](Value v) { return found_.places[v].strides; };
    found_.facts.resize(scheme_.morphisms.size());
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const Morphism& m = scheme_.morphisms[i];
      if (found_.view_of[m.outputs[0]] >= 0) continue;
      const auto [place, fresh] = known.try_emplace(key_of(m));
      if (fresh) {
        const OpCall call = call_of(scheme_, m);
        place->second = {overwrites(call),
                         workspace_bytes(kernel_call(call, scheme_, m, options_.terms(), strides))};
      }
      found_.facts[i] = place->second;
    }
  }

  std::string key_of(const Morphism& m) const {
    std::string key = call_key(scheme_, m);
    for (const std::vector<Value>* values : {&m.inputs, &m.outputs}) {
      for (const Value v : *values) {
        key += "|";
        for (const int64_t stride : found_.places[v].strides) key += "," + std::to_string(stride);
      }
    }
    return key;
  }

  const Scheme& scheme_;
  const PlanOptions& options_;
  std::vector<bool> begins_;  // per object: the initial value of an accumulator
  std::vector<Over> over_;
  Sharing found_;
};

}  // namespace

Sharing find_sharing(const Scheme& scheme, const PlanOptions& options) {
  return SharingFinder(scheme, options).run();
}

}  // namespace adjoint

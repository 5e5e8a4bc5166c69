#include "plan/order.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>

#include "analysis/accumulators.h"
#include "base/error.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// Results up to this size count as nothing, because what waits for them is far larger: all updates
// wait for one clipping factor.
constexpr Bytes kSmall{64};

}  // namespace

Dependencies dependencies(const Scheme& scheme) {
  const std::vector<int> made_by = producers(scheme);
  const std::vector<std::vector<int>> read_by = readers(scheme);
  std::vector<std::vector<int>> before(scheme.morphisms.size());
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    for (const Value in : scheme.morphisms[i].inputs) {
      if (made_by[in] >= 0) before[i].push_back(made_by[in]);
    }
    for (const Value v : scheme.morphisms[i].after) {
      if (made_by[v] >= 0) before[i].push_back(made_by[v]);
    }
  }
  const auto write_last = [&](const Carry& c, bool in_loop) {
    const int writer = made_by[c.out];
    if (writer < 0) return;
    std::vector<Value> old = {c.in};  // and its views, which are the same bytes
    for (size_t k = 0; k < old.size(); ++k) {
      for (const int reader : read_by[old[k]]) {
        if (reader == writer) continue;
        before[writer].push_back(reader);
        const Morphism& m = scheme.morphisms[reader];
        // In the prologue nothing is a view of an accumulator, only a copy (sharing.cpp).
        const bool copies = in_loop && m.section == Section::kPrologue;
        // A concat of parameters may be a view of them, too; any other concat is a copy.
        const auto is_parameter = [&](Value v) {
          return made_by[v] < 0 && scheme[v].role == Role::kParameter;
        };
        const bool joins = op_named(m.op).lies == LiesWithin::kJoins &&
                           std::all_of(m.inputs.begin(), m.inputs.end(), is_parameter);
        const bool shares = op_named(m.op).view || joins;
        if (shares && !copies) old.push_back(m.outputs[0]);
      }
    }
  };
  for (const Carry& c : scheme.carries) write_last(c, false);
  for (const Carry& c : scheme.loop) write_last(c, true);
  Dependencies d{std::vector<std::vector<int>>(before.size()), std::vector<int>(before.size(), 0)};
  for (size_t i = 0; i < before.size(); ++i) {
    std::sort(before[i].begin(), before[i].end());
    before[i].erase(std::unique(before[i].begin(), before[i].end()), before[i].end());
    for (const int b : before[i]) d.after[b].push_back(static_cast<int>(i));
    d.waits_for[i] = static_cast<int>(before[i].size());
  }
  return d;
}

// Sections need no care here: a scheme lists them in order.
std::vector<int> written_order(const Scheme& scheme) {
  Dependencies d = dependencies(scheme);
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < d.waits_for.size(); ++i) {
    if (d.waits_for[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    order.push_back(next);
    for (const int follower : d.after[next]) {
      if (--d.waits_for[follower] == 0) ready.push(follower);
    }
  }
  CHECK(order.size() == scheme.morphisms.size(), "a scheme has no cycle");
  return order;
}

namespace {

// By how much a morphism changes the device's live bytes, as far as is known before the plan. A
// view takes no bytes and keeps its object alive; the host's bytes do not count.
class Growth {
 public:
  explicit Growth(const Scheme& scheme) : scheme_(scheme), seen_(scheme.objects.size()) {
    const size_t n = scheme.objects.size();
    for (size_t v = 0; v < n; ++v) seen_[v] = static_cast<Value>(v);
    readers_.resize(n);
    stays_.assign(n, false);
    crosses_.assign(n, false);
    carried_.assign(n, false);
    for (const Value in : scheme.inputs) stays_[in] = true;
    const bool repeats = scheme.parts > 1 || !scheme.loop.empty();
    for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
      const Morphism& m = scheme.morphisms[i];
      is_view_.push_back(op_named(m.op).view && tier_of(m.outputs[0]) == tier_of(m.inputs[0]));
      if (is_view_.back()) seen_[m.outputs[0]] = seen_[m.inputs[0]];
      for (const Value out : m.outputs) crosses_[out] = repeats && m.section == Section::kPrologue;
      if (is_view_.back()) continue;
      for (const Value in : m.inputs) {
        std::vector<int>& readers = readers_[seen_[in]];
        if (readers.empty() || readers.back() != static_cast<int>(i)) {
          readers.push_back(static_cast<int>(i));
        }
      }
    }
    for (const Value out : scheme.outputs) stays_[seen_[out]] = true;
    for (const Carry& c : scheme.carries) carried_[c.out] = true;
    for (const Carry& c : scheme.loop) {
      carried_[c.out] = crosses_[c.in] = crosses_[c.out] = true;
    }
    const std::vector<Value> grown =
        grown_from(scheme);  // sums that are made in the accumulator's bytes
    for (size_t v = 0; v < n; ++v) {
      if (grown[v] >= 0) carried_[v] = crosses_[v] = true;
    }
    for (const std::vector<int>& readers : readers_) {
      left_.push_back(static_cast<int>(readers.size()));
    }
  }

  int64_t of(int i) const {
    const Morphism& m = scheme_.morphisms[i];
    if (is_view_[i]) return 0;
    int64_t bytes = 0;
    for (const Value out : m.outputs) {
      const Bytes size = scheme_[out].type.bytes();
      if (!carried_[out] && size > kSmall && on_device(out)) bytes += size.count;
    }
    for_each_operand(m, [&](Value v) {
      const bool again = m.section == Section::kBody && crosses_[v];
      if (left_[v] == 1 && !stays_[v] && !again && on_device(v)) {
        bytes -= scheme_[v].type.bytes().count;
      }
    });
    return bytes;
  }

  // Notes that i has run. Calls f(j) for each morphism that is now the last reader of something.
  template <class F>
  void ran(int i, const F& f) {
    if (is_view_[i]) return;
    ran_.resize(scheme_.morphisms.size(), false);
    ran_[i] = true;
    for_each_operand(scheme_.morphisms[i], [&](Value v) {
      if (--left_[v] != 1) return;
      for (const int reader : readers_[v]) {
        if (!ran_[reader]) f(reader);
      }
    });
  }

 private:
  Tier tier_of(Value v) const { return scheme_[v].attributes.tier; }
  bool on_device(Value v) const { return tier_of(v) == Tier::kDevice; }
  template <class F>
  void for_each_operand(const Morphism& m, const F& f) const {
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Value v = seen_[m.inputs[k]];
      bool again = false;
      for (size_t j = 0; j < k; ++j) again = again || seen_[m.inputs[j]] == v;
      if (!again) f(v);
    }
  }

  const Scheme& scheme_;
  std::vector<Value> seen_;  // per object: what it is a view of, or itself
  std::vector<bool> is_view_, stays_, crosses_, carried_;
  std::vector<std::vector<int>> readers_;  // per object that is no view; readers of its views count
  std::vector<int> left_;
  std::vector<bool> ran_;
};

// What a morphism frees where that decides when it runs; nothing where it runs as written.
using Freed = std::function<std::optional<int64_t>(int, const Growth&)>;

std::vector<int> order_by(const Scheme& scheme, const Freed& grows_by) {
  Dependencies d = dependencies(scheme);
  Growth growth(scheme);
  // Sections in order, and in each its slots.
  std::map<std::pair<Section, int>, size_t> places;
  for (const Morphism& m : scheme.morphisms) places[{m.section, m.slot}] = 0;
  size_t next_place = 0;
  for (auto& [of, place] : places) place = next_place++;
  std::vector<size_t> place_of;  // per call
  for (const Morphism& m : scheme.morphisms) place_of.push_back(places.at({m.section, m.slot}));
  std::vector<std::set<int>> ready_in(std::max<size_t>(places.size(), 1));
  for (size_t i = 0; i < d.waits_for.size(); ++i) {
    const int m = static_cast<int>(i);
    if (d.waits_for[i] == 0) ready_in[place_of[i]].insert(m);
  }
  std::vector<int> order;
  // Ready morphisms that may free more than when they were last considered: they are new, or an
  // operand of theirs has lost a reader.
  std::set<int> fresh = ready_in[0];
  for (size_t section = 0;;) {
    std::set<int>& ready = ready_in[section];
    if (ready.empty()) {
      if (++section == ready_in.size()) break;
      fresh = ready_in[section];
      continue;
    }
    int next = -1;
    int64_t best = 0;
    for (const int candidate : fresh) {
      if (!ready.count(candidate)) continue;
      const std::optional<int64_t> bytes = grows_by(candidate, growth);
      if (bytes && *bytes <= best && (next < 0 || *bytes < best)) next = candidate, best = *bytes;
    }
    if (next < 0) {
      next = *ready.begin();
      fresh.clear();
    }
    ready.erase(next);
    fresh.erase(next);
    order.push_back(next);
    growth.ran(next, [&](int reader) {
      if (ready.count(reader)) fresh.insert(reader);
    });
    for (const int follower : d.after[next]) {
      if (--d.waits_for[follower] == 0) {
        ready_in[place_of[follower]].insert(follower);
        if (place_of[follower] == section) fresh.insert(follower);
      }
    }
  }
  CHECK(order.size() == scheme.morphisms.size(), "a scheme has no cycle");
  return order;
}

}  // namespace

std::vector<int> freeing_order(const Scheme& scheme) {
  return order_by(scheme, [](int m, const Growth& growth) { return growth.of(m); });
}

std::vector<int> settling_order(const Scheme& scheme) {
  const auto bytes = [&](const std::vector<Value>& objects) {
    int64_t sum = 0;
    for (const Value v : objects) sum += scheme[v].type.bytes().count;
    return sum;
  };
  return order_by(scheme, [&](int i, const Growth& growth) -> std::optional<int64_t> {
    const Morphism& m = scheme.morphisms[i];
    // What is sent dies with the last sum over a part of it.
    if (op_named(m.op).collective && bytes(m.outputs) <= bytes(m.inputs)) {
      return std::min<int64_t>(growth.of(i), 0);
    }
    if (m.phase != Phase::kUpdate && !op_named(m.op).view) return std::nullopt;
    return growth.of(i);
  });
}

}  // namespace adjoint

#include "plan/order.h"

#include <algorithm>
#include <array>
#include <queue>
#include <set>

#include "base/error.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// Results up to this size count as free: what waits for them (all updates, for the one factor) is
// larger by far.
constexpr Bytes kSmall{64};

// Who must run before whom: makers before readers and before those who only wait for what is made,
// and readers of state, or of an accumulator, before its writer.
struct Dependencies {
  std::vector<std::vector<int>> after;  // per morphism: those that wait for it
  std::vector<int> waits_for;           // per morphism: how many it still waits for
};

Dependencies dependencies(const Scheme& scheme) {
  const std::vector<int> made_by = producers(scheme);
  const std::vector<std::vector<int>> read_by = readers(scheme);
  std::vector<std::set<int>> before(scheme.morphisms.size());
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    for (const Value in : scheme.morphisms[i].inputs) {
      if (made_by[in] >= 0) before[i].insert(made_by[in]);
    }
    for (const Value v : scheme.morphisms[i].after) {
      if (made_by[v] >= 0) before[i].insert(made_by[v]);
    }
  }
  const auto write_last = [&](const Carry& c, bool in_loop) {
    const int writer = made_by[c.out];
    if (writer < 0) return;
    std::vector<Value> old = {c.in};  // and its views, which are the same bytes
    for (size_t k = 0; k < old.size(); ++k) {
      for (const int reader : read_by[old[k]]) {
        if (reader == writer) continue;
        before[writer].insert(reader);
        const Morphism& m = scheme.morphisms[reader];
        // Before the body there are no views of an accumulator, only copies (plan.cpp).
        const bool copies = in_loop && m.section == Section::kPrologue;
        // Joined parameters may be a view of them, too.
        const bool shares = op_named(m.op).view || m.op == "concat";
        if (shares && !copies) old.push_back(m.outputs[0]);
      }
    }
  };
  for (const Carry& c : scheme.carries) write_last(c, false);
  for (const Carry& c : scheme.loop) write_last(c, true);
  Dependencies d{std::vector<std::vector<int>>(before.size()), std::vector<int>(before.size(), 0)};
  for (size_t i = 0; i < before.size(); ++i) {
    for (const int b : before[i]) d.after[b].push_back(static_cast<int>(i));
    d.waits_for[i] = static_cast<int>(before[i].size());
  }
  return d;
}

}  // namespace

// Sections need no care here: they stand in order in the scheme.
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

std::vector<int> freeing_order(const Scheme& scheme) {
  Dependencies d = dependencies(scheme);
  std::vector<int> uses_left(scheme.objects.size(), 0);
  const std::vector<std::vector<int>> read_by = readers(scheme);
  for (size_t v = 0; v < read_by.size(); ++v) uses_left[v] = static_cast<int>(read_by[v].size());
  std::vector<bool> stays(scheme.objects.size(), false);
  for (const Value in : scheme.inputs) stays[in] = true;
  for (const Value out : scheme.outputs) stays[out] = true;
  std::vector<bool> carried(scheme.objects.size(), false);
  for (const Carry& c : scheme.carries) carried[c.out] = true;
  std::vector<bool> crosses(scheme.objects.size(), false);  // iterations
  for (const Morphism& m : scheme.morphisms) {
    for (const Value out : m.outputs) crosses[out] = m.section == Section::kPrologue;
  }
  for (const Carry& c : scheme.loop) carried[c.out] = crosses[c.in] = crosses[c.out] = true;

  const auto section_of = [&](int i) { return static_cast<size_t>(scheme.morphisms[i].section); };
  const auto growth = [&](int i) {
    const bool in_body = scheme.morphisms[i].section == Section::kBody;
    int64_t bytes = 0;
    std::set<Value> seen;
    for (const Value out : scheme.morphisms[i].outputs) {
      const Bytes size = scheme[out].type.bytes();
      if (!carried[out] && size > kSmall) bytes += size.count;
    }
    for (const Value in : scheme.morphisms[i].inputs) {
      if (stays[in] || (in_body && crosses[in])) continue;
      if (uses_left[in] > 1 || !seen.insert(in).second) continue;
      bytes -= scheme[in].type.bytes().count;
    }
    return bytes;
  };

  std::array<std::set<int>, 3> ready_in;  // per section
  for (size_t i = 0; i < d.waits_for.size(); ++i) {
    const int m = static_cast<int>(i);
    if (d.waits_for[i] == 0) ready_in[section_of(m)].insert(m);
  }
  std::vector<int> order;
  std::vector<int> fresh(ready_in[0].begin(), ready_in[0].end());  // ready, and not yet looked at
  for (size_t section = 0;;) {
    std::set<int>& ready = ready_in[section];
    if (ready.empty()) {
      if (++section == ready_in.size()) break;
      fresh.assign(ready_in[section].begin(), ready_in[section].end());
      continue;
    }
    // A ready morphism can become a freeing one only when it is new or an operand lost a reader;
    // the latter is rare, so only the new ones are looked at.
    int next = -1;
    int64_t best = 0;
    for (const int candidate : fresh) {
      if (!ready.count(candidate)) continue;
      const int64_t bytes = growth(candidate);
      if (bytes <= best && (next < 0 || bytes < best)) next = candidate, best = bytes;
    }
    if (next < 0) {
      next = *ready.begin();
      fresh.clear();
    }
    ready.erase(next);
    order.push_back(next);
    std::set<Value> seen;
    for (const Value in : scheme.morphisms[next].inputs) {
      if (seen.insert(in).second) --uses_left[in];
    }
    for (const int follower : d.after[next]) {
      if (--d.waits_for[follower] == 0) {
        ready_in[section_of(follower)].insert(follower);
        if (section_of(follower) == section) fresh.push_back(follower);
      }
    }
  }
  CHECK(order.size() == scheme.morphisms.size(), "a scheme has no cycle");
  return order;
}

}  // namespace adjoint

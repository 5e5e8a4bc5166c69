#include "plan/overlap.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/structure.h"
#include "base/error.h"
#include "ops/op_def.h"
#include "plan/lanes.h"
#include "plan/order.h"

namespace adjoint {

namespace {

class Overlap {
 public:
  Overlap(const Scheme& scheme, std::vector<int> order)
      : scheme_(scheme),
        order_(std::move(order)),
        needs_(dependencies(scheme)),
        before_(scheme.morphisms.size()),
        of_data_(depends_on_data(scheme)),
        made_by_(producers(scheme)),
        stretch_of_(scheme.morphisms.size(), -1) {
    for (size_t m = 0; m < before_.size(); ++m) {
      for (const int later : needs_.after[m]) before_[later].push_back(static_cast<int>(m));
    }
    find_places();
    find_stretches();
  }

  std::vector<int> run() {
    fetch_ahead();
    std::vector<int> sums;
    for (const int m : order_) {
      if (is_collective(m) && !is_fetch(m)) sums.push_back(m);
    }
    // Sums first: what is gathered of them is placed by where they stand.
    for (const int m : sums) {
      if (!grows(m)) begin_sum(m);
    }
    for (const int m : sums) {
      if (grows(m)) begin_gather(m);
    }
    check();
    return std::move(order_);
  }

 private:
  const Morphism& call(int m) const { return scheme_.morphisms[m]; }
  bool is_collective(int m) const {
    return lane_of(call(m)) == Lane::kRanks && op_named(call(m).op).collective;
  }
  // Made of state alone, so it may begin whenever the step is running.
  bool is_fixed(int m) const {
    return std::none_of(call(m).outputs.begin(), call(m).outputs.end(),
                        [&](Value v) { return of_data_[v]; });
  }
  bool is_fetch(int m) const { return is_collective(m) && is_fixed(m); }
  bool grows(int m) const { return bytes(call(m).outputs) > bytes(call(m).inputs); }
  int64_t bytes(const std::vector<Value>& objects) const {
    int64_t sum = 0;
    for (const Value v : objects) sum += scheme_[v].type.bytes().count;
    return sum;
  }

  // ---- places ----

  void find_places() {
    place_.resize(order_.size());
    for (size_t at = 0; at < order_.size(); ++at) place_[order_[at]] = static_cast<int>(at);
  }
  int section_begin(int m) const {
    const auto first = std::find_if(order_.begin(), order_.end(), [&](int other) {
      return call(other).section == call(m).section;
    });
    return static_cast<int>(first - order_.begin());
  }
  int section_end(int m) const {
    const auto last = std::find_if(order_.rbegin(), order_.rend(), [&](int other) {
      return call(other).section == call(m).section;
    });
    return static_cast<int>(order_.rend() - last);
  }
  // Takes these calls, in their order, to before what is at that place now.
  void move(const std::set<int>& calls, int to) {
    std::vector<int> moved, rest;
    int index = -1;
    for (int at = 0; at <= static_cast<int>(order_.size()); ++at) {
      if (at == to) index = static_cast<int>(rest.size());
      if (at == static_cast<int>(order_.size())) break;
      (calls.count(order_[at]) ? moved : rest).push_back(order_[at]);
    }
    rest.insert(rest.begin() + index, moved.begin(), moved.end());
    order_ = std::move(rest);
    find_places();
  }

  // ---- stretches ----

  // Calls of the two passes that work on data; the others stand wherever they are needed.
  bool is_backbone(int m) const {
    return call(m).phase != Phase::kUpdate && !is_collective(m) && !is_fixed(m) &&
           !op_named(call(m).op).view;
  }
  void find_stretches() {
    const Chain chain = find_chain(scheme_);
    std::set<int> marks;  // without a chain, a stretch begins where a collective is read or begins
    if (chain.length() == 0) {
      for (const int m : order_) {
        if (is_collective(m)) marks.insert(is_fetch(m) ? first_reader(m) : place_[m]);
      }
    }
    std::vector<int> backbone, own;  // calls, and the block of each
    for (const int m : order_) {
      if (!is_backbone(m)) continue;
      backbone.push_back(m);
      own.push_back(chain.length() > 0 ? chain.block_of_morphism[m] : -1);
    }
    const auto together = [&](int a, int b) {
      return call(a).section == call(b).section && call(a).phase == call(b).phase;
    };
    // A call of no block is of the stretch around it, unless it is behind or before the chain; and
    // so is a weight's gradient that runs while the next block does.
    std::set<int> passed;
    for (size_t i = 1; i < backbone.size(); ++i) {
      if (!together(backbone[i - 1], backbone[i])) passed.clear();
      passed.insert(own[i - 1]);
      const auto is_other = [&](size_t k) {
        return own[k] != own[i - 1] && (own[k] < 0 || passed.count(own[k]));
      };
      if (own[i - 1] < 0 || !is_other(i)) continue;
      size_t next = i + 1;
      while (next < backbone.size() && is_other(next)) ++next;
      const bool goes_on = next < backbone.size() && own[next] == own[i - 1] &&
                           together(backbone[i - 1], backbone[next]);
      for (size_t k = i; goes_on && k < next; ++k) own[k] = own[i - 1];
    }
    int last = -1;
    for (size_t i = 0; i < backbone.size(); ++i) {
      const int m = backbone[i];
      const auto marked = marks.upper_bound(last);
      const bool cut = marked != marks.end() && *marked <= place_[m];
      const bool goes_on = i > 0 && together(backbone[i - 1], m) && own[i] == own[i - 1];
      if (!goes_on || cut) begins_.push_back(m);
      last = place_[m];
      stretch_of_[m] = static_cast<int>(begins_.size()) - 1;
    }
  }
  // The stretch that is running at a place; -1: none yet.
  int stretch_at(int place) const {
    for (int at = std::min(place, static_cast<int>(order_.size()) - 1); at >= 0; --at) {
      if (stretch_of_[order_[at]] >= 0) return stretch_of_[order_[at]];
    }
    return -1;
  }
  int begin_of_stretch(int stretch) const {
    if (stretch < 0) return 0;
    return stretch < static_cast<int>(begins_.size()) ? place_[begins_[stretch]]
                                                      : static_cast<int>(order_.size());
  }
  // The same place in the stretch before, or in the one behind, as far as that goes.
  int one_stretch_before(int place) const {
    const int stretch = stretch_at(place);
    const int offset = place - begin_of_stretch(stretch);
    return std::min(begin_of_stretch(stretch - 1) + offset, begin_of_stretch(stretch));
  }
  int one_stretch_later(int m) const {
    const int stretch = stretch_at(place_[m]);
    const int offset = place_[m] - begin_of_stretch(stretch);
    const int later =
        std::min(begin_of_stretch(stretch + 1) + offset, begin_of_stretch(stretch + 2));
    return std::clamp(later, place_[m] + 1, section_end(m));
  }

  int first_reader(int m) const {
    int first = static_cast<int>(order_.size());
    std::vector<Value> shown = call(m).outputs;
    for (size_t k = 0; k < shown.size(); ++k) {
      for (const int later : needs_.after[m_of(shown[k])]) {
        const Morphism& reader = call(later);
        if (!std::count(reader.inputs.begin(), reader.inputs.end(), shown[k])) continue;
        if (op_named(reader.op).view) {
          shown.push_back(reader.outputs[0]);
        } else {
          first = std::min(first, place_[later]);
        }
      }
    }
    return first;
  }
  int m_of(Value v) const { return made_by_[v]; }

  // ---- parameters ----

  void fetch_ahead() {
    std::map<int, int> targets;  // by call
    for (const int m : order_) {
      if (!is_fetch(m)) continue;
      const int reader = first_reader(m);
      if (reader >= static_cast<int>(order_.size())) continue;
      const int target = std::max(one_stretch_before(reader), section_begin(m));
      if (target >= place_[m]) continue;
      bring(m, target, targets);
    }
    // From the last to the first, so that places before stay what they were.
    std::map<int, std::set<int>> by_target;
    for (const auto& [m, target] : targets) by_target[target].insert(m);
    std::vector<int> result;
    for (int at = 0; at < static_cast<int>(order_.size()); ++at) {
      if (const auto found = by_target.find(at); found != by_target.end()) {
        std::vector<int> calls(found->second.begin(), found->second.end());
        std::sort(calls.begin(), calls.end(), [&](int a, int b) { return place_[a] < place_[b]; });
        result.insert(result.end(), calls.begin(), calls.end());
      }
      if (!targets.count(order_[at])) result.push_back(order_[at]);
    }
    order_ = std::move(result);
    find_places();
  }
  // The call and what it is made of, casts of shards say.
  void bring(int m, int target, std::map<int, int>& targets) const {
    if (place_[m] < target) return;
    const auto [found, fresh] = targets.emplace(m, target);
    if (!fresh && found->second <= target) return;
    found->second = target;
    for (const Value in : call(m).inputs) {
      if (made_by_[in] >= 0) bring(made_by_[in], target, targets);
    }
  }

  // ---- sums ----

  int earliest(int m) const {
    int first = section_begin(m);
    for (const int b : before_[m]) first = std::max(first, place_[b] + 1);
    return first;
  }

  void begin_sum(int m) {
    if (const int first = earliest(m); first < place_[m]) move({m}, first);
    const int until = one_stretch_later(m);
    std::set<int> waiting = {m};
    for (int at = place_[m] + 1; at < until; ++at) {
      const int next = order_[at];
      const bool waits = std::any_of(before_[next].begin(), before_[next].end(),
                                     [&](int b) { return waiting.count(b) > 0; });
      if (!waits) continue;
      if (call(next).phase != Phase::kUpdate) return;  // the work itself waits
      waiting.insert(next);
    }
    waiting.erase(m);
    if (!waiting.empty()) move(waiting, until);
  }

  void begin_gather(int m) {
    int first = earliest(m);
    if (call(m).phase == Phase::kUpdate) return begin_one_ahead(m, first);
    int sum = -1;
    for (const Value in : call(m).inputs) {
      if (made_by_[in] >= 0 && is_collective(made_by_[in])) sum = std::max(sum, made_by_[in]);
    }
    if (sum >= 0) {
      first = std::max(first, one_stretch_later(sum));
    } else if (const int reader = first_reader(m); reader < static_cast<int>(order_.size())) {
      first = std::max(first, one_stretch_before(reader));
    } else {
      return;
    }
    if (first < place_[m]) move({m}, first);
  }

  // Between updates: before the call in front of it, and no earlier, so that one whole object more
  // is there and not all of them.
  void begin_one_ahead(int m, int first) {
    int target = place_[m];
    while (target > first && is_collective(order_[target - 1])) --target;
    if (target > first && call(order_[target - 1]).phase == Phase::kUpdate) --target;
    if (target < place_[m]) move({m}, target);
  }

  // What is fetched ahead no longer waits for the block before (Morphism::after).
  void check() const {
    for (size_t m = 0; m < before_.size(); ++m) {
      for (const int b : before_[m]) {
        CHECK(place_[b] < place_[m] || is_fixed(static_cast<int>(m)),
              "a call stands behind those that it waits for: " + to_string(call(m).source));
      }
      for (const Value in : call(m).inputs) {
        CHECK(made_by_[in] < 0 || place_[made_by_[in]] < place_[m],
              "a call stands behind those that make its operands: " + to_string(call(m).source));
      }
    }
  }

  const Scheme& scheme_;
  std::vector<int> order_;
  Dependencies needs_;
  std::vector<std::vector<int>> before_;  // per call
  std::vector<bool> of_data_;             // per object
  std::vector<int> made_by_;
  std::vector<int> place_;       // per call
  std::vector<int> stretch_of_;  // per call of the backbone
  std::vector<int> begins_;      // per stretch: its first call
};

}  // namespace

bool speaks_to_ranks(const Scheme& scheme) {
  return std::any_of(scheme.morphisms.begin(), scheme.morphisms.end(),
                     [](const Morphism& m) { return lane_of(m) == Lane::kRanks; });
}

bool fetches_state(const Scheme& scheme) {
  const std::vector<bool> of_data = depends_on_data(scheme);
  return std::any_of(scheme.morphisms.begin(), scheme.morphisms.end(), [&](const Morphism& m) {
    return lane_of(m) == Lane::kRanks && !m.outputs.empty() && !of_data[m.outputs[0]];
  });
}

std::vector<int> overlapped(const Scheme& scheme, std::vector<int> order) {
  return speaks_to_ranks(scheme) ? Overlap(scheme, std::move(order)).run() : order;
}

}  // namespace adjoint

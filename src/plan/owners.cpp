#include "plan/owners.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ops/axes.h"
#include "plan/lanes.h"
#include "plan/region.h"

namespace adjoint {

namespace {

// An object as one iteration of the body makes it, and its lifetime; -1 is before the step.
struct Life {
  Value object = -1;       // -1: data that lands, or
  bool workspace = false;  // that of a collective that is under way
  Region region = {};
  int born = -1, until = -1;
};

// The lives that may own a byte now. Lives whose ranges, from first to last byte, overlap are in
// one cell. Lives that have ended are removed when their cell is visited.
class Owners {
 public:
  // Calls f(life) for all lives that own bytes between the region's first and last byte.
  template <class F>
  void near(const Region& region, const std::vector<Life>& lives, int now, const F& f) {
    Cells& cells = cells_[static_cast<size_t>(region.tier)];
    for (auto cell = first_in(cells, region); cell != cells.end() && cell->first < region.end();) {
      std::erase_if(cell->second.lives, [&](int life) { return lives[life].until < now; });
      for (const int life : cell->second.lives) f(life);
      cell = cell->second.lives.empty() ? cells.erase(cell) : std::next(cell);
    }
  }

  void add(int life, const Region& region) {
    Cells& cells = cells_[static_cast<size_t>(region.tier)];
    int64_t begin = region.begin;
    Cell joined{.end = region.end(), .lives = {life}};
    for (auto cell = first_in(cells, region); cell != cells.end() && cell->first < region.end();) {
      begin = std::min(begin, cell->first);
      joined.end = std::max(joined.end, cell->second.end);
      const std::vector<int>& more = cell->second.lives;
      joined.lives.insert(joined.lives.end(), more.begin(), more.end());
      cell = cells.erase(cell);
    }
    cells[begin] = std::move(joined);
  }

 private:
  struct Cell {
    int64_t end = 0;
    std::vector<int> lives = {};
  };
  using Cells = std::map<int64_t, Cell>;  // by their first byte

  static Cells::iterator first_in(Cells& cells, const Region& region) {
    auto cell = cells.upper_bound(region.begin);
    if (cell != cells.begin() && std::prev(cell)->second.end > region.begin) --cell;
    return cell;
  }

  Cells cells_[kNumTiers];
};

class Checker {
 public:
  Checker(const Scheme& scheme, const Plan& plan)
      : scheme_(scheme),
        plan_(plan),
        now_(scheme.objects.size(), -1),
        carried_(scheme.objects.size(), -1) {
    for (const Carry& c : scheme.carries) carried_[c.out] = c.in;
    for (const Carry& c : scheme.loop) carried_[c.out] = c.in;
  }

  std::string run() {
    write_order();
    if (!wrong_.empty()) return wrong_;
    begin();
    for (size_t t = 0; t < order_.size() && wrong_.empty(); ++t) follow(static_cast<int>(t));
    if (wrong_.empty()) end();
    for (int t = -1; t < static_cast<int>(order_.size()) && wrong_.empty(); ++t) own(t);
    return wrong_;
  }

 private:
  // A body that runs more than once is followed twice, so that the second iteration finds what the
  // first one left. A view runs nothing, so it exists as soon as its object does, wherever the plan
  // lists it: a result over one slice of an object may come before another slice is listed.
  void write_order() {
    const int calls = static_cast<int>(plan_.calls.size());
    std::vector<int> made_at(scheme_.objects.size(), -1);
    for (int at = 0; at < calls; ++at) {
      for (const Value out : morphism_at(at).outputs) made_at[out] = at;
    }
    for (int at = 0; at < calls; ++at) {
      for (const Value in : morphism_at(at).inputs) {
        if (made_at[in] < at) continue;
        say(source(in) + " is read before it is made, at " + to_string(morphism_at(at).source));
      }
    }
    views_.assign(calls, {});
    is_hung_.assign(calls, false);
    for (int at = 0; at < calls; ++at) {
      if (!plan_.calls[at].is_view || !op_named(morphism_at(at).op).view) continue;
      const int maker = made_at[morphism_at(at).inputs[0]];
      if (maker < 0 || maker > at || section_of(maker) != section_of(at)) continue;
      views_[maker].push_back(at);
      is_hung_[at] = true;
    }
    add_calls(0, plan_.body_end);
    next_iteration_ = static_cast<int>(order_.size());
    if (scheme_.parts > 1) add_calls(plan_.body_begin, plan_.body_end);
    add_calls(plan_.body_end, calls);
    made_.resize(order_.size());
    read_.resize(order_.size());
    copied_.resize(order_.size());
    find_ends();
  }

  // A collective uses its operands until it is done, while later calls run.
  void find_ends() {
    const std::vector<int> done = done_before(scheme_, plan_);
    busy_until_.resize(order_.size());
    for (int t = 0; t < last(); ++t) {
      int end = t + 1;
      if (done[order_[t]] > order_[t] + 1) {
        const auto goes_on = [&](int next) {
          return next != next_iteration_ &&
                 (is_hung_[order_[next]] || order_[next] < done[order_[t]]);
        };
        while (end < last() && goes_on(end)) ++end;
      }
      busy_until_[t] = end - 1;
    }
  }
  int section_of(int at) const { return (at >= plan_.body_begin) + (at >= plan_.body_end); }
  void add_calls(int from, int to) {
    for (int at = from; at < to; ++at) {
      if (!is_hung_[at]) add_with_views(at);
    }
  }
  void add_with_views(int at) {
    order_.push_back(at);
    for (const int view : views_[at]) add_with_views(view);
  }

  const Morphism& morphism_at(int at) const { return scheme_.morphisms[plan_.calls[at].morphism]; }
  const Morphism& call(int t) const { return morphism_at(order_[t]); }
  std::string source(Value v) const { return to_string(scheme_[v].source); }
  std::string place_of(int t) const {
    if (t < 0) return "before the step";
    if (t >= static_cast<int>(order_.size())) return "after the step";
    return "at " + to_string(call(t).source) + " (call " + std::to_string(order_[t]) + ")";
  }

  // ---- who lives from when to when ----

  int give_life(Value v, Region region, int born) {
    lives_.push_back({.object = v, .region = std::move(region), .born = born, .until = born});
    return static_cast<int>(lives_.size()) - 1;
  }

  void begin() {
    for (const auto& [v, storage] : plan_.landings) {
      lives_[give_life(-1, region_of(plan_.storages[storage]), -1)].until = last();
    }
    for (const Value in : scheme_.inputs)
      now_[in] = give_life(in, region_of(scheme_, plan_, in), -1);
    first_made_ = static_cast<int>(lives_.size());
  }
  int last() const { return static_cast<int>(order_.size()); }

  void follow(int t) {
    if (t == next_iteration_ && scheme_.parts > 1) {
      for (const Carry& c : scheme_.loop) now_[c.in] = now_[c.out];
    }
    const Morphism& m = call(t);
    for (const Value in : m.inputs) {
      if (now_[in] < 0) return say(source(in) + " is read before it is made, " + place_of(t));
      const int life = life_read(t, in);
      int& until = lives_[life].until;
      until = std::max(until, busy_until_[t]);
      read_[t].push_back(life);
      check_stored(in, t);
    }
    for (const Value out : m.outputs) {
      made_[t].push_back(give_life(out, region_of(scheme_, plan_, out), t));
      check_stored(out, t);
    }
    for (size_t o = 0; o < m.outputs.size(); ++o) now_[m.outputs[o]] = made_[t][o];
  }

  // The life that an operand is read of. A view that is copied, because its readers want it dense,
  // reads no more than it would see: the rest of its object may have been written over by then.
  int life_read(int t, Value in) {
    const Morphism& m = call(t);
    const int whole = now_[in];
    const OpDef& op = op_named(m.op);
    if (!op.view || plan_.calls[order_[t]].is_view || lives_[whole].born < 0) return whole;
    int64_t offset = 0;
    const Type& type = scheme_[m.outputs[0]].type;
    const auto strides = op.view(call_of(scheme_, m), plan_.places[in].strides, offset);
    if (!strides) return whole;
    const int born = lives_[whole].born;
    const int seen = give_life(in,
                               region_of(type, *strides, plan_.tier_of(in),
                                         plan_.offset_of(in) + offset * size_of(type.dtype)),
                               born);
    copied_[born].push_back(seen);
    return seen;
  }

  void check_stored(Value v, int t) {
    const Storage& s = plan_.storages[plan_.places[v].storage];
    if (order_[t] >= s.first && order_[t] <= s.last) return;
    say(source(v) + " is used when its storage is not alive, " + place_of(t));
  }

  // What the next step finds, and what the caller reads.
  void end() {
    std::vector<int> given(scheme_.objects.size(), -1);  // lives of inputs
    for (size_t i = 0; i < scheme_.inputs.size(); ++i) {
      given[scheme_.inputs[i]] = first_made_ - static_cast<int>(scheme_.inputs.size() - i);
    }
    std::vector<bool> replaced(scheme_.objects.size(), false);
    for (const Carry& c : scheme_.carries) {
      if (!same_place(c.in, c.out)) return say(source(c.in) + " comes out where it did not go in");
      replaced[c.in] = true;
      int& until = lives_[given[c.in]].until;
      until = std::max(until, lives_[now_[c.out]].born);
      lives_[now_[c.out]].until = last();
    }
    for (const Value in : scheme_.inputs) {
      const bool stays = is_state(scheme_[in].role) && !replaced[in];
      if (stays) lives_[given[in]].until = last();
    }
    for (const Carry& c : scheme_.loop) {
      if (!same_place(c.in, c.out)) return say(source(c.in) + " grows where it does not lie");
    }
    for (const Value out : scheme_.outputs) lives_[now_[out]].until = last();
  }

  // ---- who owns which bytes ----

  bool same_place(Value a, Value b) const {
    const Type &x = scheme_[a].type, &y = scheme_[b].type;
    if (plan_.tier_of(a) != plan_.tier_of(b) || plan_.offset_of(a) != plan_.offset_of(b))
      return false;
    return same_shape(x, y) && x.dtype == y.dtype &&
           same_strides(x, plan_.places[a].strides, plan_.places[b].strides);
  }
  static bool same_strides(const Type& type, const Strides& a, const Strides& b) {
    for (int i = 0; i < type.rank(); ++i) {
      if (type.dim(i) > 1 && a[i] != b[i]) return false;
    }
    return true;
  }

  void own(int t) {
    if (t < 0) {
      for (int life = 0; life < first_made_; ++life) {
        write(lives_[life].region, life, t);
        owners_.add(life, lives_[life].region);
      }
      return;
    }
    own_made(t);
    for (const int life : copied_[t]) owners_.add(life, lives_[life].region);
  }

  void own_made(int t) {
    const PlannedCall& planned = plan_.calls[order_[t]];
    if (planned.is_view) {
      check_view(t);
      for (const int life : made_[t]) owners_.add(life, lives_[life].region);
      return;
    }
    const auto starts = operand_starts(scheme_, call(t));
    for (size_t o = 0; o < made_[t].size(); ++o) {
      const int life = made_[t][o];
      if (starts) {
        write_joined(*starts, life, t);
      } else {
        write(lives_[life].region, life, t);
      }
      owners_.add(life, lives_[life].region);
    }
    if (planned.workspace < 0) return;
    const Region workspace = region_of(plan_.storages[planned.workspace]);
    write(workspace, -1, t);
    if (busy_until_[t] == t) return;
    const int life = give_life(-1, workspace, t);
    lives_[life].workspace = true;
    lives_[life].until = busy_until_[t];
    owners_.add(life, workspace);
  }

  // A call that does not run must give what is in its place already.
  void check_view(int t) {
    const Morphism& m = call(t);
    const Place& out = plan_.places[m.outputs[0]];
    const Type& type = scheme_[m.outputs[0]].type;
    bool same = false;
    if (const auto starts = operand_starts(scheme_, m)) {
      same = true;
      for (size_t i = 0; i < m.inputs.size(); ++i) same = same && is_laid(m, i, (*starts)[i]);
    } else if (op_named(m.op).view) {
      int64_t offset = 0;
      const auto strides =
          op_named(m.op).view(call_of(scheme_, m), plan_.places[m.inputs[0]].strides, offset);
      same = strides && same_strides(type, *strides, out.strides) &&
             plan_.tier_of(m.inputs[0]) == plan_.tier_of(m.outputs[0]) &&
             plan_.offset_of(m.outputs[0]) ==
                 plan_.offset_of(m.inputs[0]) + offset * size_of(type.dtype);
    }
    if (!same) say(source(m.outputs[0]) + " is no view of what it is said to see, " + place_of(t));
  }

  // Operand i lies where the result has it.
  bool is_laid(const Morphism& m, size_t i, const std::vector<int64_t>& start) const {
    const Value in = m.inputs[i], out = m.outputs[0];
    return plan_.tier_of(in) == plan_.tier_of(out) && plan_.offset_of(in) == slot(out, start) &&
           same_strides(scheme_[in].type, plan_.places[in].strides, plan_.places[out].strides);
  }
  Bytes slot(Value whole, const std::vector<int64_t>& start) const {
    int64_t offset = 0;
    for (size_t a = 0; a < start.size(); ++a) offset += start[a] * plan_.places[whole].strides[a];
    return plan_.offset_of(whole) + offset * size_of(scheme_[whole].type.dtype);
  }

  // Operands that were made in their place are not copied.
  void write_joined(const std::vector<std::vector<int64_t>>& starts, int life, int t) {
    const Morphism& m = call(t);
    const Value out = m.outputs[0];
    for (size_t i = 0; i < m.inputs.size(); ++i) {
      if (is_laid(m, i, starts[i])) continue;
      write(region_of(scheme_[m.inputs[i]].type, plan_.places[out].strides, plan_.tier_of(out),
                      slot(out, starts[i])),
            life, t);
    }
  }

  // `life` writes to the region, or the call's workspace if it is -1.
  void write(const Region& region, int life, int t) {
    owners_.near(region, lives_, t, [&](int other) {
      const Life& owner = lives_[other];
      if (!wrong_.empty() || other == life || !overlap(region, owner.region)) return;
      if (life >= 0 && takes_place(other, life, t)) return;
      const std::string who = life < 0                  ? "a workspace"
                              : lives_[life].object < 0 ? "data that lands"
                                                        : source(lives_[life].object);
      if (owner.workspace) {
        return say(who + " is written over the workspace of a collective that is under way, " +
                   place_of(t));
      }
      if (owner.object < 0) return say(who + " lies where data lands, " + place_of(t));
      say(who + " is written over " + source(owner.object) + " " + place_of(t) +
          ", though that is wanted " + place_of(owner.until));
    });
    check_above_state(region, life, t);
  }

  // Below state_end there is also state of other plans in the same arena, so nothing else may be
  // written there.
  void check_above_state(const Region& region, int life, int t) {
    if (t < 0) return;
    const Value v = life < 0 ? -1 : lives_[life].object;
    if (v >= 0 && carried_[v] >= 0) return;
    if (region.begin >= plan_.arena_of(region.tier).state_end.count) return;
    say((v < 0 ? "a workspace" : source(v)) + " is written among the state, " + place_of(t));
  }

  // Whether the call is the last reader of `owner` and may write its result over it, element by
  // element; or whether the result is the next value of the same state, which need not read the one
  // before.
  bool takes_place(int owner, int life, int t) {
    if (t < 0 || lives_[owner].until != t || lives_[owner].object < 0) return false;
    const Value before = lives_[owner].object, after = lives_[life].object;
    if (!same_place(before, after)) return false;
    const Morphism& m = call(t);
    const auto output = std::find(m.outputs.begin(), m.outputs.end(), after) - m.outputs.begin();
    bool reads = false;
    for (size_t i = 0; i < read_[t].size(); ++i) {
      if (read_[t][i] != owner) continue;
      reads = true;
      if (!may_write_over(static_cast<int>(output), static_cast<int>(i), t)) return false;
    }
    return reads || carried_[after] == before;
  }

  // A gang has hundreds of results and operands, so its op is queried once per call.
  bool may_write_over(int output, int operand, int t) {
    if (asked_ != t) {
      const auto may = overwrites(call_of(scheme_, call(t)));
      may_ = {may.begin(), may.end()};
      asked_ = t;
    }
    return may_.count({output, operand}) > 0;
  }

  void say(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  const Scheme& scheme_;
  const Plan& plan_;
  std::vector<std::vector<int>> views_;        // per place: the views of what is made there
  std::vector<bool> is_hung_;                  // per place
  std::vector<int> order_;                     // places in the plan, by time
  int next_iteration_ = 0;                     // when the body's second iteration begins
  std::vector<Life> lives_;                    // landings and inputs first
  int first_made_ = 0;                         // lives before this one exist before the step
  std::vector<int> now_;                       // per object: its current life
  std::vector<Value> carried_;                 // per object: what it is the next value of, or -1
  std::vector<std::vector<int>> made_, read_;  // lives, by time
  // Lives of what is copied of an object as a view of it, by the time when the object is made.
  std::vector<std::vector<int>> copied_;
  std::vector<int> busy_until_;  // by time: when the call that begins then is done
  Owners owners_;
  std::string wrong_;
  int asked_ = -1;                     // the call that may_ is of
  std::set<std::pair<int, int>> may_;  // (output, operand) that it may write over
};

}  // namespace

std::string spoiled_read(const Scheme& scheme, const Plan& plan) {
  return Checker(scheme, plan).run();
}

}  // namespace adjoint

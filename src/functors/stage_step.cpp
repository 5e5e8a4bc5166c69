// A pipelined step is one flat scheme per rank. The prologue is what the rank needs of it. The body
// is instantiated once per slot of the rank's list: a forward slot has the calls that wait for no
// gradient, a backward slot the others, and a weight slot those of them that give nothing but
// gradients of parameters (stage_work.h). What another rank makes is received, one message per
// object, and what another rank reads is sent; messages between two ranks are received in the order
// in which they are sent, each a slot before it is read, so that it travels beside the work.
// Accumulators pass from part to part in the order of the list. In the epilogue what belongs to a
// stage is made there, and what belongs to none by every rank that needs it (stage_needs.h);
// numbers that cross are sent in rounds.
#include "functors/stage_step.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "functors/stage_needs.h"
#include "functors/stage_schedule.h"
#include "ops/op_def.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

class StageStep {
 public:
  StageStep(const StageWork& whole, const StageNeeds& needs, int rank)
      : whole_(whole),
        needs_(needs),
        scheme_(whole.scheme),
        rank_(rank),
        ranks_(whole.schedule.ranks),
        result_{.name = scheme_.name,
                .mesh = scheme_.mesh,
                .schedule = scheme_.schedule,
                .chunks = scheme_.chunks} {}

  Scheme run() {
    find_calls_of_slots();
    find_messages();
    const std::vector<Slot>& list = whole_.schedule.lists[rank_];
    for (size_t i = 0; i < list.size(); ++i) {
      slot_ = static_cast<int>(i) + 1;
      // What the next slot reads travels beside this one.
      if (i == 0) receive_for(list[0]);
      if (i + 1 < list.size()) receive_for(list[i + 1]);
      run_slot(list[i]);
    }
    name_sums();
    find_answers();
    run_epilogue();
    for (std::vector<Morphism>& section : sections_) {
      std::move(section.begin(), section.end(), std::back_inserter(result_.morphisms));
    }
    order_inputs();
    return std::move(result_);
  }

 private:
  using Instance = std::pair<Value, int>;  // an object of the whole step, in one part

  std::vector<Morphism>& section(Section s) { return sections_[static_cast<size_t>(s)]; }
  int parts() const { return whole_.schedule.parts; }

  // ---- which calls, which messages ----

  void find_calls_of_slots() {
    apart_ = weights_apart(whole_.schedule);
    calls_of_.resize(whole_.schedule.chunks);
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      if (whole_.chunk[i] < 0) continue;
      CallsOfChunk& calls = calls_of_[whole_.chunk[i]];
      const auto call = static_cast<int>(i);
      const Work work = whole_.work[i];
      if (work == Work::kForward) calls.forward.push_back(call);
      if (work == Work::kBackward) calls.backward.push_back(call);
      if (work == Work::kWeight) calls.weight.push_back(call);
      if (work != Work::kForward) calls.backward_with_weights.push_back(call);
    }
  }
  const std::vector<int>& calls_of(const Slot& slot) const {
    const CallsOfChunk& calls = calls_of_[slot.chunk];
    if (slot.kind == SlotKind::kForward) return calls.forward;
    if (slot.kind == SlotKind::kWeight) return calls.weight;
    return apart_.count({slot.part, slot.chunk}) ? calls.backward : calls.backward_with_weights;
  }

  // What others send to this rank, in the order in which they do.
  void find_messages() {
    coming_.resize(ranks_);
    for (int from = 0; from < ranks_; ++from) {
      if (from == rank_) continue;
      int number = 0;
      for (const Slot& slot : whole_.schedule.lists[from]) {
        ++number;
        for (const int i : calls_of(slot)) {
          for (const Value out : scheme_.morphisms[i].outputs) {
            const auto found = whole_.to.find(out);
            if (found == whole_.to.end() || !found->second.count(rank_)) continue;
            coming_[from].push_back({{out, slot.part}, number});
          }
        }
      }
    }
  }

  // ---- objects ----

  Object like(Value v, int part) const {
    Object object = scheme_[v];
    object.attributes.parts = 1;
    if (part >= 0 && part + 1 < parts()) {
      object.source = with_facet(object.source, "part" + std::to_string(part));
    }
    return object;
  }

  Value input(Value v) {
    const auto [found, fresh] = inputs_.emplace(v, -1);
    if (fresh) {
      found->second = result_.add(held(v));
    }
    return found->second;
  }
  // Of an input's stages the first one saves it.
  Object held(Value v) const {
    Object object = scheme_[v];
    object.attributes.parts = 1;
    const auto first = needs_.first_holder.find(v);
    object.attributes.stage = first == needs_.first_holder.end() ? 1 : first->second + 1;
    return object;
  }

  // An object as the prologue leaves it.
  Value before_body(Value v) {
    const int maker = whole_.made_by[v];
    if (maker < 0) return input(v);
    const auto found = before_.find(v);
    if (found != before_.end()) return found->second;
    Morphism m = scheme_.morphisms[maker];
    CHECK(m.section == Section::kPrologue, "made before the body: " + to_string(m.source));
    for (Value& in : m.inputs) in = before_body(in);
    map_after(m, [&](Value a) {
      const auto known = before_.find(a);
      return known == before_.end() ? -1 : known->second;
    });
    for (Value& out : m.outputs) {
      const Value original = out;
      out = before_[original] = result_.add(like(original, -1));
    }
    section(Section::kPrologue).push_back(std::move(m));
    return before_.at(v);
  }

  template <class F>
  static void map_after(Morphism& m, const F& mapped) {
    std::vector<Value> known;
    for (const Value a : m.after) {
      if (const Value v = mapped(a); v >= 0) known.push_back(v);
    }
    m.after = std::move(known);
  }

  bool is_anywhere(Value v) const {
    const int maker = whole_.made_by[v];
    return maker >= 0 && scheme_.morphisms[maker].section == Section::kBody &&
           whole_.chunk[maker] < 0;
  }

  // An object as a call of the body finds it in a part.
  Value in_part(Value v, int part) {
    const Value out = whole_.loop_out[v];
    if (out >= 0 && !whole_.in_body(v)) {  // what an iteration before left
      if (is_anywhere(out)) return part == 0 ? before_body(v) : in_part(out, part - 1);
      const auto [grown, fresh] = grown_.emplace(v, -1);
      if (fresh) grown->second = before_body(v);
      return grown->second;
    }
    if (!whole_.in_body(v)) return before_body(v);
    const auto found = made_.find({v, part});
    if (found != made_.end()) return found->second;
    CHECK(is_anywhere(v), "made or received before it is read: " + to_string(scheme_[v].source));
    add_call(whole_.made_by[v], part);
    return made_.at({v, part});
  }

  void add_call(int i, int part) {
    Morphism m = scheme_.morphisms[i];
    for (Value& in : m.inputs) in = in_part(in, part);
    map_after(m, [&](Value a) -> Value {
      const auto known = made_.find({a, part});
      return known == made_.end() ? -1 : known->second;
    });
    m.slot = slot_;
    for (Value& out : m.outputs) {
      const Value original = out;
      out = made_[{original, part}] = result_.add(like(original, part));
      const Value begin = whole_.loop_in[original];
      if (begin >= 0 && whole_.chunk[i] >= 0) grown_[begin] = out;
    }
    section(Section::kBody).push_back(std::move(m));
  }

  void run_slot(const Slot& slot) {
    for (const int i : calls_of(slot)) {
      add_call(i, slot.part);
      for (const Value out : scheme_.morphisms[i].outputs) {
        const auto found = whole_.to.find(out);
        if (found == whole_.to.end()) continue;
        for (const int to : found->second) {
          sent_.push_back({.to = to,
                           .what = {out, slot.part},
                           .slot = slot_,
                           .call = section(Section::kBody).size()});
          send(to, {made_.at({out, slot.part})}, scheme_[out], Section::kBody);
        }
      }
    }
  }

  // An object of the whole step is what the last part makes of it. Of a sum that is what the part
  // makes that comes last in the list.
  void name_sums() {
    for (const auto& [begin, last] : grown_) {
      const Value sum = whole_.loop_out[begin];
      const auto of_last_part = made_.find({sum, parts() - 1});
      if (of_last_part == made_.end() || of_last_part->second == last) continue;
      result_[of_last_part->second].source =
          with_facet(scheme_[sum].source, "part" + std::to_string(parts() - 1));
      result_[last].source = scheme_[sum].source;
    }
  }

  // ---- messages ----

  Attrs message(const char* direction, int other) const {
    return {{"mesh", std::string(kStageAxis)},
            {"ranks", static_cast<int64_t>(ranks_)},
            {direction, static_cast<int64_t>(other)}};
  }

  void send(int to, std::vector<Value> what, const Object& first, Section where) {
    Object token{.type = {Dtype::kF32, {}},
                 .source = with_facet(first.source, "sent"),
                 .role = Role::kControl};
    const Value sent = result_.add(std::move(token));
    Morphism m{.op = "send",
               .inputs = std::move(what),
               .outputs = {sent},
               .attrs = message("to", to),
               .source = with_facet(first.source, "send"),
               .phase = where == Section::kEpilogue ? Phase::kUpdate : phase_now_,
               .section = where,
               .slot = slot_};
    const auto [before, is_first] = last_sent_.emplace(to, sent);
    if (!is_first) m.after.push_back(before->second);
    before->second = sent;
    section(where).push_back(std::move(m));
  }

  std::vector<Value> receive(int from, const std::vector<Object>& what, Section where) {
    Attrs attrs = message("from", from);
    std::vector<int64_t> shape;
    for (const Axis& axis : what[0].type.axes) shape.push_back(axis.size);
    attrs["shape"] = shape;
    attrs["dtype"] = std::string(name(what[0].type.dtype));
    if (what.size() > 1) attrs["count"] = static_cast<int64_t>(what.size());
    Morphism m{.op = "receive",
               .attrs = std::move(attrs),
               .source = with_facet(what[0].source, "receive"),
               .phase = where == Section::kEpilogue ? Phase::kUpdate : phase_now_,
               .section = where,
               .slot = slot_};
    for (const Object& object : what) m.outputs.push_back(result_.add(object));
    const auto [before, is_first] = last_received_.emplace(from, m.outputs[0]);
    if (!is_first) m.after.push_back(before->second);
    before->second = m.outputs[0];
    const std::vector<Value> received = m.outputs;
    section(where).push_back(std::move(m));
    return received;
  }

  // What the calls of a slot read of other ranks, and whatever these send before it.
  void receive_for(const Slot& slot) {
    for (const int i : calls_of(slot)) {
      phase_now_ = scheme_.morphisms[i].phase;
      for (const Value in : scheme_.morphisms[i].inputs) {
        const int from = whole_.home_of(in);
        if (from < 0 || from == rank_ || !whole_.in_body(in)) continue;
        if (made_.count({in, slot.part})) continue;
        while (!made_.count({in, slot.part})) {
          CHECK(!coming_[from].empty(), "sent before it is read: " + to_string(scheme_[in].source));
          const auto [what, sent_in] = coming_[from].front();
          coming_[from].pop_front();
          received_.push_back(
              {.from = from, .sent_in = sent_in, .call = section(Section::kBody).size()});
          made_[what] = receive(from, {like(what.first, what.second)}, Section::kBody)[0];
        }
      }
    }
  }

  // A rank that sends after the slot in which it reads a message has got it: whoever reads what it
  // sends need not wait for the message any more. So nobody ever waits for a rank to receive, and
  // bytes that were sent are free again when an answer is there.
  void find_answers() {
    std::vector<std::map<Instance, int>> read_in(ranks_);  // by others, of what this rank makes
    for (int other = 0; other < ranks_; ++other) {
      if (other == rank_) continue;
      int number = 0;
      for (const Slot& slot : whole_.schedule.lists[other]) {
        ++number;
        for (const int i : calls_of(slot)) {
          for (const Value in : scheme_.morphisms[i].inputs) {
            if (whole_.in_body(in) && whole_.home_of(in) == rank_) {
              read_in[other].emplace(Instance{in, slot.part}, number);
            }
          }
        }
      }
    }
    std::vector<Morphism>& calls = section(Section::kBody);
    std::map<Value, int> first_read;  // the slot of this rank that reads what it received
    for (const Morphism& m : calls) {
      for (const Value in : m.inputs) first_read.emplace(in, m.slot);
    }
    std::map<int, std::vector<const Received*>> from;
    for (const Received& r : received_) from[r.from].push_back(&r);
    int64_t number = 0;
    for (const Sent& s : sent_) {
      const auto read = read_in[s.to].find(s.what);
      if (read == read_in[s.to].end()) continue;
      // They come in the order in which they were sent.
      const std::vector<const Received*>& all = from[s.to];
      auto answer = std::lower_bound(all.begin(), all.end(), read->second,
                                     [](const Received* r, int slot) { return r->sent_in < slot; });
      const auto is_late = [&](const Received* r) {
        const auto at = first_read.find(calls[r->call].outputs[0]);
        return at != first_read.end() && at->second > s.slot;
      };
      while (answer != all.end() && !is_late(*answer)) ++answer;
      if (answer == all.end()) continue;
      calls[s.call].attrs["message"] = number;
      Attr& answers = calls[(*answer)->call].attrs["answers"];
      if (!std::holds_alternative<std::vector<int64_t>>(answers)) answers = std::vector<int64_t>{};
      std::get<std::vector<int64_t>>(answers).push_back(number++);
    }
  }

  // ---- after the body ----

  Value at_end(Value v) {
    const auto found = after_.find(v);
    if (found != after_.end()) return found->second;
    if (whole_.in_body(v)) {
      const Value begin = whole_.loop_in[v];
      if (begin >= 0 && !is_anywhere(v)) return grown_.at(begin);
      return in_part(v, parts() - 1);
    }
    CHECK(
        whole_.made_by[v] < 0 || scheme_.morphisms[whole_.made_by[v]].section == Section::kPrologue,
        "made before it is read: " + to_string(scheme_[v].source));
    return before_body(v);
  }

  void run_epilogue() {
    // What may be made anywhere and ends in the epilogue is made in the last slot.
    const std::vector<bool>& makes = needs_.of_rank[rank_].calls;
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      if (!makes[i] || whole_.work[i] != Work::kAfter) continue;
      for (const Value in : scheme_.morphisms[i].inputs) {
        if (is_anywhere(in)) in_part(in, parts() - 1);
      }
    }
    int levels = 0;
    for (const int level : needs_.level) levels = std::max(levels, level + 1);
    for (int level = 0; level < levels; ++level) {
      slot_ = 2 * level;
      for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
        if (!makes[i] || whole_.work[i] != Work::kAfter) continue;
        if (needs_.level[scheme_.morphisms[i].outputs[0]] == level) add_after(static_cast<int>(i));
      }
      slot_ = 2 * level + 1;
      exchange(level);
    }
    for (const Value out : scheme_.outputs) result_.outputs.push_back(at_end(out));
    for (const Value in : needs_.asked[rank_]) input(in);  // though no call may read it
    for (const Carry& c : scheme_.carries) {
      const auto held = inputs_.find(c.in);
      if (held != inputs_.end()) result_.carries.push_back({held->second, at_end(c.out)});
    }
  }

  void add_after(int i) {
    Morphism m = scheme_.morphisms[i];
    for (Value& in : m.inputs) in = at_end(in);
    map_after(m, [&](Value a) -> Value {
      const auto known = after_.find(a);
      return known == after_.end() ? -1 : known->second;
    });
    m.slot = slot_;
    for (Value& out : m.outputs) {
      const Value original = out;
      out = after_[original] = result_.add(like(original, -1));
    }
    section(Section::kEpilogue).push_back(std::move(m));
  }

  // Objects of one level that a rank needs of another, those of one type together.
  std::vector<std::vector<Value>> bundles(int from, int to, int level) const {
    std::vector<std::vector<Value>> all;
    std::map<std::pair<Dtype, std::vector<int64_t>>, size_t> of_type;
    for (const Value v : needs_.of_rank[to].from_others) {
      if (whole_.home_of(v) != from || needs_.level[v] != level) continue;
      std::vector<int64_t> shape;
      for (const Axis& axis : scheme_[v].type.axes) shape.push_back(axis.size);
      const bool number = shape.empty();
      const auto [found, fresh] =
          of_type.emplace(std::pair{scheme_[v].type.dtype, std::move(shape)}, all.size());
      if (fresh || !number) {  // large objects travel from where they lie
        if (!fresh) found->second = all.size();
        all.emplace_back();
      }
      all[found->second].push_back(v);
    }
    return all;
  }

  void exchange(int level) {
    for (int other = 0; other < ranks_; ++other) {
      if (other == rank_) continue;
      for (const std::vector<Value>& bundle : bundles(rank_, other, level)) {
        std::vector<Value> what;
        for (const Value v : bundle) what.push_back(at_end(v));
        send(other, std::move(what), scheme_[bundle[0]], Section::kEpilogue);
      }
    }
    for (int other = 0; other < ranks_; ++other) {
      if (other == rank_) continue;
      for (const std::vector<Value>& bundle : bundles(other, rank_, level)) {
        std::vector<Object> what;
        for (const Value v : bundle) what.push_back(like(v, -1));
        const std::vector<Value> received = receive(other, what, Section::kEpilogue);
        for (size_t k = 0; k < bundle.size(); ++k) after_[bundle[k]] = received[k];
      }
    }
  }

  // As in the whole step.
  void order_inputs() {
    for (const Value in : scheme_.inputs) {
      const auto held = inputs_.find(in);
      if (held != inputs_.end()) result_.inputs.push_back(held->second);
      const Role role = scheme_[in].role;
      if (role == Role::kParameter || role == Role::kState) {
        CHECK(scheme_.carries.empty() || needs_.first_holder.count(in),
              "a rank keeps it: " + to_string(scheme_[in].source));
        result_.of_all_stages.push_back(this->held(in));
      }
    }
  }

  const StageWork& whole_;
  const StageNeeds& needs_;
  const Scheme& scheme_;
  int rank_, ranks_, slot_ = 0;
  Phase phase_now_ = Phase::kForward;
  Scheme result_;
  std::array<std::vector<Morphism>, 3> sections_ = {};
  std::set<std::pair<int, int>> apart_;  // parts and chunks that have a slot for their weights
  struct CallsOfChunk {
    std::vector<int> forward, backward, weight, backward_with_weights;
  };
  std::vector<CallsOfChunk> calls_of_;
  // Per rank: what it sends to this one, and the number of the slot in which it does.
  std::vector<std::deque<std::pair<Instance, int>>> coming_;
  std::map<Value, Value> inputs_, before_, after_;
  std::map<Instance, Value> made_;
  std::map<Value, Value> grown_;  // by its value before the body: an accumulator as it is now
  std::map<int, Value> last_sent_, last_received_;
  struct Sent {
    int to;
    Instance what;
    int slot;
    size_t call;  // its place in the body
  };
  struct Received {
    int from, sent_in;
    size_t call;
  };
  std::vector<Sent> sent_;
  std::vector<Received> received_;
};

}  // namespace

Scheme step_of_stage(const Scheme& whole, int stage) {
  if (!has_stages(whole)) return whole;
  const StageWork work(whole);
  Scheme step = StageStep(work, StageNeeds(work), stage).run();
  verify(step);
  return step;
}

std::vector<Scheme> steps_of_stages(const Scheme& whole) {
  if (!has_stages(whole)) return {whole};
  std::vector<Scheme> steps;
  const StageWork work(whole);
  const StageNeeds needs(work);
  for (int stage = 0; stage < work.schedule.ranks; ++stage) {
    steps.push_back(StageStep(work, needs, stage).run());
    verify(steps.back());
  }
  return steps;
}

}  // namespace adjoint

// An object in the host tier  ->  a copy on the device only where it is read:
//   an activation is sent when it is made and fetched for the backward's readers;
//   a parameter is fetched for each block that reads it, in each phase, and freed after it;
//   parameters and state that an update writes are sent back to the host.
// A fetch is placed one block before its reader and waits for what enters that earlier block, so
// that it overlaps with arithmetic but does not run sooner. Trades traffic for device memory; the
// numbers stay the same.
#include <algorithm>
#include <map>

#include "analysis/structure.h"
#include "functors/phases.h"
#include "functors/stretch_inputs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr int kBefore = -1, kAfter = -2;  // the chain

// Consecutive morphisms of one section, phase and block; what is before and after the chain counts
// as a block, too.
struct Stretch {
  int first;  // morphism
  Section section;
  Phase phase;
  int block;
};
struct Stretches {
  std::vector<Stretch> all;
  std::vector<int> of;  // per morphism

  bool is_behind_chain(int i) const {
    const auto in_chain = [](const Stretch& s) { return s.block >= 0; };
    return all[of[i]].block == kAfter && std::any_of(all.begin(), all.end(), in_chain);
  }

  // The place of a fetch that is to begin one stretch before morphism i.
  int ahead_of(int i) const {
    const Stretch& own = all[of[i]];
    if (of[i] == 0) return own.first;
    const Stretch& before = all[of[i] - 1];
    const bool same = before.section == own.section && before.phase == own.phase;
    return same ? before.first : own.first;
  }
};

Stretches find_stretches(const Scheme& scheme) {
  const std::vector<int> block_of = find_chain(scheme).block_of_morphism;
  std::map<std::pair<Section, Phase>, int> last;  // of the chain
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    if (block_of[i] >= 0) last[{m.section, m.phase}] = static_cast<int>(i);
  }
  Stretches stretches;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    const int at = static_cast<int>(i);
    const Stretch* open = stretches.all.empty() ? nullptr : &stretches.all.back();
    const bool goes_on = open && open->section == m.section && open->phase == m.phase;
    int block = block_of[i];
    // A morphism of no block, such as a constant, belongs to the stretch around it.
    if (block < 0) block = goes_on ? open->block : kBefore;
    const auto end = last.find({m.section, m.phase});
    if (end == last.end() || at > end->second) block = kAfter;
    if (!goes_on || open->block != block) stretches.all.push_back({at, m.section, m.phase, block});
    stretches.of.push_back(static_cast<int>(stretches.all.size()) - 1);
  }
  return stretches;
}

class Tiering {
 public:
  explicit Tiering(const Scheme& scheme)
      : before_(scheme),
        result_(scheme),
        made_by_(producers(scheme)),
        stretches_(find_stretches(scheme)),
        host_copy_(scheme.objects.size(), -1),
        goes_out_(scheme.objects.size(), false),
        lives_out_(scheme.objects.size(), false),
        sees_out_(scheme.objects.size(), -1),
        inserted_(scheme.morphisms.size() + 1) {
    find_host_objects();
    find_updates();
  }

  Scheme run() {
    // Readers of an object in the host tier read a copy on the device.
    for (size_t i = 0; i < before_.morphisms.size(); ++i) {
      for (Value& in : result_.morphisms[i].inputs) in = local(in, static_cast<int>(i));
    }
    for (Carry& c : result_.carries) {
      if (lives_out_[c.in]) c.out = send_back(c);
    }
    std::vector<Morphism> own = std::move(result_.morphisms);
    result_.morphisms.clear();
    for (size_t i = 0; i < inserted_.size(); ++i) {
      for (Morphism& m : inserted_[i]) result_.morphisms.push_back(std::move(m));
      if (i < own.size()) result_.morphisms.push_back(std::move(own[i]));
    }
    return without_dead(std::move(result_));
  }

 private:
  void find_host_objects() {
    std::vector<bool> stays(before_.objects.size(), false);
    for (const std::vector<Carry>* carries : {&before_.carries, &before_.loop}) {
      for (const Carry& c : *carries) stays[c.in] = stays[c.out] = true;
    }
    for (size_t v = 0; v < before_.objects.size(); ++v) {
      const bool said = before_.objects[v].attributes.tier == Tier::kHost;
      // What the forward makes after the last block is read first in the backward, so it stays.
      goes_out_[v] = said && made_by_[v] >= 0 && !stays[v] &&
                     before_.morphisms[made_by_[v]].phase == Phase::kForward &&
                     !stretches_.is_behind_chain(made_by_[v]);
      result_.objects[v].attributes.tier = Tier::kDevice;
    }
    for (const Value in : before_.inputs) {
      const Role role = before_[in].role;
      lives_out_[in] = before_[in].attributes.tier == Tier::kHost &&
                       (role == Role::kParameter || role == Role::kState);
      if (lives_out_[in]) result_[in].attributes.tier = Tier::kHost;
    }
    // A view of an activation moves with it; a view of a parameter is made anew from each copy.
    for (size_t i = 0; i < before_.morphisms.size(); ++i) {
      const Morphism& m = before_.morphisms[i];
      if (m.phase != Phase::kForward || !op_named(m.op).view) continue;
      const Value of = m.inputs[0], out = m.outputs[0];
      if (goes_out_[of]) goes_out_[out] = true;
      if (lives_out_[of] || sees_out_[of] >= 0) sees_out_[out] = static_cast<int>(i);
    }
  }

  // Updates that read objects in the host tier, in order, and the last gradient that each waits
  // for.
  void find_updates() {
    std::vector<int> gradient(before_.objects.size(), -1);  // last morphism of the backward
    for (size_t i = 0; i < before_.morphisms.size(); ++i) {
      const Morphism& m = before_.morphisms[i];
      const int at = static_cast<int>(i);
      int waits_for = m.phase == Phase::kBackward ? at : -1;
      bool reads_host = false;
      for (const Value in : m.inputs) {
        waits_for = std::max(waits_for, gradient[in]);
        reads_host = reads_host || lives_out_[in] || goes_out_[in];
      }
      for (const Value out : m.outputs) gradient[out] = waits_for;
      if (m.phase != Phase::kUpdate || !reads_host) continue;
      previous_update_[at] = updates_.empty() ? at : updates_.rbegin()->first;
      updates_[at] = waits_for;
      last_gradient_ = std::max(last_gradient_, waits_for);
    }
  }

  // What morphism i reads in place of v.
  Value local(Value v, int i) {
    if (v >= static_cast<Value>(before_.objects.size())) return v;
    const Morphism& m = before_.morphisms[i];
    if (lives_out_[v]) return fetched(v, v, i);
    if (goes_out_[v] && m.phase != Phase::kForward) return fetched(v, sent_out(v), i);
    if (sees_out_[v] < 0 || stretches_.of[i] == stretches_.of[sees_out_[v]]) return v;
    const auto [found, fresh] = copies_.try_emplace({v, stretches_.of[i]}, -1);
    if (!fresh) return found->second;
    Morphism view = before_.morphisms[sees_out_[v]];
    const Value of = local(view.inputs[0], i);
    return copies_[{v, stretches_.of[i]}] = insert(i, view, of, view.outputs[0], m);
  }

  // Inserts a morphism like `m` before `place`, for `reader`: its operand is `in`, and its result
  // is like `made`.
  Value insert(int place, Morphism m, Value in, Value made, const Morphism& reader) {
    m.inputs[0] = in;
    m.phase = reader.phase;
    m.section = reader.section;
    Object object = before_[made];
    object.attributes.tier = Tier::kDevice;
    object.init.reset();
    const int nth = ++num_copies_[{made, reader.phase}];
    const std::string which = nth > 1 ? "." + std::to_string(nth) : "";
    object.source = with_facet(object.source, "fetched." + std::string(name(reader.phase)) + which);
    m.source = object.source;
    m.outputs = {result_.add(std::move(object))};
    inserted_[place].push_back(m);
    return m.outputs[0];
  }

  // The device's copy of v, whose host copy is `host`, for reader i and others in its stretch.
  Value fetched(Value v, Value host, int i) {
    const Morphism& reader = before_.morphisms[i];
    const bool update = reader.phase == Phase::kUpdate;
    const auto [found, fresh] = copies_.try_emplace({v, update ? -1 : stretches_.of[i]}, -1);
    if (!fresh) return found->second;
    Morphism move{.op = "move", .inputs = {host}, .attrs = {{"tier", std::string("device")}}};
    const int place = update ? place_for_update(i, move.after) : place_ahead(v, i, move.after);
    return found->second = insert(place, move, host, v, reader);
  }

  int place_ahead(Value v, int i, std::vector<Value>& after) const {
    const int place = std::max(stretches_.ahead_of(i), made_by_[v] + 1);
    after = stretch_inputs(before_, made_by_, place);
    if (after.empty() && place > 0) {
      const Morphism& previous = before_.morphisms[place - 1];
      if (previous.section == before_.morphisms[i].section) after = {previous.outputs[0]};
    }
    return place;
  }

  // An update frees its gradient, so the state is fetched as soon as the gradient exists. Where the
  // update waits for all gradients (clipping, sums over parts), the state is fetched one update
  // ahead.
  int place_for_update(int i, std::vector<Value>& after) const {
    const int gradient = updates_.at(i);
    const Section section = before_.morphisms[i].section;
    if (gradient >= 0 && gradient < last_gradient_ &&
        before_.morphisms[gradient].section == section) {
      after = {before_.morphisms[gradient].outputs[0]};
      return gradient + 1;
    }
    const int previous = previous_update_.at(i);
    const int place = before_.morphisms[previous].section == section ? previous : i;
    for (const Value in : before_.morphisms[i].inputs) {
      const int maker = made_by_[in];
      if (maker < 0 || maker >= place) continue;
      if (before_.morphisms[maker].phase != Phase::kForward) after.push_back(in);
    }
    return place;
  }

  // The host's copy of an activation, sent right after it is made.
  Value sent_out(Value v) {
    if (host_copy_[v] >= 0) return host_copy_[v];
    const Morphism& maker = before_.morphisms[made_by_[v]];
    Object object = before_[v];
    object.source = with_facet(object.source, "host");
    object.attributes.tier = Tier::kHost;
    const Source source = object.source;
    host_copy_[v] = result_.add(std::move(object));
    send(v, host_copy_[v], source, maker, made_by_[v]);
    return host_copy_[v];
  }

  // Sends updated state back to the host, under the state's own name.
  Value send_back(const Carry& c) {
    Object object = before_[c.out];
    object.attributes.tier = Tier::kHost;
    result_[c.out].source = with_facet(object.source, "device");
    const Source source = object.source;
    const Value out = result_.add(std::move(object));
    send(c.out, out, source, before_.morphisms[made_by_[c.out]], made_by_[c.out]);
    return out;
  }

  void send(Value from, Value to, const Source& source, const Morphism& maker, int at) {
    auto& place = inserted_[at + 1];
    place.insert(place.begin(), {.op = "move",
                                 .inputs = {from},
                                 .outputs = {to},
                                 .attrs = {{"tier", std::string("host")}},
                                 .source = source,
                                 .phase = maker.phase,
                                 .section = maker.section});
  }

  const Scheme& before_;
  Scheme result_;
  std::vector<int> made_by_;
  Stretches stretches_;
  std::vector<Value> host_copy_;                 // of activations
  std::vector<bool> goes_out_;                   // an activation, between forward and backward
  std::vector<bool> lives_out_;                  // a parameter or a state
  std::vector<int> sees_out_;                    // the morphism that views such a one, or -1
  std::vector<std::vector<Morphism>> inserted_;  // before each morphism, and at the end
  std::map<int, int> updates_, previous_update_;
  int last_gradient_ = -1;
  std::map<std::pair<Value, int>, Value> copies_;  // per object and stretch; -1: all updates
  std::map<std::pair<Value, Phase>, int> num_copies_;
};

}  // namespace

Scheme realize_tier(Scheme scheme) {
  const bool any = std::any_of(scheme.objects.begin(), scheme.objects.end(),
                               [](const Object& o) { return o.attributes.tier == Tier::kHost; });
  if (!any) return scheme;
  return Tiering(scheme).run();
}

}  // namespace adjoint

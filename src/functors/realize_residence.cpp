// y marked recomputed, read by the backward  ->  y is freed in the forward, and every epoch that
// reads y recomputes it, from kept objects and from what the same epoch has recomputed. An epoch is
// the backward of one segment of the chain; segments end at states that are kept or recomputed
// apart. Other objects that are recomputed apart are recomputed twice: for the rest of their
// segment, and in an inner epoch when a block's backward reads them. Trades time for memory: each
// epoch repeats the forward of its segment, or parts of it.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "analysis/structure.h"
#include "base/error.h"
#include "functors/phases.h"
#include "functors/stretch_inputs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr std::string_view kEpoch = "epoch";  // and its number: what copies are called

// Per object: whether it is recomputed. Routing choices are saved and state is written once, so
// only pure and random ops are repeated; a random op draws the same bits.
std::vector<bool> repeated_objects(const Scheme& scheme) {
  const std::vector<bool> stays = returned_or_carried(scheme);
  std::vector<bool> repeated(scheme.objects.size(), false);
  for (const Morphism& m : scheme.morphisms) {
    if (m.phase != Phase::kForward) continue;
    const OpDef& def = op_named(m.op);
    if (def.effect != Effect::kPure && def.effect != Effect::kRandom) continue;
    for (const Value out : m.outputs) {
      const Residence residence = scheme[out].attributes.residence;
      const bool said = residence == Residence::kRecomputed || residence == Residence::kApart;
      // A view of a recomputed object is recomputed with it, because it would keep the object
      // alive.
      const bool follows = def.view && residence == Residence::kUnsaid && repeated[m.inputs[0]];
      repeated[out] = (said || follows) && !stays[out];
    }
  }
  return repeated;
}

// The segment of the forward that a morphism belongs to, or whose gradient it computes: the number
// of segment ends before it.
class Segments {
 public:
  Segments(const Scheme& scheme, const std::vector<bool>& repeated) {
    const std::vector<bool> ends = segment_ends(scheme, repeated);
    std::vector<int> before(scheme.objects.size(), -1);  // segment ends up to here; -1: unknown
    for (const Value in : scheme.inputs) before[in] = ends[in] ? 1 : -1;
    for (const Morphism& m : scheme.morphisms) {
      int segment = largest(before, m.inputs);
      if (m.phase == Phase::kForward) {
        segment = std::max(segment, 0);
        note(m.source.path, segment);
        for (const Value out : m.outputs) {
          note(scheme[out].source.path, segment);
          before[out] = segment + (ends[out] ? 1 : 0);
        }
      } else if (const auto found = by_path_.find(m.source.path); found != by_path_.end()) {
        segment = found->second;  // a gradient has the path of what it is the gradient of
      }
      of_morphism_.push_back(segment);
    }
  }

  int operator[](size_t morphism) const { return of_morphism_[morphism]; }
  int last() const { return *std::max_element(of_morphism_.begin(), of_morphism_.end()); }

 private:
  static std::vector<bool> segment_ends(const Scheme& scheme, const std::vector<bool>& repeated) {
    std::vector<bool> ends(scheme.objects.size(), false);
    for (const Value state : find_chain(scheme).states) {
      ends[state] = !repeated[state] || scheme[state].attributes.residence == Residence::kApart;
    }
    return ends;
  }

  static int largest(const std::vector<int>& before, const std::vector<Value>& values) {
    int most = -1;
    for (const Value v : values) most = std::max(most, before[v]);
    return most;
  }

  void note(const std::string& path, int segment) {
    int& known = by_path_.emplace(path, segment).first->second;
    known = std::max(known, segment);
  }

  std::unordered_map<std::string, int> by_path_;
  std::vector<int> of_morphism_;
};

class Residing {
 public:
  Residing(const Scheme& scheme, std::vector<bool> repeated)
      : before_(scheme),
        repeated_(std::move(repeated)),
        segments_(scheme, repeated_),
        made_by_(producers(scheme)),
        result_(without_morphisms(scheme)) {
    const Chain chain = find_chain(scheme);
    block_of_ = chain.block_of_morphism;
    last_epoch_ = segments_.last() + 1;
    for (size_t v = 0; v < scheme.objects.size(); ++v) {
      apart_.push_back(repeated_[v] && scheme.objects[v].attributes.residence == Residence::kApart);
    }
    for (const Value state : chain.states) apart_[state] = false;
    last_forward_read_.assign(scheme.objects.size(), -1);
    for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
      if (scheme.morphisms[i].phase != Phase::kForward) continue;
      for (const Value in : scheme.morphisms[i].inputs) {
        last_forward_read_[in] = static_cast<int>(i);
      }
    }
  }

  Scheme run() {
    for (size_t i = 0; i < before_.morphisms.size(); ++i) {
      Morphism m = before_.morphisms[i];
      const int segment = segments_[i];
      if (m.phase != Phase::kForward && segment >= 0) {
        begins_.emplace(segment, static_cast<int>(i));
        const Epoch epoch{
            .number = segment + 1, .begins_at = begins_.at(segment), .section = m.section};
        for (Value& in : m.inputs) {
          if (repeated_[in] && !is_there(in, segment))
            in = repeat(in, apart_[in] ? inside(epoch, static_cast<int>(i)) : epoch);
        }
      }
      result_.morphisms.push_back(std::move(m));
    }
    return clones_.empty() ? before_ : without_dead(std::move(result_));
  }

 private:
  // Forward and backward of a readout's chunks alternate. What a forward still reads after the
  // segment's backward has begun is alive anyway, so recomputing it would only cost.
  bool is_there(Value v, int segment) const { return last_forward_read_[v] > begins_.at(segment); }

  struct Epoch {
    int number;
    int begins_at;  // the morphism before which recomputation must not begin
    Section section;
    int around = 0;  // for an inner epoch: the number of the outer one
    int around_begins_at = 0;

    Epoch outer() const {
      return around ? Epoch{.number = around, .begins_at = around_begins_at, .section = section}
                    : *this;
    }
  };
  using Clones = std::unordered_map<int64_t, std::vector<Value>>;  // results of a clone, in order

  // The inner epoch of one block's backward. Each clone waits for the objects that enter the
  // stretch of its first reader.
  Epoch inside(const Epoch& around, int reader) {
    const auto [found, fresh] = inside_.try_emplace({around.number, block_of_[reader]});
    if (fresh) found->second = ++last_epoch_;
    return {.number = found->second,
            .begins_at = reader,
            .section = around.section,
            .around = around.number,
            .around_begins_at = around.begins_at};
  }

  // One clone per morphism, epoch and section.
  int64_t key(int morphism, const Epoch& epoch) const {
    const int64_t place = int64_t{epoch.number} * 3 + static_cast<int>(epoch.section);
    return place * static_cast<int64_t>(before_.morphisms.size()) + morphism;
  }

  // The epoch whose clone of v is read: an inner epoch recomputes only what is apart.
  Epoch home(Value v, const Epoch& epoch) const { return apart_[v] ? epoch : epoch.outer(); }

  // The epoch's clone of v. Clones of whatever it takes to make v are added right before its first
  // reader.
  Value repeat(Value v, const Epoch& epoch) {
    std::vector<std::pair<int, Epoch>> wanted = {{made_by_[v], epoch}}, missing;
    while (!wanted.empty()) {
      const auto [i, where] = wanted.back();
      wanted.pop_back();
      if (!clones_.emplace(key(i, where), std::vector<Value>()).second) continue;
      missing.emplace_back(i, where);
      for (const Value in : before_.morphisms[i].inputs) {
        if (repeated_[in]) wanted.emplace_back(made_by_[in], home(in, where));
      }
    }
    // Clones of the outer epoch come first, because the inner one reads them.
    std::sort(missing.begin(), missing.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.around, a.first) < std::pair(b.second.around, b.first);
    });
    for (const auto& [i, where] : missing) clone(i, where);
    return cloned(v, epoch);
  }

  Value cloned(Value v, const Epoch& epoch) const {
    const std::vector<Value>& outputs = before_.morphisms[made_by_[v]].outputs;
    const auto which = std::find(outputs.begin(), outputs.end(), v) - outputs.begin();
    return clones_.at(key(made_by_[v], epoch))[which];
  }

  void clone(int i, const Epoch& epoch) {
    Morphism m = before_.morphisms[i];
    CHECK(m.section == epoch.section || m.section == Section::kPrologue,
          "what is recomputed is read in the section that makes it: " + to_string(m.source));
    const std::string here = std::string(kEpoch) + std::to_string(epoch.number);
    bool begins = true;  // it reads no other clone of this epoch
    for (Value& in : m.inputs) {
      if (!repeated_[in]) continue;
      const Epoch where = home(in, epoch);
      in = cloned(in, where);
      if (where.number == epoch.number) begins = false;
    }
    for (Value& out : m.outputs) {
      Object object = before_[out];
      object.source = with_facet(object.source, here);
      if (object.role != Role::kParameter) object.role = Role::kActivation;
      object.attributes.residence = Residence::kUnsaid;
      object.attributes.tier = Tier::kDevice;
      out = result_.add(std::move(object));
    }
    m.source = with_facet(m.source, here);
    m.phase = Phase::kBackward;
    m.epoch = epoch.number;
    m.section = epoch.section;
    if (begins) m.after = stretch_inputs(before_, made_by_, epoch.begins_at);
    clones_[key(i, epoch)] = m.outputs;
    result_.morphisms.push_back(std::move(m));
  }

  const Scheme& before_;
  std::vector<bool> repeated_;
  std::vector<bool> apart_;  // per object: recomputed by every block that reads it
  Segments segments_;
  std::vector<int> made_by_, block_of_, last_forward_read_;
  std::unordered_map<int, int> begins_;        // per segment, the first morphism of its backward
  std::map<std::pair<int, int>, int> inside_;  // by outer epoch and block: the inner epoch's number
  int last_epoch_ = 0;
  Clones clones_;
  Scheme result_;
};

bool names_epoch(std::string_view facet) {
  return facet.starts_with(kEpoch) && facet.size() > kEpoch.size() &&
         facet.find_first_not_of("0123456789", kEpoch.size()) == std::string_view::npos;
}

}  // namespace

Source without_epochs(const Source& source) {
  Source result{source.path};
  std::string_view facets = source.facet;
  while (!facets.empty()) {
    const std::string_view facet = facets.substr(0, facets.find('.'));
    if (!names_epoch(facet)) result = with_facet(result, facet);
    facets.remove_prefix(std::min(facets.size(), facet.size() + 1));
  }
  return result;
}

Scheme realize_residence(Scheme scheme) {
  std::vector<bool> repeated = repeated_objects(scheme);
  if (std::none_of(repeated.begin(), repeated.end(), [](bool r) { return r; })) return scheme;
  return Residing(scheme, std::move(repeated)).run();
}

}  // namespace adjoint

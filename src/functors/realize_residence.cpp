// y marked recomputed, read by the backward  ->  every epoch that reads y repeats the op that made
// it, from kept objects and from what the same epoch has repeated, and y dies in the forward.
// An epoch is the backward of one segment of the chain: segments end at states that are kept, or
// that are recomputed apart. Bytes for time: a segment's forward once more, per epoch that needs
// it.
#include <algorithm>
#include <unordered_map>

#include "analysis/structure.h"
#include "base/error.h"
#include "functors/entering.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// Per object: is it computed again? Choices are saved and state is written once, so only pure and
// random ops are repeated; a random one draws the same bits.
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
      // A view lies in what it is a view of, and would keep it.
      const bool follows = def.view && residence == Residence::kUnsaid && repeated[m.inputs[0]];
      repeated[out] = (said || follows) && !stays[out];
    }
  }
  return repeated;
}

// Which segment of the forward a morphism belongs to, or is the gradient of: as many as there are
// segments' ends before it.
class Segments {
 public:
  Segments(const Scheme& scheme, const std::vector<bool>& repeated) {
    const std::vector<bool> ends = segment_ends(scheme, repeated);
    std::vector<int> before(scheme.objects.size(), -1);  // ends up to here; -1: says nothing
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
        segment = found->second;  // a gradient is named after what it is the gradient of
      }
      of_morphism_.push_back(segment);
    }
  }

  int operator[](size_t morphism) const { return of_morphism_[morphism]; }

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
        result_(scheme) {
    result_.morphisms.clear();
  }

  Scheme run() {
    for (size_t i = 0; i < before_.morphisms.size(); ++i) {
      Morphism m = before_.morphisms[i];
      const int segment = segments_[i];
      if (m.phase != Phase::kForward && segment >= 0) {
        begins_.emplace(segment, static_cast<int>(i));
        for (Value& in : m.inputs) {
          if (repeated_[in]) in = repeat(in, segment, m.section);
        }
      }
      result_.morphisms.push_back(std::move(m));
    }
    return clones_.empty() ? before_ : without_dead(result_);
  }

 private:
  using Clones = std::unordered_map<int64_t, std::vector<Value>>;  // results, in order

  // One clone per morphism, epoch and section.
  int64_t key(int morphism, int segment, Section section) const {
    const int64_t place = int64_t{segment} * 3 + static_cast<int>(section);
    return place * static_cast<int64_t>(before_.morphisms.size()) + morphism;
  }

  // The epoch's own v; what it takes to make it is cloned here, right before its first reader.
  Value repeat(Value v, int segment, Section section) {
    std::vector<int> wanted = {made_by_[v]}, missing;
    while (!wanted.empty()) {
      const int i = wanted.back();
      wanted.pop_back();
      if (!clones_.emplace(key(i, segment, section), std::vector<Value>()).second) continue;
      missing.push_back(i);
      for (const Value in : before_.morphisms[i].inputs) {
        if (repeated_[in]) wanted.push_back(made_by_[in]);
      }
    }
    std::sort(missing.begin(), missing.end());
    for (const int i : missing) clone(i, segment, section);
    return cloned(v, segment, section);
  }

  Value cloned(Value v, int segment, Section section) const {
    const std::vector<Value>& outputs = before_.morphisms[made_by_[v]].outputs;
    const auto which = std::find(outputs.begin(), outputs.end(), v) - outputs.begin();
    return clones_.at(key(made_by_[v], segment, section))[which];
  }

  void clone(int i, int segment, Section section) {
    Morphism m = before_.morphisms[i];
    CHECK(m.section == section || m.section == Section::kPrologue,
          "what is recomputed is read in the section that makes it: " + to_string(m.source));
    const int epoch = segment + 1;
    const std::string here = "epoch" + std::to_string(epoch);
    bool begins = true;  // from kept objects alone
    for (Value& in : m.inputs) {
      if (!repeated_[in]) continue;
      in = cloned(in, segment, section);
      begins = false;
    }
    for (Value& out : m.outputs) {
      Object object = before_[out];
      object.source = with_facet(object.source, here);
      object.role = Role::kActivation;
      object.attributes.residence = Residence::kUnsaid;
      object.attributes.tier = Tier::kDevice;
      out = result_.add(std::move(object));
    }
    m.source = with_facet(m.source, here);
    m.phase = Phase::kBackward;
    m.epoch = epoch;
    m.section = section;
    if (begins) m.after = entering(before_, made_by_, begins_.at(segment));
    clones_[key(i, segment, section)] = m.outputs;
    result_.morphisms.push_back(std::move(m));
  }

  const Scheme& before_;
  std::vector<bool> repeated_;
  Segments segments_;
  std::vector<int> made_by_;
  std::unordered_map<int, int> begins_;  // per segment, the first morphism of its backward
  Clones clones_;
  Scheme result_;
};

}  // namespace

Scheme realize_residence(const Scheme& scheme) {
  std::vector<bool> repeated = repeated_objects(scheme);
  if (std::none_of(repeated.begin(), repeated.end(), [](bool r) { return r; })) return scheme;
  return Residing(scheme, std::move(repeated)).run();
}

}  // namespace adjoint

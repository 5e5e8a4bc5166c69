#include "analysis/spread.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

namespace {

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// A sum with an addend says that what it sums over is whole, because every piece would add the
// addend. Of an addend that is itself a term of the sum that is right.
bool is_summed_beside_addend(const OpDef& op, const IndexMap& map, char letter) {
  return has_addend(op, map.inputs.size()) && has(map.whole, letter) &&
         !has(map.outputs[0], letter);
}

// What one axis is called, and what it consists of.
class CallAxes {
 public:
  explicit CallAxes(const OpCall& call)
      : call_(call), op_(op_named(call.op)), map_(index_map_of(call)), uncut_(map_.uncut()) {}

  const OpDef& op() const { return op_; }
  const IndexMap& map() const { return map_; }

  int64_t size(char letter) const {
    for (size_t i = 0; i < map_.inputs.size(); ++i) {
      const size_t axis = map_.inputs[i].find(letter);
      if (axis != std::string::npos) return call_.inputs[i].dim(static_cast<int>(axis));
    }
    for (const LetterSize& known : map_.sizes) {
      if (known.letter == letter) return known.size;
    }
    const std::vector<Type> made = infer_types(call_);
    for (size_t k = 0; k < map_.outputs.size(); ++k) {
      const size_t axis = map_.outputs[k].find(letter);
      if (axis != std::string::npos) return made[k].dim(static_cast<int>(axis));
    }
    CHECK(false, "a letter of " + to_string(map_) + " has a size");
    return 0;
  }

  // The sizes of the segments of a merged axis; none where it has one.
  std::vector<int64_t> segments(const MergedAxis& axis) const {
    if (axis.segments.size() < 2) return {};
    std::vector<int64_t> sizes;
    for (const std::string& segment : axis.segments) {
      int64_t size = 1;
      for (const char c : segment) size *= this->size(c);
      sizes.push_back(size);
    }
    return sizes;
  }

  // Whether ranks may split the work along a letter that stands inside merged axes: each of them
  // then has the first of all that it counts, in every segment.
  bool may_cut_inside(char letter, int64_t ranks) const {
    if (ranks == 0 || has(map_.whole + ".1", letter) || size(letter) % ranks != 0) return false;
    for (const MergedAxis& axis : map_.merged) {
      const bool inside =
          std::any_of(axis.segments.begin(), axis.segments.end(),
                      [&](const std::string& segment) { return has(segment, letter); });
      const bool first =
          std::all_of(axis.segments.begin(), axis.segments.end(),
                      [&](const std::string& segment) { return segment[0] == letter; });
      if (inside && !first) return false;
    }
    return true;
  }

  // The cut that a piece of an axis with this letter leads to.
  std::optional<Cut> cut_along(char letter, const Share& share, const std::vector<int>* beside,
                               int64_t ranks) const {
    if (map_.told == letter && ranks > 0 && share.segments.empty()) return Cut{letter};
    if (letter == '.') {
      return beside && ranks > 0 ? cut_beside(share, *beside, ranks) : std::nullopt;
    }
    if (const MergedAxis* axis = map_.merged_axis(letter)) {
      const char first = axis->segments[0][0];
      if (!may_cut_inside(first, ranks) || share.segments != segments(*axis)) return std::nullopt;
      return Cut{first};
    }
    if (!has(uncut_, letter) || is_summed_beside_addend(op_, map_, letter)) {
      return Cut{letter, share.segments};
    }
    if (!share.segments.empty() || !may_cut_inside(letter, ranks)) return std::nullopt;
    return Cut{letter};
  }

  // Which segments lie along the axes of an operand or a result that are '.'.
  const std::vector<int>* beside_input(size_t i) const {
    return i < map_.beside.inputs.size() ? &map_.beside.inputs[i] : nullptr;
  }
  const std::vector<int>* beside_output(size_t k) const {
    return k < map_.beside.outputs.size() ? &map_.beside.outputs[k] : nullptr;
  }

  // What an operand or result with these letters is, in a call that is cut so.
  Share share(const std::string& letters, const std::vector<int>* beside, const Cut& cut) const {
    for (size_t a = 0; a < letters.size(); ++a) {
      const int axis = static_cast<int>(a);
      if (letters[a] == cut.letter) {
        if (cut.letter != '.' || !beside) return piece_along(axis, cut.segments);
        std::vector<int64_t> segments;
        for (const int number : *beside) {
          segments.insert(segments.end(), cut.within[number].begin(), cut.within[number].end());
        }
        return piece_along(axis, segments.size() > 1 ? segments : std::vector<int64_t>{});
      }
      const MergedAxis* merged = map_.merged_axis(letters[a]);
      if (merged && has(merged->segments[0], cut.letter))
        return piece_along(axis, segments(*merged));
    }
    return kWhole;
  }

 private:
  // A piece of an axis that consists of segments cuts those; the others are cut as they are.
  std::optional<Cut> cut_beside(const Share& share, const std::vector<int>& numbers,
                                int64_t ranks) const {
    const std::vector<int64_t>& sizes = map_.beside.sizes;
    Cut cut{'.', {}, std::vector<std::vector<int64_t>>(sizes.size())};
    std::vector<int64_t> left = share.segments;
    for (const int number : numbers) {
      if (share.segments.empty()) {
        if (numbers.size() > 1) return std::nullopt;
        cut.within[number] = {sizes[number]};
        continue;
      }
      int64_t size = 0;
      while (size < sizes[number] && !left.empty()) {
        size += left.front();
        cut.within[number].push_back(left.front());
        left.erase(left.begin());
      }
      if (size != sizes[number]) return std::nullopt;
    }
    for (size_t n = 0; n < sizes.size(); ++n) {
      if (cut.within[n].empty()) cut.within[n] = {sizes[n]};
      for (const int64_t size : cut.within[n]) {
        if (size % ranks != 0) return std::nullopt;
      }
    }
    return cut;
  }

  const OpCall& call_;
  const OpDef& op_;
  IndexMap map_;
  std::string uncut_;
};

}  // namespace

std::vector<Cut> cuts_of(const OpCall& call, std::span<const Share> comes, int64_t ranks) {
  std::vector<Cut> cuts;
  if (std::none_of(comes.begin(), comes.end(), [](const Share& s) { return s.is_piece(); })) {
    return cuts;
  }
  const CallAxes axes(call);
  for (size_t i = 0; i < comes.size(); ++i) {
    if (!comes[i].is_piece()) continue;
    const char letter = axes.map().inputs[i][comes[i].axis];
    const auto cut = axes.cut_along(letter, comes[i], axes.beside_input(i), ranks);
    if (cut && std::find(cuts.begin(), cuts.end(), *cut) == cuts.end()) cuts.push_back(*cut);
  }
  return cuts;
}

std::optional<Cut> cut_giving(const OpCall& call, size_t k, const Share& share, int64_t ranks) {
  const CallAxes axes(call);
  const std::string& letters = axes.map().outputs[k];
  if (!share.is_piece() || share.axis >= static_cast<int>(letters.size())) return std::nullopt;
  const auto cut = axes.cut_along(letters[share.axis], share, axes.beside_output(k), ranks);
  // A result that is stretched, or made of positions, has no pieces.
  return cut && axes.share(letters, axes.beside_output(k), *cut) == share ? cut : std::nullopt;
}

CallShares shares_along(const OpCall& call, std::span<const Share> comes, size_t results, Cut cut) {
  const auto is_term = [](const Share& s) { return s.is_term(); };
  CallShares shares{.cut = std::move(cut)};
  shares.wants.assign(call.inputs.size(), kWhole);
  if (!shares.cut.letter) {
    const bool terms = !comes.empty() && std::all_of(comes.begin(), comes.end(), is_term) &&
                       is_linear_together(call);
    if (terms) shares.wants.assign(comes.begin(), comes.end());
    shares.gives.assign(results, terms ? kTerm : kWhole);
    return shares;
  }
  const CallAxes axes(call);
  const IndexMap& map = axes.map();
  shares.told = map.told == shares.cut.letter;
  const auto result = [&](size_t k) {
    const Share share = axes.share(map.outputs[k], axes.beside_output(k), shares.cut);
    return share.is_piece() ? share : shares.told && map.told_joins ? kWhole : kTerm;
  };
  const bool summed = result(0).is_term();
  for (size_t i = 0; i < comes.size(); ++i) {
    const bool added = static_cast<int>(i) == axes.op().addend && summed;
    shares.wants[i] = added ? kTerm : axes.share(map.inputs[i], axes.beside_input(i), shares.cut);
  }
  for (size_t k = 0; k < map.outputs.size(); ++k) shares.gives.push_back(result(k));
  return shares;
}

CallShares share_call(const OpCall& call, std::span<const Share> comes, size_t results,
                      int64_t ranks) {
  std::vector<Cut> cuts = cuts_of(call, comes, ranks);
  const bool pieces =
      std::any_of(comes.begin(), comes.end(), [](const Share& s) { return s.is_piece(); });
  if (!cuts.empty()) return shares_along(call, comes, results, std::move(cuts[0]));
  if (!pieces) return shares_along(call, comes, results, {});
  return {.wants = std::vector<Share>(call.inputs.size(), kWhole),
          .gives = std::vector<Share>(results, kWhole)};
}

int64_t size_along(const OpCall& call, char letter) { return CallAxes(call).size(letter); }

void shrink_attrs(const OpCall& call, char letter, int64_t whole, int64_t size, Attrs& attrs) {
  if (const auto shape = attrs.find("shape"); shape != attrs.end() && letter != '.') {
    std::get<std::vector<int64_t>>(shape->second)[letter - 'a'] = size;
  }
  for (const LetterCount& counted : index_map_of(call).counts) {
    const auto attr = attrs.find(counted.attribute);
    if (attr == attrs.end() || !has(counted.letters, letter)) continue;
    auto& count = std::get<int64_t>(attr->second);
    CHECK(count % whole == 0, "an attribute counts what its letters count");
    count = count / whole * size;
  }
}

}  // namespace adjoint

// The chain. What carries the gradient forward (floating, from data and parameters) narrows to one
// object between blocks: such an object is a cut. The pieces between cuts are compared as schemes,
// names and keys apart, and the longest repetition among them is the chain. Linear in the scheme
// but for the comparison of periods, which is quadratic in the number of cuts.
//
// Blocks that differ, every other one with a window say, or that skip past each other, repeat in
// nothing but the text: sources keep the number of each repetition. Where that tells more blocks
// than the pieces do, it is believed.
#include "analysis/structure.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "analysis/totals.h"
#include "base/philox.h"
#include "ops/op_def.h"

namespace adjoint {

std::vector<bool> depends_on_data(const Scheme& scheme) {
  std::vector<bool> from_data(scheme.objects.size(), false);
  for (const Value in : scheme.inputs) {
    const Role role = scheme[in].role;
    from_data[in] = role == Role::kInput || role == Role::kActivation;
  }
  for (const Morphism& m : scheme.morphisms) {
    bool any = false;
    for (const Value in : m.inputs) any = any || from_data[in];
    for (const Value out : m.outputs) from_data[out] = any;
  }
  return from_data;
}

Additions find_additions(const Scheme& scheme) {
  const std::vector<bool> from_data = depends_on_data(scheme);
  Additions found;
  found.is_addition.assign(scheme.morphisms.size(), false);
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    found.stands_for.push_back(static_cast<Value>(v));
  }
  std::unordered_map<std::string_view, Value> made_at;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    if (m.phase != Phase::kForward || !from_data[m.outputs[0]]) continue;
    const std::string_view path = m.source.path;
    for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
      const auto use = made_at.find(path.substr(0, dot));
      if (use == made_at.end()) continue;
      found.is_addition[i] = true;
      for (const Value out : m.outputs) found.stands_for[out] = use->second;
      break;
    }
    if (!found.is_addition[i]) made_at.emplace(path, m.outputs[0]);
  }
  return found;
}

Value before_moves(const Scheme& scheme, const std::vector<int>& made_by, Value v) {
  while (made_by[v] >= 0 && op_named(scheme.morphisms[made_by[v]].op).moves) {
    v = scheme.morphisms[made_by[v]].inputs[0];
  }
  return v;
}

namespace {

// Between two cuts: morphisms [first, last) of the forward ones.
struct Piece {
  size_t first, last;
  uint64_t shape;  // equal for equal pieces
  int64_t weight;  // morphisms
};

class ChainFinder {
 public:
  explicit ChainFinder(const Scheme& scheme) : scheme_(scheme) {
    for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
      if (scheme.morphisms[i].phase == Phase::kForward) forward_.push_back(static_cast<int>(i));
    }
  }

  Chain run() {
    from_data_ = depends_on_data(scheme_);
    carries_ = carriers();
    last_read_.assign(scheme_.objects.size(), 0);
    made_at_.assign(scheme_.objects.size(), 0);
    for (size_t k = 0; k < forward_.size(); ++k) {
      for (const Value in : scheme_.morphisms[forward_[k]].inputs) last_read_[in] = k + 1;
      for (const Value out : scheme_.morphisms[forward_[k]].outputs) made_at_[out] = k + 1;
    }
    additions_ = find_additions(scheme_);
    find_cuts();
    drop_cuts_before_additions();
    Chain chain;
    chain.block_of.assign(scheme_.objects.size(), -1);
    chain.block_of_morphism.assign(scheme_.morphisms.size(), -1);
    std::vector<Cut> found = between_equal_pieces();
    if (std::vector<Cut> told = between_repetitions(); told.size() > found.size()) {
      found = std::move(told);
    }
    if (found.size() < 3) return chain;
    for (const Cut& cut : found) chain.states.push_back(cut.state);
    name_blocks(chain, found);
    return chain;
  }

 private:
  struct Cut {
    Value state;
    size_t at;  // morphisms of the forward pass before it
  };

  // Floating, and on the way from data and parameters to the loss.
  std::vector<bool> carriers() const {
    std::vector<bool> learned(scheme_.objects.size(), false),
        carries(scheme_.objects.size(), false);
    for (const Value in : scheme_.inputs) {
      learned[in] = scheme_[in].role == Role::kParameter;
      carries[in] = from_data_[in] && is_float(scheme_[in].type.dtype);
      learned[in] = learned[in] || carries[in];
    }
    for (const int i : forward_) {
      const Morphism& m = scheme_.morphisms[i];
      bool any = false;
      for (const Value in : m.inputs) any = any || learned[in];
      for (const Value out : m.outputs) {
        learned[out] = any;
        carries[out] = any && from_data_[out] && is_float(scheme_[out].type.dtype);
      }
    }
    return carries;
  }

  std::vector<Cut> between_equal_pieces() {
    std::vector<Cut> found;
    if (cuts_.size() < 3) return found;
    for (size_t k = 0; k + 1 < cuts_.size(); ++k) {
      pieces_.push_back(piece(cuts_[k].at, cuts_[k + 1].at, cuts_[k].state));
    }
    for (const size_t b : block_bounds(0, pieces_.size())) found.push_back(cuts_[b]);
    return found;
  }

  // stage[1].block[0].linear#2: "stage[1]" is what it repeats at depth 1, "stage[1].block[0]" at
  // depth 2, and nothing at depth 3.
  static std::string_view repetition(std::string_view path, int depth) {
    size_t end = 0;
    for (int d = 0; d < depth; ++d) {
      end = path.find(']', end);
      if (end == path.npos) return {};
      ++end;
    }
    return path.substr(0, end);
  }

  // Consecutive morphisms of one repetition: [first, last) of the forward ones.
  struct Stretch {
    std::string_view label;
    size_t first, last;
    int64_t weight;
  };

  std::vector<Stretch> stretches(int depth) const {
    std::vector<Stretch> all;
    for (size_t k = 0; k < forward_.size(); ++k) {
      const Morphism& m = scheme_.morphisms[forward_[k]];
      if (!carries_[m.outputs[0]]) continue;  // constants and counts are nobody's
      std::string_view label;
      for (int d = depth; label.empty() && d > 0; --d) label = repetition(m.source.path, d);
      if (all.empty() || all.back().label != label) all.push_back({label, k, k + 1, 0});
      all.back().last = k + 1;
      ++all.back().weight;
    }
    return all;
  }

  // The heaviest run of stretches that all have a label, at the depth at which most of the text is.
  std::vector<Cut> between_repetitions() const {
    const auto heaviest_run = [](const std::vector<Stretch>& all) {
      std::vector<Stretch> best, run;
      const auto weight = [](const std::vector<Stretch>& some) {
        int64_t sum = 0;
        for (const Stretch& s : some) sum += s.weight;
        return sum;
      };
      for (size_t i = 0; i <= all.size(); ++i) {
        if (i < all.size() && !all[i].label.empty()) {
          run.push_back(all[i]);
        } else {
          if (weight(run) > weight(best)) best = run;
          run.clear();
        }
      }
      return best;
    };
    const auto weight_at = [](const std::vector<Stretch>& run, int depth) {
      int64_t sum = 0;
      for (const Stretch& s : run) {
        sum += std::count(s.label.begin(), s.label.end(), ']') == depth ? s.weight : 0;
      }
      return sum;
    };
    std::vector<Stretch> run = heaviest_run(stretches(1));
    for (int depth = 2; depth <= 4; ++depth) {
      const std::vector<Stretch> inner = heaviest_run(stretches(depth));
      if (2 * weight_at(inner, depth) < weight_at(run, depth - 1)) break;
      run = inner;
    }
    std::vector<Cut> found;
    for (size_t b = 0; b <= run.size() && !run.empty(); ++b) {
      const size_t at = b < run.size() ? run[b].first : run.back().last;
      const size_t next = b < run.size() ? run[b].last : forward_.size();
      const auto state = state_before(at, next);
      if (!state || (!found.empty() && found.back().state == *state)) return {};
      found.push_back({*state, at});
    }
    return found;
  }

  // What was made last of all that is made before `at` and read in [at, next): a block's state, and
  // none of those that skip past it.
  std::optional<Value> state_before(size_t at, size_t next) const {
    std::optional<Value> state;
    const auto is_later = [&](Value v) {  // of those that are made together, the first
      return !state || made_at_[v] > made_at_[*state] ||
             (made_at_[v] == made_at_[*state] && v < *state);
    };
    for (size_t k = at; k < next; ++k) {
      for (const Value in : scheme_.morphisms[forward_[k]].inputs) {
        const bool is_number = made_at_[in] > 0 && scheme_[in].type.rank() == 0;
        if (carries_[in] && made_at_[in] <= at && !is_number && is_later(in)) state = in;
      }
    }
    return state;
  }

  void find_cuts() {
    std::vector<Value> open;
    for (const Value in : scheme_.inputs) {
      if (carries_[in] && last_read_[in] > 0) open.push_back(in);
    }
    const auto note = [&](size_t before) {
      if (open.size() != 1) return;
      if (scheme_[open[0]].type.rank() == 0) return;  // the loss
      if (cuts_.empty() || cuts_.back().state != open[0]) cuts_.push_back({open[0], before});
    };
    note(0);
    for (size_t k = 0; k < forward_.size(); ++k) {
      for (const Value out : scheme_.morphisms[forward_[k]].outputs) {
        if (carries_[out] && last_read_[out] > k + 1) open.push_back(out);
      }
      std::erase_if(open, [&](Value v) { return last_read_[v] <= k + 1; });
      note(k + 1);
    }
  }

  // Where a functor rewrote a state of the chain, what the rewriting gave is the state.
  void drop_cuts_before_additions() {
    for (size_t k = 0; k + 1 < cuts_.size();) {
      bool only_additions = true;
      for (size_t i = cuts_[k].at; i < cuts_[k + 1].at; ++i) {
        const int m = forward_[i];
        const bool constant = !from_data_[scheme_.morphisms[m].outputs[0]];
        only_additions = only_additions && (constant || additions_.is_addition[m]);
      }
      if (only_additions) {
        cuts_.erase(cuts_.begin() + static_cast<int64_t>(k));
      } else {
        ++k;
      }
    }
  }

  // A body's text with its random numbers keyed 0, 1, ...: every block has paths of its own there.
  static std::string without_paths(const std::string& text) {
    Body body = parse_body(text);
    std::unordered_map<std::string, size_t> keys;
    for (ExprNode& node : body.nodes) {
      if (node.kind != ExprKind::kRandom) continue;
      node.text = std::to_string(keys.emplace(node.text, keys.size()).first->second);
    }
    return print(body);
  }

  // What a piece is, with its objects numbered from its beginning.
  Piece piece(size_t first, size_t last, Value entry) const {
    std::unordered_map<Value, int> local = {{additions_.stands_for[entry], 0}};
    std::string text;
    int64_t weight = 0;
    for (size_t k = first; k < last; ++k) {
      const Morphism& m = scheme_.morphisms[forward_[k]];
      if (!from_data_[m.outputs[0]]) continue;  // a constant, which may be made once for all
      if (additions_.is_addition[forward_[k]]) continue;
      ++weight;
      text += m.op;
      for (const auto& [key, attr] : m.attrs) {
        if (key != "key" && key != "body" && !is_bookkeeping(key))
          text += ' ' + key + '=' + to_string(attr);
        if (key == "body") text += " body=" + without_paths(std::get<std::string>(attr));
      }
      for (const Value in : m.inputs) {
        const auto found = local.find(additions_.stands_for[in]);
        text += found != local.end()
                    ? ' ' + std::to_string(found->second)
                    : ' ' + std::string(name(scheme_[in].role)) + to_string(scheme_[in].type);
      }
      for (const Value out : m.outputs) {
        local.emplace(out, static_cast<int>(local.size()));
        text += ' ' + to_string(scheme_[out].type);
      }
      text += '\n';
    }
    return {first, last, stable_hash(text), weight};
  }

  struct Repeat {
    size_t start = 0, period = 0, count = 0;
    int64_t weight = 0;
  };

  int64_t weight_of(size_t first, size_t last) const {
    int64_t sum = 0;
    for (size_t k = first; k < last; ++k) sum += pieces_[k].weight;
    return sum;
  }

  // The repetition that covers the most of pieces [first, last); of equals the shortest period.
  Repeat best_repeat(size_t first, size_t last) const {
    Repeat best;
    for (size_t period = 1; 2 * period <= last - first; ++period) {
      size_t streak = 0;
      for (size_t k = first; k + period <= last; ++k) {
        const bool same = k + period < last && pieces_[k].shape == pieces_[k + period].shape;
        if (same) {
          ++streak;
          continue;
        }
        const size_t count = (streak + period) / period;
        const size_t start = k - streak;
        streak = 0;
        if (count < 2) continue;
        const int64_t weight = weight_of(start, start + count * period);
        if (weight > best.weight) best = {start, period, count, weight};
      }
    }
    return best;
  }

  // The cuts between blocks of pieces [first, last). Where the repeated piece is itself mostly a
  // repetition (stages of blocks), its blocks are meant.
  std::vector<size_t> block_bounds(size_t first, size_t last) const {
    const Repeat outer = best_repeat(first, last);
    std::vector<size_t> bounds;
    if (outer.count < 2) return bounds;
    const size_t end = outer.start + outer.period;
    const Repeat inner = best_repeat(outer.start, end);
    const bool nested = 2 * inner.weight >= weight_of(outer.start, end);
    for (size_t c = 0; c < outer.count; ++c) {
      const size_t at = outer.start + c * outer.period;
      bounds.push_back(at);
      if (!nested) continue;
      for (const size_t b : block_bounds(at, at + outer.period)) {
        if (b > at) bounds.push_back(b);
      }
    }
    bounds.push_back(outer.start + outer.count * outer.period);
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    return bounds;
  }

  // Per object: is it made of parameters, and of no data? A concat of weights is, or a view of one.
  std::vector<bool> made_of_parameters() const {
    std::vector<bool> made(scheme_.objects.size(), false);
    for (const Value in : scheme_.inputs) made[in] = scheme_[in].role == Role::kParameter;
    for (const int i : forward_) {
      const Morphism& m = scheme_.morphisms[i];
      const bool any =
          std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value in) { return made[in]; });
      for (const Value out : m.outputs) made[out] = any && !from_data_[out];
    }
    return made;
  }

  // A parameter, and what is made of parameters alone, is in the block of its readers if that is
  // one. Blocks pass from readers to what they read, so the last reader comes first. Returns the
  // blocks by path; a path that several blocks share has none.
  std::unordered_map<std::string, int> name_parameters(Chain& chain) const {
    constexpr int kUnread = -2;
    const std::vector<bool> made = made_of_parameters();
    std::vector<int> of_readers(scheme_.objects.size(), kUnread);
    const auto join = [](int a, int b) {
      return a == b || b == kUnread ? a : a == kUnread ? b : -1;
    };
    std::unordered_map<std::string, int> by_path;
    const auto name = [&](const Source& source, int block) {
      const auto [found, fresh] = by_path.emplace(source.path, block);
      if (!fresh && found->second != block) found->second = -1;
    };
    for (size_t k = forward_.size(); k-- > 0;) {
      const Morphism& m = scheme_.morphisms[forward_[k]];
      int& block = chain.block_of_morphism[forward_[k]];
      if (made[m.outputs[0]]) {
        int wanted = kUnread;
        for (const Value out : m.outputs) wanted = join(wanted, of_readers[out]);
        if (wanted == kUnread) continue;  // by the forward pass: it says nothing of its operands
        block = wanted;
        name(m.source, block);
        for (const Value out : m.outputs) name(scheme_[out].source, block);
      }
      for (const Value in : m.inputs) of_readers[in] = join(of_readers[in], block);
    }
    for (const Value in : scheme_.inputs) {
      if (made[in] && of_readers[in] != kUnread) name(scheme_[in].source, of_readers[in]);
    }
    std::erase_if(by_path, [](const auto& named) { return named.second < 0; });
    return by_path;
  }

  void name_blocks(Chain& chain, const std::vector<Cut>& cuts) const {
    std::unordered_map<std::string, int> by_path;
    for (size_t b = 0; b + 1 < cuts.size(); ++b) {
      for (size_t k = cuts[b].at; k < cuts[b + 1].at; ++k) {
        const Morphism& m = scheme_.morphisms[forward_[k]];
        if (!from_data_[m.outputs[0]]) continue;
        chain.block_of_morphism[forward_[k]] = static_cast<int>(b);
        by_path.emplace(m.source.path, static_cast<int>(b));
        for (const Value out : m.outputs) by_path.emplace(scheme_[out].source.path, b);
      }
    }
    for (const auto& [path, block] : name_parameters(chain)) by_path.emplace(path, block);
    const auto block_at = [&](const std::string& path) {
      const auto found = by_path.find(path);
      return found == by_path.end() ? -1 : found->second;
    };
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const Morphism& m = scheme_.morphisms[i];
      int& block = chain.block_of_morphism[i];
      if (m.phase != Phase::kForward) block = block_at(m.source.path);
      for (const Value out : m.outputs) {
        const int own = m.phase == Phase::kForward ? -1 : block_at(scheme_[out].source.path);
        chain.block_of[out] = own >= 0 ? own : block;
      }
    }
    for (const Value in : scheme_.inputs) {
      const Role role = scheme_[in].role;
      if (role == Role::kParameter || role == Role::kState) {
        chain.block_of[in] = block_at(scheme_[in].source.path);
      }
    }
  }

  const Scheme& scheme_;
  std::vector<int> forward_;  // morphisms
  std::vector<bool> from_data_, carries_;
  std::vector<size_t> last_read_;  // per object: the place after its last reader
  std::vector<size_t> made_at_;    // per object: the place after its maker; 0: an input
  Additions additions_;
  std::vector<Cut> cuts_;
  std::vector<Piece> pieces_;
};

}  // namespace

Chain find_chain(const Scheme& scheme) { return ChainFinder(scheme).run(); }

}  // namespace adjoint

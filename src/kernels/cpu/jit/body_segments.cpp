#include "kernels/cpu/jit/body_segments.h"

#include <algorithm>

#include "body/facts.h"
#include "kernels/body_layout.h"

namespace adjoint {

namespace {

bool loadable(Dtype dtype) { return dtype == Dtype::kF32 || dtype == Dtype::kBF16; }

class Cutter {
 public:
  Cutter(const Layout& layout, const std::vector<Type>& in_types,
         const std::vector<Type>& out_types)
      : layout_(layout), body_(layout.body), in_types_(in_types), out_types_(out_types) {}

  TilePlan cut() {
    choose_stores();
    choose_makers();
    fold_comparisons();
    find_levels();
    // An output that may lie over an operand must not be stored before the last read of it.
    std::vector<bool> last(body_.outputs.size(), false);
    while (!place(last)) {
    }
    plan_.all_generated =
        std::none_of(plan_.maker.begin(), plan_.maker.end(),
                     [](Maker m) { return m == Maker::kCalled; }) &&
        std::all_of(plan_.stored.begin(), plan_.stored.end(), [](bool by_code) { return by_code; });
    return plan_;
  }

 private:
  const ExprNode& node(int i) const { return body_.nodes[i]; }
  int arity(int i) const { return facts(node(i).kind).arity; }
  int size() const { return static_cast<int>(body_.nodes.size()); }
  bool varies(int i) const { return layout_.varies[i]; }
  bool generated(int i) const {
    return plan_.maker[i] == Maker::kScalar || plan_.maker[i] == Maker::kVector;
  }

  bool may_lie_over(size_t output, int input) const {
    return !is_sum(body_.outputs[output]) && layout_.in[input] == layout_.out[output] &&
           in_types_[input].dtype == out_types_[output].dtype;
  }

  void choose_stores() {
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      const BodyOutput& out = body_.outputs[k];
      const bool whole = out.row == BodyOutput::Row::kWhole;
      const bool unit = layout_.out[k].back() == 1 || layout_.row() == 1;
      plan_.stored.push_back(whole && (is_sum(out) || (unit && loadable(out_types_[k].dtype))));
    }
  }

  Maker maker_of(int i) const {
    const ExprNode& n = node(i);
    switch (n.kind) {
      case ExprKind::kConst:
        return Maker::kConstant;
      case ExprKind::kInput: {
        if (!loadable(in_types_[n.index].dtype)) return Maker::kCalled;
        if (!varies(i)) return Maker::kScalar;
        return layout_.in[n.index].back() == 1 ? Maker::kLoaded : Maker::kCalled;
      }
      case ExprKind::kRowSum:
      case ExprKind::kRowMax:
        return varies(n.args[0]) ? Maker::kReduced : Maker::kCalled;
      case ExprKind::kIndex:
      case ExprKind::kRandom:
      case ExprKind::kSin:
      case ExprKind::kCos:
        return Maker::kCalled;
      case ExprKind::kRotate:
        // Vectors must not straddle the middle of the row.
        return varies(n.args[0]) && layout_.row() % 32 == 0 ? Maker::kTurned : Maker::kCalled;
      case ExprKind::kRound:
        if (static_cast<Dtype>(n.index) == Dtype::kF16) return Maker::kCalled;
        break;
      default:
        break;
    }
    return varies(i) ? Maker::kVector : Maker::kScalar;
  }

  void choose_makers() {
    plan_.exported.assign(size(), false);
    for (int i = 0; i < size(); ++i) plan_.maker.push_back(maker_of(i));
    const auto read_by_interpreter = [&](int i, bool after_stores) {
      plan_.exported[i] = !varies(i);
      if (plan_.maker[i] == Maker::kTurned) plan_.maker[i] = Maker::kCalled;
      const bool as_it_lies = in_types_.size() && node(i).kind == ExprKind::kInput &&
                              in_types_[node(i).index].dtype == Dtype::kF32;
      if (plan_.maker[i] == Maker::kLoaded && (after_stores || !as_it_lies)) {
        plan_.maker[i] = Maker::kCalled;
      }
    };
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      if (!plan_.stored[k]) read_by_interpreter(body_.outputs[k].node, true);
    }
    for (int i = size(); i-- > 0;) {
      if (plan_.maker[i] != Maker::kCalled) continue;
      for (int a = 0; a < arity(i); ++a) read_by_interpreter(node(i).args[a], false);
    }
  }

  // A comparison that only a select reads needs no row of ones and zeros.
  void fold_comparisons() {
    std::vector<int> reads(size(), 0);
    for (int i = 0; i < size(); ++i) {
      for (int a = 0; a < arity(i); ++a) ++reads[node(i).args[a]];
    }
    for (const BodyOutput& out : body_.outputs) ++reads[out.node];
    plan_.folded.assign(size(), false);
    for (int i = 0; i < size(); ++i) {
      if (node(i).kind != ExprKind::kSelect || !generated(i)) continue;
      const int c = node(i).args[0];
      const ExprKind kind = node(c).kind;
      plan_.folded[c] = reads[c] == 1 && plan_.maker[c] == plan_.maker[i] &&
                        (kind == ExprKind::kLess || kind == ExprKind::kEqual);
    }
  }

  // A rotation reads ahead in the row, so what it reads must not be written in the same loop.
  bool copied(int i) const {
    if (plan_.maker[i] == Maker::kCalled) return false;
    if (plan_.maker[i] != Maker::kLoaded) return true;
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      if (may_lie_over(k, node(i).index)) return true;
    }
    return false;
  }

  // The segment before whose loop (or in whose loop) a node's value is made.
  void find_levels() {
    level_.assign(size(), 0);
    for (int i = 0; i < size(); ++i) {
      for (int a = 0; a < arity(i); ++a) {
        const int arg = node(i).args[a];
        const bool next = plan_.maker[i] == Maker::kReduced ||
                          (plan_.maker[i] == Maker::kTurned && copied(arg)) ||
                          (plan_.maker[i] == Maker::kCalled && generated(arg));
        level_[i] = std::max(level_[i], level_[arg] + next);
      }
    }
  }

  // One instruction on values that later segments can read as well.
  bool again(int i) const {
    switch (node(i).kind) {
      case ExprKind::kAdd:
      case ExprKind::kSub:
      case ExprKind::kMul:
      case ExprKind::kMin:
      case ExprKind::kMax:
      case ExprKind::kNeg:
        break;
      default:
        return false;
    }
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      if (body_.outputs[k].node == i && !is_sum(body_.outputs[k])) return false;
    }
    for (int a = 0; a < arity(i); ++a) {
      const int arg = node(i).args[a];
      if (plan_.maker[arg] == Maker::kVector && !kept_[arg]) return false;
    }
    return true;
  }

  void demand(int i, int s) {
    if (!varies(i)) return;
    if (plan_.maker[i] == Maker::kLoaded) last_load_[i] = std::max(last_load_[i], s);
    if (plan_.maker[i] != Maker::kVector || seen_[i] == s) return;
    if (first_[i] >= 0 && (kept_[i] || !again(i))) {
      kept_[i] = true;
      return;
    }
    if (first_[i] < 0) first_[i] = s;
    seen_[i] = s;
    for (int a = 0; a < arity(i); ++a) demand(node(i).args[a], s);
    if (!plan_.folded[i]) plan_.segments[s].nodes.push_back(i);
  }

  // False if an output turned out to be stored too early; it then goes to the last segment.
  bool place(std::vector<bool>& last) {
    kept_.assign(size(), false);
    first_.assign(size(), -1);
    seen_.assign(size(), -1);
    last_load_.assign(size(), -1);
    const int count = 1 + *std::max_element(level_.begin(), level_.end());
    plan_.segments.assign(count, {});
    for (int i = 0; i < size(); ++i) {
      Segment& own = plan_.segments[level_[i]];
      if (plan_.maker[i] == Maker::kCalled) own.calls.push_back(i);
      if (plan_.maker[i] == Maker::kScalar && !plan_.folded[i]) own.scalars.push_back(i);
      if (plan_.maker[i] == Maker::kReduced) {
        plan_.segments[level_[node(i).args[0]]].reductions.push_back(i);
      }
      const bool read = plan_.maker[i] == Maker::kCalled;
      for (int a = 0; read && a < arity(i); ++a) keep_generated(node(i).args[a]);
      const bool turned = plan_.maker[i] == Maker::kTurned;
      if (turned && copied(node(i).args[0])) kept_[node(i).args[0]] = true;
    }
    std::vector<int> at(body_.outputs.size(), -1);
    for (size_t k = 0; k < at.size(); ++k) {
      const int n = body_.outputs[k].node;
      if (!plan_.stored[k]) {
        keep_generated(n);
        continue;
      }
      at[k] = last[k] ? count - 1 : level_[n];
      plan_.segments[at[k]].outputs.push_back(static_cast<int>(k));
    }
    for (int s = 0; s < count; ++s) {
      for (const int i : plan_.segments[s].reductions) demand(node(i).args[0], s);
      for (const int k : plan_.segments[s].outputs) demand(body_.outputs[k].node, s);
      for (int i = 0; i < size(); ++i) {
        if (kept_[i] && first_[i] < 0 && level_[i] == s) demand(i, s);
        if (kept_[i] && plan_.maker[i] != Maker::kVector) first_[i] = level_[i];
      }
    }
    bool fits = true;
    for (size_t k = 0; k < at.size(); ++k) {
      for (int i = 0; i < size(); ++i) {
        if (at[k] < 0 || last_load_[i] <= at[k] || !may_lie_over(k, node(i).index)) continue;
        last[k] = true;
        fits = false;
      }
    }
    if (fits) assign_slots(at);
    return fits;
  }

  void keep_generated(int i) {
    if (plan_.maker[i] == Maker::kVector) kept_[i] = true;
  }

  void assign_slots(const std::vector<int>& at) {
    plan_.home.assign(size(), -1);
    plan_.num_homes = 0;
    for (int i = 0; i < size(); ++i) {
      const bool here = !varies(i) && plan_.maker[i] != Maker::kConstant && !plan_.folded[i];
      if (here) plan_.home[i] = plan_.num_homes++;
    }
    plan_.slot.assign(size(), -1);
    plan_.kept_in.assign(size(), -1);
    plan_.num_slots = 0;
    for (int i = 0; i < size(); ++i) {
      if (plan_.maker[i] == Maker::kCalled && varies(i)) plan_.slot[i] = plan_.num_slots++;
      if (!kept_[i]) continue;
      for (size_t k = 0; k < at.size(); ++k) {
        const bool place = body_.outputs[k].node == i && at[k] == first_[i] &&
                           !is_sum(body_.outputs[k]) && out_types_[k].dtype == Dtype::kF32;
        if (place) plan_.kept_in[i] = static_cast<int>(k);
      }
      if (plan_.kept_in[i] >= 0) continue;
      plan_.slot[i] = plan_.num_slots++;
      plan_.segments[first_[i]].kept.push_back(i);
    }
  }

  const Layout& layout_;
  const Body& body_;
  const std::vector<Type>& in_types_;
  const std::vector<Type>& out_types_;
  TilePlan plan_;
  std::vector<int> level_, first_, seen_, last_load_;  // per node, segments
  std::vector<bool> kept_;
};

}  // namespace

TilePlan cut_into_segments(const Layout& layout, const std::vector<Type>& in_types,
                           const std::vector<Type>& out_types) {
  return Cutter(layout, in_types, out_types).cut();
}

}  // namespace adjoint

// Forward over the morphisms: a letter of samples that a result has is split, one that it lacks is
// summed. Linear ops of partial sums give partial sums, so what is summed is summed late: a tied
// weight has one sum, not one per use. Views alone come after the sum: joined projections have one
// sum, which their product adds to, and its slices are the parameters' gradients.
#include "analysis/batch_split.h"

#include <algorithm>

#include "analysis/padding.h"
#include "analysis/spread.h"
#include "analysis/use_sums.h"
#include "base/error.h"

namespace adjoint {

namespace {

class Splitter {
 public:
  Splitter(const Scheme& scheme, std::string_view who, bool padded)
      : scheme_(scheme), who_(who), padded_(padded) {}

  BatchSplit run() {
    const size_t objects = scheme_.objects.size();
    split_.kinds.assign(objects, Batchwise::kInvariant);
    split_.axes.assign(objects, -1);
    split_.summed.assign(objects, false);
    of_inputs_.assign(objects, false);
    uses_apart_ = summed_use_by_use(scheme_);
    for (const Value in : scheme_.inputs) {
      if (scheme_[in].role != Role::kInput) continue;
      set_split(in, 0);
      of_inputs_[in] = true;
    }
    for (const Morphism& m : scheme_.morphisms) {
      split_.letters.push_back(0);
      split_.ahead.push_back(false);
      split_.sections.push_back(follow(m));
    }
    for (const Value out : scheme_.outputs) returned(out);
    for (const Carry& c : scheme_.carries) returned(c.out);
    sum_before_views();
    find_sections_of_invariants();
    return std::move(split_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(who_, ": ", parts...);
  }
  std::string at(const Morphism& m) const { return m.op + " at " + to_string(m.source); }
  std::string named(Value v) const { return "'" + to_string(scheme_[v].source) + "'"; }
  bool is(Value v, Batchwise kind) const { return split_.kinds[v] == kind; }
  bool any(const Morphism& m, Batchwise kind) const {
    return std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value v) { return is(v, kind); });
  }
  void set_split(Value v, int axis) {
    split_.kinds[v] = Batchwise::kSplit;
    split_.axes[v] = axis;
  }

  Share share_of(Value v) const {
    if (is(v, Batchwise::kSplit)) return piece_along(split_.axes[v]);
    return is(v, Batchwise::kPartial) ? kTerm : kWhole;
  }

  // Where the morphism runs; its results get their kinds.
  Section follow(const Morphism& m) {
    std::vector<Share> comes;
    for (const Value in : m.inputs) comes.push_back(share_of(in));
    const CallShares shares = share_call(call_of(scheme_, m), comes, m.outputs.size());
    if (any(m, Batchwise::kSplit)) {
      follow_samples(m, comes, shares);
      return known_ahead(m) ? Section::kPrologue : Section::kBody;
    }
    if (!m.outputs.empty() && shares.gives[0].is_term() && !adds_uses(m)) {
      for (const Value out : m.outputs) split_.kinds[out] = Batchwise::kPartial;
      return Section::kBody;
    }
    const bool total = any(m, Batchwise::kPartial) || any(m, Batchwise::kTotal);
    for (const Value in : m.inputs) {
      if (is(in, Batchwise::kPartial)) split_.summed[in] = true;
    }
    for (const Value out : m.outputs) {
      split_.kinds[out] = total ? Batchwise::kTotal : Batchwise::kInvariant;
    }
    return Section::kEpilogue;
  }

  // Whether it adds up the terms of several uses, each of which has a sum of its own.
  bool adds_uses(const Morphism& m) const {
    return is_addition(call_of(scheme_, m)) && uses_apart_[m.outputs[0]];
  }

  // Whether these are counts of targets that are made of inputs alone; then they are known before
  // the parts come.
  bool known_ahead(const Morphism& m) {
    const bool counts = op_named(m.op).targets >= 0 && !op_named(m.op).differentiable;
    const bool of_inputs = std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value v) {
      return of_inputs_[v] ||
             (is(v, Batchwise::kInvariant) && scheme_[v].role == Role::kActivation);
    });
    const bool sums = std::all_of(m.outputs.begin(), m.outputs.end(),
                                  [&](Value v) { return is(v, Batchwise::kPartial); });
    for (const Value out : m.outputs) of_inputs_[out] = of_inputs && !sums;
    if (!of_inputs || !sums || !counts) return false;
    for (const Value out : m.outputs) split_.kinds[out] = Batchwise::kInvariant;
    split_.letters.back() = 0;
    split_.ahead.back() = true;
    return true;
  }

  void follow_samples(const Morphism& m, const std::vector<Share>& comes,
                      const CallShares& shares) {
    for (size_t i = 0; i < comes.size(); ++i) {
      if (comes[i].is_piece()) check_samples(m, i, shares);
    }
    split_.letters.back() = shares.cut.letter;
    if (padded_) check_targets_of_padded(scheme_, m, who_, "part");
    for (size_t i = 0; i < comes.size(); ++i) {
      if (comes[i] != shares.wants[i]) refuse_beside(m, i, shares.wants[i]);
      if (is(m.inputs[i], Batchwise::kTotal)) refuse_sum(m, i);
    }
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      if (shares.gives[k].is_piece()) {
        set_split(m.outputs[k], shares.gives[k].axis);
        continue;
      }
      split_.kinds[m.outputs[k]] = Batchwise::kPartial;
      if (padded_) check_sums_of_padded(m, who_, "part");
    }
  }

  // Of an operand that comes with samples.
  void check_samples(const Morphism& m, size_t i, const CallShares& shares) const {
    const Value in = m.inputs[i];
    if (shares.wants[i] == piece_along(split_.axes[in])) return;
    const Axis& axis = scheme_[in].type.axes[split_.axes[in]];
    const char mine = index_map_of(call_of(scheme_, m)).inputs[i][split_.axes[in]];
    if (shares.cut.letter && mine != shares.cut.letter && may_cut(m, mine)) {
      refuse(at(m), " takes the samples of ", named(in), " for another axis than those of ",
             named(m.inputs[0]));
    }
    if (mine == shares.cut.letter) return;  // it is added to a sum
    refuse(at(m), " needs the axis ", axis.name, "=", axis.size, " of ", named(in),
           " whole, and that axis holds the samples that come in parts");
  }
  bool may_cut(const Morphism& m, char letter) const {
    return index_map_of(call_of(scheme_, m)).uncut().find(letter) == std::string::npos;
  }

  [[noreturn]] void refuse_sum(const Morphism& m, size_t i) const {
    refuse(at(m), " needs ", named(m.inputs[i]),
           ", a sum over the whole batch, while the samples still come in parts");
  }
  // Operands that come otherwise than they are wanted, beside those with samples. A part takes its
  // rows of what depends on no data.
  void refuse_beside(const Morphism& m, size_t i, const Share& wanted) const {
    const Value in = m.inputs[i];
    if (wanted.is_term()) refuse(at(m), " would add ", named(in), " once per part");
    if (!is(in, Batchwise::kInvariant)) refuse_sum(m, i);
    if (wanted.axis == 0) return;
    refuse(at(m), " pairs the samples with the axis ", scheme_[in].type.axes[wanted.axis].name,
           " of ", named(in), ", which is not its first");
  }

  void returned(Value v) {
    if (is(v, Batchwise::kPartial)) split_.summed[v] = true;
    if (is(v, Batchwise::kSplit)) {
      refuse(named(v), " leaves the step with its samples (axis ",
             scheme_[v].type.axes[split_.axes[v]].name,
             "), and only sums over the batch can leave a step in parts");
    }
  }

  // What is seen only through views that are summed, all of it, is summed itself.
  void sum_before_views() {
    const std::vector<std::vector<int>> read_by = readers(scheme_);
    const std::vector<bool> outside = returned_or_carried(scheme_);
    const auto is_summed_view = [&](int reader) {
      const Morphism& m = scheme_.morphisms[reader];
      const Value out = m.outputs[0];
      return op_named(m.op).view && split_.summed[out] &&
             std::all_of(read_by[out].begin(), read_by[out].end(),
                         [&](int r) { return split_.sections[r] == Section::kEpilogue; });
    };
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      for (const Value v : scheme_.morphisms[i].outputs) {
        const std::vector<int>& views = read_by[v];
        if (!is(v, Batchwise::kPartial) || split_.summed[v] || outside[v] || views.empty())
          continue;
        if (!std::all_of(views.begin(), views.end(), is_summed_view)) continue;
        Bytes seen{0};
        for (const int view : views)
          seen += scheme_[scheme_.morphisms[view].outputs[0]].type.bytes();
        if (seen < scheme_[v].type.bytes()) continue;
        split_.summed[v] = true;
        for (const int view : views) {
          const Value out = scheme_.morphisms[view].outputs[0];
          split_.summed[out] = false;
          split_.kinds[out] = Batchwise::kTotal;
          split_.sections[view] = Section::kEpilogue;
        }
      }
    }
  }

  // What depends on no data runs before the body where the body needs it, else after. What is
  // larger than its operands stays in the body: a dequantized weight that lived through all parts
  // would undo what its codes save. So does what is to be computed again: it is nowhere kept.
  void find_sections_of_invariants() {
    std::vector<bool> in_body(scheme_.objects.size(), false), after = in_body;  // who needs it
    for (const Value out : scheme_.outputs) after[out] = true;
    for (const Carry& c : scheme_.carries) after[c.out] = true;
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      const bool invariant = is_invariant(m);
      const bool body =
          invariant ? any_of(m.outputs, in_body) : split_.sections[i] == Section::kBody;
      const bool later =
          invariant ? !body || any_of(m.outputs, after) : split_.sections[i] == Section::kEpilogue;
      for (const Value in : m.inputs) {
        if (body) in_body[in] = true;
        if (later) after[in] = true;
      }
    }
    std::vector<bool> remade(scheme_.objects.size(), false);
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const Morphism& m = scheme_.morphisms[i];
      if (!is_invariant(m) || !any_of(m.outputs, in_body) || split_.ahead[i]) continue;
      const bool short_lived = (expands(m) && !is_kept(m)) || is_recomputed(m);
      const bool again = any_of(m.inputs, remade) || (short_lived && !any_of(m.outputs, after));
      split_.sections[i] = again ? Section::kBody : Section::kPrologue;
      for (const Value out : m.outputs) remade[out] = again;
    }
  }

  bool is_invariant(const Morphism& m) const { return is(m.outputs[0], Batchwise::kInvariant); }
  static bool any_of(const std::vector<Value>& values, const std::vector<bool>& flags) {
    return std::any_of(values.begin(), values.end(), [&](Value v) { return flags[v]; });
  }
  bool is_kept(const Morphism& m) const {
    return scheme_[m.outputs[0]].attributes.residence == Residence::kKept;
  }
  bool is_recomputed(const Morphism& m) const {
    return scheme_[m.outputs[0]].attributes.residence == Residence::kRecomputed;
  }
  bool expands(const Morphism& m) const {
    int64_t in = 0, out = 0;
    for (const Value v : m.inputs) in += scheme_[v].type.bytes().count;
    for (const Value v : m.outputs) out += scheme_[v].type.bytes().count;
    return !m.inputs.empty() && out > in;
  }

  const Scheme& scheme_;
  std::string_view who_;
  bool padded_;
  BatchSplit split_;
  std::vector<bool> uses_apart_;  // per object: a gradient whose terms are summed one by one
  std::vector<bool> of_inputs_;   // per object: made of the step's inputs and of constants alone
};

}  // namespace

BatchSplit split_batch(const Scheme& scheme, std::string_view who, bool padded) {
  return Splitter(scheme, who, padded).run();
}

}  // namespace adjoint

// The same bits with fewer morphisms: unread results are dropped, equal calls are merged, calls
// that only pass on an operand are removed (scale by 1, a cast to its own dtype, a cast there and
// back, a split that is merged), and constants inside bodies are folded. A morphism merges only
// with one of its own phase, section and epoch: whether a value is kept from forward to backward,
// or recomputed, is decided by residence and not here.
#include <algorithm>
#include <unordered_map>

#include "analysis/totals.h"
#include "body/facts.h"
#include "body/join.h"
#include "functors/functor.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

bool repeats_freely(const OpDef& def) {
  return def.effect == Effect::kPure || def.effect == Effect::kRandom;
}

// Every value of the narrow dtype is one of the wide dtype.
bool widens(Dtype narrow, Dtype wide) {
  const bool half = narrow == Dtype::kBF16 || narrow == Dtype::kF16;
  return (half && (wide == Dtype::kF32 || wide == Dtype::kF64)) ||
         (narrow == Dtype::kF32 && wide == Dtype::kF64);
}

// An object as a view of its root.
struct Seen {
  Value root = -1;
  Strides strides = {};
  int64_t offset = 0;
};

class Round {
 public:
  Round(Scheme before, int64_t& matches)
      : result_(std::move(before)),
        matches_(matches),
        made_by_(producers(result_)),
        read_by_(readers(result_)),
        alias_(result_.objects.size()),
        passes_on_(result_.objects.size(), -1),
        seen_(result_.objects.size()),
        viewed_(result_.objects.size(), -1),
        returned_(result_.objects.size(), false),
        carried_(result_.objects.size(), false),
        in_loop_(result_.objects.size(), false),
        writer_(result_.objects.size(), -1) {
    for (size_t v = 0; v < alias_.size(); ++v) alias_[v] = static_cast<Value>(v);
    for (const Value out : result_.outputs) returned_[out] = true;
    for (const Carry& c : result_.carries) {
      carried_[c.out] = true;
      writer_[c.in] = made_by_[c.out];
    }
    for (const Carry& c : result_.loop) in_loop_[c.in] = in_loop_[c.out] = true;
    for (const Morphism& m : result_.morphisms) is_view_.push_back(op_named(m.op).view != nullptr);
  }

  Scheme run() {
    std::vector<Morphism> before = std::move(result_.morphisms);
    const size_t all = before.size();
    result_.morphisms.clear();
    result_.morphisms.reserve(all);
    for (Morphism& m : before) {
      for (Value& in : m.inputs) in = alias_[in];
      for (Value& v : m.after) v = alias_[v];
      const OpDef& def = op_named(m.op);
      if (def.body && says_body(m)) fold_body(m);
      // A morphism with `after` is kept: reading another result in its place would mean reading it
      // earlier.
      const bool free = m.after.empty() && repeats_freely(def);
      if (free && def.body) pass_on(m);
      if (free && def.view) cancel_views(m, def);
      if (free && merge(m)) continue;
      result_.morphisms.push_back(std::move(m));
    }
    const size_t left = result_.morphisms.size();
    result_ = without_dead(std::move(result_));
    matches_ += static_cast<int64_t>(left - result_.morphisms.size());
    return drop_dead_results();
  }

 private:
  // Readers of `out` may read `instead`: the same bits, in the same dtype and shape, and the same
  // attributes. A returned or carried object keeps its maker. State must be read before it is
  // overwritten.
  bool may_replace(Value out, Value instead) const {
    const Object &a = result_[out], &b = result_[instead];
    if (returned_[out] || carried_[out] || in_loop_[out] || in_loop_[instead]) return false;
    if (a.type.dtype != b.type.dtype || !same_shape(a.type, b.type)) return false;
    if (dense_strides(a.type) != dense_strides(b.type) || a.attributes != b.attributes)
      return false;
    if (writer_[instead] < 0) return true;
    return std::all_of(read_by_[out].begin(), read_by_[out].end(),
                       [&](int reader) { return reader < writer_[instead] && !is_view_[reader]; });
  }

  bool replace(Value out, Value instead) {
    if (read_by_[out].empty() || !may_replace(out, instead)) return false;
    alias_[out] = instead;
    ++matches_;
    return true;
  }

  void fold_body(Morphism& m) {
    const auto& text = std::get<std::string>(m.attrs["body"]);
    const auto [known, is_new] = folded_.emplace(text, "");
    if (is_new) {
      const Body body = parse_body(text), folded = fold_exactly(body);
      if (folded.nodes.size() < without_dead_nodes(body).nodes.size())
        known->second = print(folded);
    }
    if (known->second.empty()) return;
    rewrite(m, parse_body(known->second));
    ++matches_;
  }

  // The map with another body, without the operands that only the old one read.
  void rewrite(Morphism& m, const Body& body) {
    const OpCall call = call_of(result_, m);
    std::vector<Type> outputs;
    for (const Value out : m.outputs) outputs.push_back(result_[out].type);
    MapCall map = map_call(body, space_of(call), call.inputs, outputs);
    std::vector<Value> inputs;
    for (const int operand : map.operands) inputs.push_back(m.inputs[operand]);
    m.inputs = std::move(inputs);
    m.attrs["body"] = map.attrs["body"];
    if (map.attrs.count("shape")) m.attrs["shape"] = map.attrs["shape"];
  }

  // Handles results that equal an operand, or a cast of one.
  void pass_on(const Morphism& m) {
    const OpCall call = call_of(result_, m);
    const Body body = body_of(call);
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      const auto operand = passed_on(body, body.outputs[k]);
      if (!operand || !same_shape(call.inputs[*operand], result_[m.outputs[k]].type)) continue;
      const Value from = m.inputs[*operand];
      const Dtype here = result_[m.outputs[k]].type.dtype, there = result_[from].type.dtype;
      passes_on_[m.outputs[k]] = from;
      if (here == there) {
        replace(m.outputs[k], from);
      } else if (const Value first = passes_on_[from];
                 first >= 0 && result_[first].type.dtype == here && widens(here, there)) {
        replace(m.outputs[k], first);
      }
    }
  }

  const Seen& seen(Value v) {
    if (seen_[v].root < 0) seen_[v] = {v, dense_strides(result_[v].type), 0};
    return seen_[v];
  }

  // Handles a view of a view that equals an earlier object.
  void cancel_views(const Morphism& m, const OpDef& def) {
    const Value in = m.inputs[0], out = m.outputs[0];
    Seen now = seen(in);
    int64_t offset = 0;
    const auto strides = def.view(call_of(result_, m), now.strides, offset);
    if (!strides) return;
    now.strides = *strides;
    now.offset += offset;
    const Type& type = result_[out].type;
    for (Value v = in; v >= 0; v = viewed_[v]) {
      const Seen& other = seen(v);
      bool same = same_shape(result_[v].type, type) && other.offset == now.offset;
      for (int a = 0; same && a < type.rank(); ++a) {
        same = type.dim(a) == 1 || other.strides[a] == now.strides[a];
      }
      if (same && replace(out, v)) return;
    }
    seen_[out] = std::move(now);
    viewed_[out] = in;
  }

  // Merges m with an equal earlier morphism, if there is one.
  bool merge(const Morphism& m) {
    std::string key = m.op + "|" + std::to_string(static_cast<int>(m.phase)) + "|" +
                      std::to_string(static_cast<int>(m.section)) + "|" + std::to_string(m.epoch);
    for (const Value in : m.inputs) key += "," + std::to_string(in);
    for (const auto& [name, attr] : m.attrs) {
      if (!is_bookkeeping(name)) key += "|" + name + "=" + to_string(attr);
    }
    const int at = static_cast<int>(result_.morphisms.size());
    const auto [known, is_new] = by_call_.emplace(std::move(key), at);
    if (is_new) return false;
    const Morphism& first = result_.morphisms[known->second];
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      const bool kept = carried_[first.outputs[k]];
      const bool alike = result_[m.outputs[k]].role == result_[first.outputs[k]].role;
      if (kept || !alike || !may_replace(m.outputs[k], first.outputs[k])) return false;
    }
    for (size_t k = 0; k < m.outputs.size(); ++k) alias_[m.outputs[k]] = first.outputs[k];
    ++matches_;
    return true;
  }

  // Removes unread results of a map from its body.
  Scheme drop_dead_results() {
    std::vector<bool> wanted(result_.objects.size(), false);
    for (const Morphism& m : result_.morphisms) {
      for (const Value in : m.inputs) wanted[in] = true;
    }
    for (const Value out : result_.outputs) wanted[out] = true;
    for (const Carry& c : result_.carries) wanted[c.out] = true;
    for (const Carry& c : result_.loop) wanted[c.in] = wanted[c.out] = true;
    bool any = false;
    for (Morphism& m : result_.morphisms) {
      if (!op_named(m.op).body || !says_body(m)) continue;
      const auto dead = [&](Value out) { return !wanted[out]; };
      if (std::none_of(m.outputs.begin(), m.outputs.end(), dead)) continue;
      const std::vector<Type> types = infer_types(call_of(result_, m));
      Body body = body_of(call_of(result_, m));
      const std::vector<BodyOutput> all = std::move(body.outputs);
      std::vector<Value> outputs;
      body.outputs.clear();
      for (size_t k = 0; k < all.size(); ++k) {
        if (!wanted[m.outputs[k]]) continue;
        body.outputs.push_back(all[k]);
        outputs.push_back(m.outputs[k]);
      }
      m.outputs = std::move(outputs);
      rewrite(m, body);
      ++matches_;
      any = true;
    }
    return any ? compact(std::move(result_)) : std::move(result_);
  }

  Scheme result_;
  int64_t& matches_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  std::vector<Value> alias_;
  std::vector<Value> passes_on_;  // per object: what it is a cast of, or -1
  std::vector<Seen> seen_;
  std::vector<Value> viewed_;  // per object: what it is a view of, or -1
  std::vector<bool> returned_, carried_, in_loop_;
  std::vector<bool> is_view_;  // per morphism
  std::vector<int> writer_;    // per state: the morphism that writes over it, or -1
  std::unordered_map<std::string, std::string> folded_;  // texts of bodies; "": nothing to fold
  std::unordered_map<std::string, int> by_call_;
};

Scheme simplified(Scheme result, Application& application) {
  int64_t before = -1;
  while (before != application.matches) {
    before = application.matches;
    result = Round(std::move(result), application.matches).run();
  }
  return result;
}

}  // namespace

extern const Functor functor_simplify = {
    .name = "simplify",
    .summary = "drops what nobody reads, computes what is repeated once, folds constants",
    .law = Law::kExact,
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kExact, simplified}},
};

}  // namespace adjoint

// f(split(slice(x, a, n))), f(split(slice(x, a + n, m)))  ->  slices of f(split(slice(x, a, n +
// m))), where f treats every row of the split by itself and its other operands are the same: rotary
// positions of the heads of queries and of keys, which lie side by side. One call does what several
// did, with the same bits; a step of one token waits for launches more than for their work.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "analysis/graph.h"
#include "functors/functor.h"
#include "ops/axes.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

// A call on heads that are a slice of an object: those from `first` on, of `width` numbers each.
struct HeadCall {
  int call;
  Value of;
  int64_t first, heads, width;
};

// Whether results of a head follow from that head alone.
bool treats_heads_alike(const Scheme& scheme, const Morphism& m) {
  const OpDef& def = op_named(m.op);
  if (!def.body || m.outputs.size() != 1 || !m.after.empty()) return false;
  const OpCall call = call_of(scheme, m);
  if (effect_of(call) != Effect::kPure) return false;
  const Type &x = call.inputs[0], &y = scheme[m.outputs[0]].type;
  if (y.rank() != x.rank() || x.rank() < 2) return false;
  for (int a = 0; a < x.rank(); ++a) {
    if (y.dim(a) != x.dim(a)) return false;
  }
  for (size_t k = 1; k < call.inputs.size(); ++k) {
    if (call.inputs[k].rank() > 1 && call.inputs[k].dim(-2) != 1) return false;
  }
  const Body body = body_of(call);
  const auto knows_its_head = [](const ExprNode& n) {
    return n.kind == ExprKind::kIndex || n.kind == ExprKind::kRandom;
  };
  return std::none_of(body.nodes.begin(), body.nodes.end(), knows_its_head) &&
         body.outputs[0].summed_axes == 0;
}

class JoinedHeads {
 public:
  JoinedHeads(const Scheme& before, Application& application)
      : application_(application),
        before_(before),
        after_(without_morphisms(before)),
        builder_(after_),
        made_by_(producers(before)) {}

  Scheme run() {
    std::map<int, std::vector<HeadCall>> runs;  // by the call that comes first
    std::vector<bool> joins(before_.morphisms.size(), false);
    for (const std::vector<HeadCall>& run : find_runs()) {
      int first = run[0].call;
      for (const HeadCall& each : run) first = std::min(first, each.call);
      for (const HeadCall& each : run) joins[each.call] = true;
      runs[first] = run;
    }
    for (size_t i = 0; i < before_.morphisms.size(); ++i) {
      if (const auto run = runs.find(static_cast<int>(i)); run != runs.end()) emit(run->second);
      if (!joins[i]) after_.morphisms.push_back(before_.morphisms[i]);
    }
    return without_dead(std::move(after_));
  }

 private:
  // What makes an object by lying so in another; null: nothing does.
  const Morphism* maker(Value v, LiesWithin how) const {
    if (made_by_[v] < 0) return nullptr;
    const Morphism& m = before_.morphisms[made_by_[v]];
    return op_named(m.op).lies == how ? &m : nullptr;
  }

  std::optional<HeadCall> head_call(int i) const {
    const Morphism& m = before_.morphisms[i];
    if (m.inputs.empty() || !treats_heads_alike(before_, m)) return std::nullopt;
    const Morphism* split = maker(m.inputs[0], LiesWithin::kSplits);
    const Morphism* slice = split ? maker(split->inputs[0], LiesWithin::kSlice) : nullptr;
    if (!slice) return std::nullopt;
    const OpCall cut = call_of(before_, *slice);
    const Type& heads = before_[m.inputs[0]].type;
    const int64_t start = cut.integer("start"), width = heads.dim(-1);
    if (slice_axis(cut) != cut.inputs[0].rank() - 1 || start % width) return std::nullopt;
    return HeadCall{i, slice->inputs[0], start / width, heads.dim(-2), width};
  }

  bool same_function(const HeadCall& a, const HeadCall& b) const {
    const Morphism& y = before_.morphisms[b.call];
    Morphism x = before_.morphisms[a.call];  // but for the heads it works on
    if (a.of != b.of || a.width != b.width || !may_join(before_, x, y)) return false;
    if (before_[x.outputs[0]].type.dtype != before_[y.outputs[0]].type.dtype) return false;
    x.inputs[0] = y.inputs[0];
    x.outputs = y.outputs;
    x.source = y.source;
    return x == y;
  }

  std::vector<std::vector<HeadCall>> find_runs() const {
    std::vector<HeadCall> all;
    for (size_t i = 0; i < before_.morphisms.size(); ++i) {
      if (const auto found = head_call(static_cast<int>(i))) all.push_back(*found);
    }
    std::stable_sort(all.begin(), all.end(), [](const HeadCall& a, const HeadCall& b) {
      return std::tie(a.of, a.first) < std::tie(b.of, b.first);
    });
    std::vector<std::vector<HeadCall>> runs;
    for (const HeadCall& each : all) {
      const HeadCall* last = runs.empty() ? nullptr : &runs.back().back();
      if (last && last->first + last->heads == each.first && same_function(*last, each)) {
        runs.back().push_back(each);
      } else {
        runs.push_back({each});
      }
    }
    std::erase_if(runs, [](const auto& run) { return run.size() < 2; });
    return runs;
  }

  void emit(const std::vector<HeadCall>& run) {
    const Morphism& first = before_.morphisms[run[0].call];
    const int64_t begin = run[0].first, heads = run.back().first + run.back().heads - begin;
    const int64_t width = run[0].width;
    const size_t from = after_.morphisms.size();
    const auto at = [&](std::string_view part) -> Builder& {
      return builder_.at({first.source.path + ".joined" + std::string(part)}, first.phase,
                         before_[first.outputs[0]].role);
    };
    const int rank = builder_.type(run[0].of).rank();
    const Value slice = at(".slice").emit(
        "slice", {run[0].of}, slice_attrs(rank, rank - 1, begin * width, heads * width));
    std::vector<Value> inputs = first.inputs;
    inputs[0] = at(".split").emit("split", {slice}, {{"parts", heads}});
    const Value all = at("").emit(first.op, std::move(inputs), first.attrs);
    for (const HeadCall& each : run) {
      const Morphism& m = before_.morphisms[each.call];
      builder_.emit("slice", {all},
                    slice_attrs(rank + 1, rank - 1, each.first - begin, each.heads));
      after_.morphisms.back().outputs = m.outputs;
      after_.morphisms.back().source = m.source;
      ++application_.matches;
    }
    for (size_t i = from; i < after_.morphisms.size(); ++i) {
      after_.morphisms[i].epoch = first.epoch;
      after_.morphisms[i].section = first.section;
    }
  }

  Application& application_;
  const Scheme& before_;
  Scheme after_;
  Builder builder_;
  std::vector<int> made_by_;
};

}  // namespace

extern const Functor functor_join_heads = {
    .name = "join_heads",
    .summary = "heads that lie side by side and are treated alike are treated in one call",
    .law = Law::kExact,
    .may_match_none = true,
    .of_forward = true,
    .rules = {{FunctorPhase::kPositions,
               [](Scheme scheme, Application& application) {
                 return JoinedHeads(scheme, application).run();
               }}},
};

}  // namespace adjoint

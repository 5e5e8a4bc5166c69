// s0 = square_sum(g0), s1 = square_sum(g1), ...  ->  s0, s1, ... = gang(g0, g1, ...), where the
// last one was; and so any op that adds all elements of its operands up to single numbers.
// The norm of all gradients needs one such sum per parameter. On a GPU a gang of them is two
// launches, and adds as each would alone. A CPU's steps are left alone.
//
// Only where it costs no memory. All that the sums read must be there when the last of them runs,
// and is there anyway if somebody reads it who waits for all the sums. That is so with clipping:
// every update waits for the norm. Without it an update waits for its own gradient's sum only, and
// the gradient dies there and then; such sums stay alone. So does the sum of a piece that the ranks
// have added up: until somebody reads the piece, the whole gradient that was sent is still there.
// Of vectors that is next to nothing. And so does a sum that the ranks add up by itself: it travels
// while the backward pass goes on.
#include <algorithm>

#include "body/facts.h"
#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

class Sums {
 public:
  explicit Sums(const Graph& graph) : graph_(graph), old_(graph.scheme().objects.size(), false) {
    const Scheme& scheme = graph.scheme();
    for (const std::vector<Carry>* carries : {&scheme.carries, &scheme.loop}) {
      for (const Carry& c : *carries) mark_old(c.in);
    }
  }

  std::vector<Gang> gangs() const {
    GangKinds kinds(graph_.scheme());
    for (int m = 0; m < graph_.num_calls(); ++m) {
      const Morphism& call = graph_.call(m);
      if (is_sum(call)) kinds.add(m, operand_dtypes(graph_.scheme(), call));
    }
    std::vector<Gang> gangs;
    for (const auto& [kind, candidates] : kinds.all()) {
      const std::vector<int> sums = whose_readers_come_later(all_read_in_any_case(candidates));
      if (sums.size() < 2) continue;
      gangs.push_back({.calls = sums, .at = sums.back(), .source = {"gradients", "sums"}});
    }
    return gangs;
  }

 private:
  // State that the step writes over, and what is seen of it: who writes it waits for its readers,
  // and so would wait for all of a gang.
  void mark_old(Value state) {
    for (const Value v : graph_.shown_of(state)) old_[v] = true;
  }

  bool is_sum(const Morphism& m) const {
    if (!is_row_op(op_named(m.op)) || m.inputs.empty()) return false;
    const auto is_near = [&](Value v) {
      return graph_.scheme()[v].attributes.tier == Tier::kDevice;
    };
    const auto is_free = [&](Value v) { return is_near(v) && !old_[v] && !holds_more(v); };
    const auto is_sent = [&](Value v) {
      return std::any_of(graph_.readers(v).begin(), graph_.readers(v).end(),
                         [&](int reader) { return op_named(graph_.call(reader).op).collective; });
    };
    return std::all_of(m.inputs.begin(), m.inputs.end(), is_free) &&
           std::all_of(m.outputs.begin(), m.outputs.end(), is_near) &&
           std::none_of(m.outputs.begin(), m.outputs.end(), is_sent) &&
           adds_elements(body_of(call_of(graph_.scheme(), m)));
  }

  // A collective is under way until its result is read, and what it sends lives as long.
  bool holds_more(Value v) const {
    const int maker = graph_.maker(graph_.root(v));
    return maker >= 0 && op_named(graph_.call(maker).op).collective &&
           graph_.scheme()[v].type.rank() > 1;
  }

  // The most sums that somebody waits for who reads what one of them read; of these, those whose
  // operands all have a reader who waits for all.
  std::vector<int> all_read_in_any_case(const std::vector<int>& sums) const {
    const Before before(graph_, sums);
    // No sum waits for another one. Places in `sums`.
    std::vector<size_t> apart;
    for (size_t k = 0; k < sums.size(); ++k) {
      bool waits = false;
      for (size_t other = 0; other < sums.size(); ++other) {
        waits = waits || before.has(other, sums[k]);
      }
      if (!waits) apart.push_back(k);
    }
    std::vector<size_t> most;
    for (const size_t k : apart) {
      for (const Value v : graph_.call(sums[k]).inputs) {
        for (const int reader : graph_.readers(v)) {
          std::vector<size_t> found;
          for (const size_t other : apart) {
            if (before.has(other, reader)) found.push_back(other);
          }
          if (found.size() > most.size()) most = std::move(found);
        }
      }
    }
    const auto waits_for_all = [&](int reader) {
      return std::all_of(most.begin(), most.end(), [&](size_t k) { return before.has(k, reader); });
    };
    const auto lives_on = [&](Value v) {
      return leaves_the_step(v) || graph_.maker(v) < 0 ||
             std::any_of(graph_.readers(v).begin(), graph_.readers(v).end(), waits_for_all);
    };
    std::vector<int> result;
    for (const size_t k : most) {
      const std::vector<Value>& in = graph_.call(sums[k]).inputs;
      if (std::all_of(in.begin(), in.end(), lives_on)) result.push_back(sums[k]);
    }
    return result;
  }
  bool leaves_the_step(Value v) const {
    const std::vector<Value>& outputs = graph_.scheme().outputs;
    return graph_.state_of(v) >= 0 || std::count(outputs.begin(), outputs.end(), v) > 0;
  }

  // A gang stands where its last sum was, before all who wait for any of them.
  std::vector<int> whose_readers_come_later(std::vector<int> sums) const {
    for (;;) {
      const auto all_later = [&](const std::vector<int>& calls) {
        return std::all_of(calls.begin(), calls.end(), [&](int m) { return m > sums.back(); });
      };
      std::vector<int> left;
      for (const int sum : sums) {
        const std::vector<Value>& outputs = graph_.call(sum).outputs;
        const bool waits = std::all_of(outputs.begin(), outputs.end(),
                                       [&](Value v) { return all_later(graph_.readers(v)); });
        if (waits && all_later(graph_.holds(sum))) left.push_back(sum);
      }
      if (left.size() == sums.size()) return sums;
      sums = std::move(left);
    }
  }

  const Graph& graph_;
  std::vector<bool> old_;  // per object
};

}  // namespace

extern const Functor functor_gang_sums = {
    .name = "gang_sums",
    .summary = "the sums of all gradients in one pass, where all they read is there",
    .law = Law::kReassociating,
    .by_default = true,
    .may_match_none = true,
    .on_gpu_only = true,
    .rules = {{FunctorPhase::kExact,
               [](Scheme scheme, Application& application) {
                 const std::vector<Gang> gangs = Sums(Graph(scheme)).gangs();
                 return with_gangs(std::move(scheme), gangs, application);
               }}},
};

}  // namespace adjoint

// s0 = square_sum(g0), s1 = square_sum(g1), ...  ->  s0, s1, ... = gang(g0, g1, ...), where the
// last one was; and so any op that adds all elements of its operands up to single numbers.
// The norm of all gradients asks for one such sum per parameter. On a GPU a gang of them is two
// launches, and adds in an order of its own. A CPU's steps are left alone.
//
// Only where it costs no memory. All that the sums read must be there when the last of them runs,
// and is there anyway if somebody reads it who waits for all the sums. That is so with clipping:
// every update waits for the norm. Without it an update waits for its own gradient's sum only, and
// the gradient dies there and then; such sums stay alone.
#include <algorithm>
#include <map>

#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/body_readings.h"

namespace adjoint {

namespace {

class Sums {
 public:
  explicit Sums(const Scheme& scheme)
      : scheme_(scheme),
        made_by_(producers(scheme)),
        read_by_(readers(scheme)),
        waited_for_by_(read_by_),
        stays_(scheme.objects.size(), false),
        written_over_(scheme.objects.size(), false) {
    for (const Value out : scheme.outputs) stays_[out] = true;
    for (const Carry& c : scheme.carries) stays_[c.out] = true;
    for (const std::vector<Carry>* carries : {&scheme.carries, &scheme.loop}) {
      for (const Carry& c : *carries) written_over_[c.in] = true;
    }
    for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
      for (const Value v : scheme.morphisms[i].after) {
        waited_for_by_[v].push_back(static_cast<int>(i));
      }
    }
  }

  Scheme run(Application& application) {
    std::map<std::string, std::vector<int>> by_kind;
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const Morphism& m = scheme_.morphisms[i];
      if (!is_sum(m)) continue;
      std::string kind = gang_kind(m);
      for (const Value in : m.inputs) kind += " " + std::string(name(scheme_[in].type.dtype));
      by_kind[kind].push_back(static_cast<int>(i));
    }
    std::map<int, std::vector<int>> at;
    for (const auto& [kind, candidates] : by_kind) {
      const std::vector<int> sums = whose_readers_come_later(all_read_in_any_case(candidates));
      if (sums.size() < 2) continue;
      at[sums.back()] = sums;
      application.matches += static_cast<int64_t>(sums.size());
      ++application.counts["gangs"];
    }
    return with_gangs(scheme_, at, {"gradients", "sums"});
  }

 private:
  bool is_sum(const Morphism& m) const {
    const OpDef& def = op_named(m.op);
    if (!def.body || def.cpu || def.infer || m.inputs.empty()) return false;
    const auto on_device = [&](Value v) { return scheme_[v].attributes.tier == Tier::kDevice; };
    return std::all_of(m.inputs.begin(), m.inputs.end(), on_device) &&
           std::all_of(m.outputs.begin(), m.outputs.end(), on_device) &&
           std::none_of(m.inputs.begin(), m.inputs.end(), [&](Value v) { return is_old(v); }) &&
           adds_elements(body_of(call_of(scheme_, m)));
  }

  // Is it state that the step writes over, or a view of it? Who writes it waits for its readers,
  // and so would for all of a gang.
  bool is_old(Value v) const {
    if (written_over_[v]) return true;
    if (made_by_[v] < 0) return false;
    const Morphism& m = scheme_.morphisms[made_by_[v]];
    if (!op_named(m.op).view && m.op != "concat") return false;
    return std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value in) { return is_old(in); });
  }

  // Per morphism: must it have run before `m`?
  const std::vector<bool>& run_before(int m) {
    std::vector<bool>& before = before_[m];
    if (!before.empty()) return before;
    before.assign(scheme_.morphisms.size(), false);
    std::vector<int> open = {m};
    while (!open.empty()) {
      const Morphism& next = scheme_.morphisms[open.back()];
      open.pop_back();
      for (const std::vector<Value>* values : {&next.inputs, &next.after}) {
        for (const Value v : *values) {
          const int maker = made_by_[v];
          if (maker < 0 || before[maker]) continue;
          before[maker] = true;
          open.push_back(maker);
        }
      }
    }
    return before;
  }

  // The most sums that somebody waits for who reads what one of them read; of these, those whose
  // operands all have a reader who waits for all.
  std::vector<int> all_read_in_any_case(std::vector<int> sums) {
    const auto of_these = [&](int m) {
      const std::vector<bool>& before = run_before(m);
      std::vector<int> found;
      for (const int sum : sums) {
        if (before[sum]) found.push_back(sum);
      }
      return found;
    };
    // No sum waits for another one.
    std::vector<int> apart;
    for (const int sum : sums) {
      if (of_these(sum).empty()) apart.push_back(sum);
    }
    sums = apart;
    std::vector<int> most;
    for_each_operand(sums, [&](Value v) {
      for (const int reader : read_by_[v]) {
        std::vector<int> found = of_these(reader);
        if (found.size() > most.size()) most = std::move(found);
      }
    });
    const auto waits_for_all = [&](int reader) {
      const std::vector<bool>& before = run_before(reader);
      return std::all_of(most.begin(), most.end(), [&](int sum) { return before[sum]; });
    };
    const auto kept = [&](Value v) {
      return stays_[v] || made_by_[v] < 0 ||
             std::any_of(read_by_[v].begin(), read_by_[v].end(), waits_for_all);
    };
    std::vector<int> result;
    for (const int sum : most) {
      const std::vector<Value>& in = scheme_.morphisms[sum].inputs;
      if (std::all_of(in.begin(), in.end(), kept)) result.push_back(sum);
    }
    return result;
  }

  template <class F>
  void for_each_operand(const std::vector<int>& sums, const F& f) const {
    for (const int sum : sums) {
      for (const Value v : scheme_.morphisms[sum].inputs) f(v);
    }
  }

  // A gang stands where its last sum was, before all who wait for any of them.
  std::vector<int> whose_readers_come_later(std::vector<int> sums) const {
    for (;;) {
      std::vector<int> left;
      for (const int sum : sums) {
        const std::vector<Value>& outputs = scheme_.morphisms[sum].outputs;
        const bool later = std::all_of(outputs.begin(), outputs.end(), [&](Value v) {
          return std::all_of(waited_for_by_[v].begin(), waited_for_by_[v].end(),
                             [&](int reader) { return reader > sums.back(); });
        });
        if (later) left.push_back(sum);
      }
      if (left.size() == sums.size()) return sums;
      sums = std::move(left);
    }
  }

  const Scheme& scheme_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_, waited_for_by_;
  std::vector<bool> stays_;         // per object: to the step's end
  std::vector<bool> written_over_;  // per object: what is carried comes to lie there
  std::map<int, std::vector<bool>> before_;
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
               [](const Scheme& scheme, Application& application) {
                 return Sums(scheme).run(application);
               }}},
};

}  // namespace adjoint

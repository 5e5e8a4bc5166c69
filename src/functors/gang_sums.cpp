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

#include "body/facts.h"
#include "functors/functor.h"
#include "functors/gangs.h"
#include "ops/op_def.h"

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

  // By the last sum's place: all of them.
  std::map<int, std::vector<int>> find(Application& application) {
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
    return at;
  }

 private:
  bool is_sum(const Morphism& m) const {
    const OpDef& def = op_named(m.op);
    if (!is_row_op(def) || m.inputs.empty()) return false;
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
    if (!op_named(m.op).view && op_named(m.op).lies != LiesWithin::kJoins) return false;
    return std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value in) { return is_old(in); });
  }

  // Which of some morphisms must have run before any other: one bit each, handed on in order.
  class Before {
   public:
    Before(const Scheme& scheme, const std::vector<int>& made_by, const std::vector<int>& some)
        : words_((some.size() + 63) / 64), bits_(scheme.morphisms.size() * words_, 0) {
      std::map<int, size_t> bit_of;
      for (size_t k = 0; k < some.size(); ++k) bit_of[some[k]] = k;
      for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
        for (const std::vector<Value>* values :
             {&scheme.morphisms[i].inputs, &scheme.morphisms[i].after}) {
          for (const Value v : *values) {
            const int maker = made_by[v];
            if (maker < 0) continue;
            for (size_t w = 0; w < words_; ++w) word(i, w) |= word(maker, w);
            const auto bit = bit_of.find(maker);
            if (bit != bit_of.end()) word(i, bit->second / 64) |= uint64_t{1} << bit->second % 64;
          }
        }
      }
    }
    bool has_run(size_t k, int before) const {
      return bits_[before * words_ + k / 64] >> k % 64 & 1;
    }

   private:
    uint64_t& word(size_t morphism, size_t w) { return bits_[morphism * words_ + w]; }
    size_t words_;
    std::vector<uint64_t> bits_;  // per morphism: those that ran before it
  };

  // The most sums that somebody waits for who reads what one of them read; of these, those whose
  // operands all have a reader who waits for all.
  std::vector<int> all_read_in_any_case(const std::vector<int>& sums) const {
    const Before before(scheme_, made_by_, sums);
    // No sum waits for another one. Places in `sums`.
    std::vector<size_t> apart;
    for (size_t k = 0; k < sums.size(); ++k) {
      bool waits = false;
      for (size_t other = 0; other < sums.size(); ++other) {
        waits = waits || before.has_run(other, sums[k]);
      }
      if (!waits) apart.push_back(k);
    }
    std::vector<size_t> most;
    for (const size_t k : apart) {
      for (const Value v : scheme_.morphisms[sums[k]].inputs) {
        for (const int reader : read_by_[v]) {
          std::vector<size_t> found;
          for (const size_t other : apart) {
            if (before.has_run(other, reader)) found.push_back(other);
          }
          if (found.size() > most.size()) most = std::move(found);
        }
      }
    }
    const auto waits_for_all = [&](int reader) {
      return std::all_of(most.begin(), most.end(),
                         [&](size_t k) { return before.has_run(k, reader); });
    };
    const auto kept = [&](Value v) {
      return stays_[v] || made_by_[v] < 0 ||
             std::any_of(read_by_[v].begin(), read_by_[v].end(), waits_for_all);
    };
    std::vector<int> result;
    for (const size_t k : most) {
      const std::vector<Value>& in = scheme_.morphisms[sums[k]].inputs;
      if (std::all_of(in.begin(), in.end(), kept)) result.push_back(sums[k]);
    }
    return result;
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
                 const auto gangs = Sums(scheme).find(application);
                 return with_gangs(std::move(scheme), gangs, {"gradients", "sums"});
               }}},
};

}  // namespace adjoint

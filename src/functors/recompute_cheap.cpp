// Results of elementwise and row ops that the backward reads (norms, gelu, silu(g)*u, dropped-out
// values, a parameter's 16-bit copy)  ->  recomputed, if everything they are made from exists in
// the backward anyway. Where a whole segment is recomputed they are recomputed apart, so that they
// do not stay alive from the segment's recomputation to their own block's backward. This frees
// their bytes at the cost of one pass over memory; matrix products and attention are never
// repeated, and nothing is kept to make it possible. It is on by default, so all passes together
// may take a percent of the step at most; those that free most for their time are taken first. An
// object that `fuse` computes inside all its readers (silu(g) inside the gradient of silu(g)*u)
// needs no pass and even saves time.
#include <algorithm>
#include <map>
#include <string>

#include "analysis/graph.h"
#include "analysis/structure.h"
#include "functors/functor.h"
#include "ops/op_def.h"
#include "ops/quantize.h"

namespace adjoint {

namespace {

class Cheap {
 public:
  explicit Cheap(const Scheme& scheme) : scheme_(scheme), made_by_(producers(scheme)) {
    const size_t n = scheme.objects.size();
    read_back_.assign(n, false);
    seen_back_.assign(n, false);
    cheap_.assign(n, false);
    find_backward_reads();
    find_cheap(Residence::kUnsaid);
  }

  // Cheap objects in recomputed segments that both the recomputation and, later, the backward read.
  std::vector<Value> marks_apart() {
    find_cheap(Residence::kRecomputed);
    // Objects that the backward needs recomputed, or that such an object is made from.
    std::vector<bool> wanted(cheap_.size(), false), on_the_way = wanted;
    std::vector<Value> list;
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      if (m.phase != Phase::kForward) continue;
      const bool any = std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value out) {
        const Residence residence = scheme_[out].attributes.residence;
        wanted[out] = (residence == Residence::kRecomputed || residence == Residence::kApart) &&
                      (on_the_way[out] || seen_back_[out]);
        return wanted[out];
      });
      for (const Value out : m.outputs) {
        if (cheap_[out] && seen_back_[out] && on_the_way[out]) list.push_back(out);
      }
      for (const Value in : m.inputs) on_the_way[in] = on_the_way[in] || any;
    }
    return list;
  }

  // Cheap objects that the backward reads.
  std::vector<Value> marks() const {
    std::vector<Value> list;
    for (size_t v = 0; v < cheap_.size(); ++v) {
      if (cheap_[v] && seen_back_[v]) list.push_back(static_cast<Value>(v));
    }
    return list;
  }

  // v, and the cheap objects that it is made from and that are not kept.
  std::vector<Value> with_way(Value v) const {
    std::vector<Value> list = {v};
    for (size_t k = 0; k < list.size(); ++k) {
      for (const Value in : scheme_.morphisms[made_by_[list[k]]].inputs) {
        if (!cheap_[in] || seen_back_[in] || std::count(list.begin(), list.end(), in)) continue;
        list.push_back(in);
      }
    }
    return list;
  }

 private:
  void find_backward_reads() {
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase == Phase::kForward) continue;
      for (const Value in : m.inputs) read_back_[in] = true;
    }
    // A reader of a view reads the object.
    seen_back_ = read_back_;
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      if (m.phase != Phase::kForward || !op_named(m.op).view) continue;
      if (seen_back_[m.outputs[0]]) seen_back_[m.inputs[0]] = true;
    }
  }

  void find_cheap(Residence said) {
    cheap_.assign(scheme_.objects.size(), false);
    // Not cheap are states of the chain, where epochs begin; what is returned or carried, which is
    // kept anyway; and what does not depend on data, which serves all blocks.
    std::vector<bool> stays = returned_or_carried(scheme_);
    for (const Value state : find_chain(scheme_).states) stays[state] = true;
    const std::vector<bool> from_data = depends_on_data(scheme_);
    std::vector<bool> is_input(scheme_.objects.size(), false);
    for (const Value in : scheme_.inputs) is_input[in] = true;
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase != Phase::kForward) continue;
      const OpDef& def = op_named(m.op);
      if (!def.body || (def.effect != Effect::kPure && def.effect != Effect::kRandom)) continue;
      const bool there = std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value in) {
        return is_input[in] || read_back_[in] || cheap_[in];
      });
      for (const Value out : m.outputs) {
        cheap_[out] =
            there && from_data[out] && !stays[out] && scheme_[out].attributes.residence == said;
      }
    }
  }

  const Scheme& scheme_;
  std::vector<int> made_by_;
  std::vector<bool> read_back_;  // by the backward
  std::vector<bool> seen_back_;  // the same, also through a view
  std::vector<bool> cheap_;
};

// Operations that a device does in the time it takes to move a byte. For products this is the
// highest ratio among the sheets in devices/ (16 bits: l4's 77e12 over 0.267e12; float32: l4's
// 19e12; one core: cpu's 90e9 over 9.5e9), so that the step's time is not overestimated. For bodies
// it is the lowest (h200's 30e12 over 4.25e12; cpu's 4.5e9). A launch is 2 us of h200's bandwidth,
// 3 us of a core's.
struct Rates {
  double products, bodies;
  double launch;  // bytes
};
Rates rates(Target target, Dtype dtype) {
  if (target == Target::kCpu) return {.products = 10, .bodies = 0.45, .launch = 3e4};
  return {
      .products = size_of(dtype) < size_of(Dtype::kF32) ? 290.0 : 75.0, .bodies = 7, .launch = 9e6};
}

// Estimates time, in units of bytes moved, with the precisions that are set so far.
class Clock {
 public:
  Clock(const Scheme& scheme, Target target) : scheme_(scheme), target_(target) {
    for (const Value in : scheme.inputs) parts_ = std::max(parts_, scheme[in].attributes.parts);
  }

  double bytes(Value v) const {
    return static_cast<double>(scheme_[v].type.num_elements() * size_of(dtype(v)).count);
  }
  // One call's launches, one per part of the batch.
  double launch() const { return parts_ * rates(target_, Dtype::kF32).launch; }
  int parts() const { return parts_; }
  double time(const Morphism& m) const {
    if (op_named(m.op).view) return 0;
    double moved = 0;
    for (const Value v : m.inputs) moved += bytes(v);
    for (const Value v : m.outputs) moved += bytes(v);
    const Rates rate = rates(target_, dtype(m.outputs[0]));
    const auto flops = static_cast<double>(count_flops(call_of(scheme_, m)));
    return launch() + std::max(moved, flops / (op_named(m.op).body ? rate.bodies : rate.products));
  }
  // The arithmetic of a call that is fused into another and moves no bytes.
  double arithmetic(const Morphism& m) const {
    return static_cast<double>(count_flops(call_of(scheme_, m))) /
           rates(target_, Dtype::kF32).bodies;
  }
  // The step's products and attention; bodies do not count, because it is not known yet how they
  // will be fused.
  double step() const {
    double sum = 0;
    for (const Morphism& m : scheme_.morphisms) {
      if (!op_named(m.op).body && !op_named(m.op).view) sum += time(m) - launch();
    }
    return sum;
  }

 private:
  Dtype dtype(Value v) const {
    const Object& object = scheme_[v];
    return dtype_named(object.attributes.precision).value_or(object.type.dtype);
  }

  const Scheme& scheme_;
  Target target_;
  int parts_ = 1;
};

// Objects that could be recomputed, of one kind: the same in every block.
struct CheapChoice {
  Residence residence = Residence::kRecomputed;
  std::vector<Value> values = {};
  double freed = 0, cost = 0;  // bytes, and time; below 0: it saves time
};

class Choices {
 public:
  Choices(const Scheme& scheme, Target target)
      : scheme_(scheme), clock_(scheme, target), graph_(scheme) {}

  std::vector<CheapChoice> found() {
    Cheap cheap(scheme_);
    for (const Value v : cheap.marks()) add(v, cheap.with_way(v), Residence::kRecomputed);
    for (const Value v : cheap.marks_apart()) add(v, {v}, Residence::kApart);
    add_parameters();
    add_joined();
    std::vector<CheapChoice> list;
    for (auto& [kind, choice] : by_kind_) list.push_back(std::move(choice));
    std::stable_sort(list.begin(), list.end(), [](const CheapChoice& a, const CheapChoice& b) {
      return a.cost * b.freed < b.cost * a.freed;
    });
    return list;
  }
  double step() const { return clock_.step(); }

 private:
  CheapChoice& of_kind(const std::string& kind, Residence residence) {
    CheapChoice& choice = by_kind_[kind + (residence == Residence::kApart ? " apart" : "")];
    choice.residence = residence;
    return choice;
  }

  void add(Value v, const std::vector<Value>& way, Residence residence) {
    const Morphism& maker = graph_.call(graph_.maker(v));
    std::string kind = maker.op;
    for (const Value in : maker.inputs) kind += " " + to_string(scheme_[in].type);
    CheapChoice& choice = of_kind(kind, residence);
    choice.freed += clock_.bytes(v);
    choice.values.insert(choice.values.end(), way.begin(), way.end());
    if (residence == Residence::kRecomputed && way.size() == 1 && is_joined_back(v)) {
      choice.cost += time_inside_readers(v);
      return;
    }
    for (const Value w : way) choice.cost += clock_.time(graph_.call(graph_.maker(w)));
  }

  // Whether `fuse` computes v inside this reader, so that v is not stored: the reader is an
  // elementwise or row op over the same elements, as the gradient of silu(g)*u is for silu(g).
  bool is_inside(const Morphism& reader, Value v) const {
    const OpDef& def = op_named(reader.op);
    const auto is_like_v = [&](Value out) {  // a sum over rows may prevent fusion
      return scheme_[out].type.num_elements() == scheme_[v].type.num_elements();
    };
    return def.body && !def.view && def.effect == Effect::kPure &&
           std::all_of(reader.outputs.begin(), reader.outputs.end(), is_like_v);
  }
  bool is_joined(Value v, bool forward) const {
    bool any = false;
    for (const int reader : graph_.readers(v)) {
      const Morphism& m = scheme_.morphisms[reader];
      // If the backward reads a view of v, v must be in memory.
      if (!forward && op_named(m.op).view && is_read_back(m.outputs[0])) return false;
      if ((m.phase == Phase::kForward) != forward) continue;
      if (!is_inside(m, v)) return false;
      any = true;
    }
    return any;
  }
  bool is_read_back(Value v) const {
    return std::any_of(graph_.readers(v).begin(), graph_.readers(v).end(), [&](int reader) {
      const Morphism& m = scheme_.morphisms[reader];
      return m.phase != Phase::kForward || (op_named(m.op).view && is_read_back(m.outputs[0]));
    });
  }
  // Short rows are not fused with elementwise ops, so ops that need whole rows are left out.
  bool is_joined_back(Value v) const {
    const Morphism& maker = graph_.call(graph_.maker(v));
    return !body_of(call_of(scheme_, maker)).needs_whole_rows() && is_joined(v, false);
  }

  // Every reader of v in the backward reads v's operands instead of v, if it does not read them
  // already, and computes v. Where the forward fuses v into its readers, too, v is never written.
  double time_inside_readers(Value v) const {
    const Morphism& maker = graph_.call(graph_.maker(v));
    double time = is_joined(v, true) ? -clock_.bytes(v) : 0;
    for (const int reader : graph_.readers(v)) {
      const Morphism& m = scheme_.morphisms[reader];
      if (m.phase == Phase::kForward) continue;
      time += clock_.arithmetic(maker) - clock_.bytes(v);
      for (const Value in : maker.inputs) {
        if (!is_read_around(m, in)) time += clock_.bytes(in);
      }
    }
    return time;
  }
  // Whether the reader, or one that is fused behind it, reads `in` too.
  bool is_read_around(const Morphism& reader, Value in) const {
    const auto reads = [&](const Morphism& m) {
      return std::count(m.inputs.begin(), m.inputs.end(), in) > 0;
    };
    if (reads(reader)) return true;
    for (const Value out : reader.outputs) {
      for (const int next : graph_.readers(out)) {
        const Morphism& m = scheme_.morphisms[next];
        if (is_inside(m, out) && reads(m)) return true;
      }
    }
    return false;
  }

  // A parameter is always in memory, so its 16-bit copy need not be kept.
  void add_parameters() {
    const auto is_narrow = [](const Object& o) {
      return dtype_named(o.attributes.precision).has_value();
    };
    if (std::none_of(scheme_.objects.begin(), scheme_.objects.end(), is_narrow)) return;
    // A kept copy is made once, before all parts of the batch; else it is made twice per part, for
    // forward and backward.
    const double passes = 2.0 * clock_.parts() - 1;
    for (const Value in : scheme_.inputs) {
      const Object& object = scheme_[in];
      if (object.role != Role::kParameter || code_format(object.attributes.precision)) continue;
      if (object.attributes.residence != Residence::kUnsaid) continue;
      CheapChoice& choice = of_kind("parameter " + to_string(object.type), Residence::kRecomputed);
      const double elements = static_cast<double>(object.type.num_elements());
      choice.values.push_back(in);
      choice.freed += 2 * elements;
      choice.cost += passes * (clock_.bytes(in) + 2 * elements + clock_.launch());
    }
  }

  // Joined parameters in the host tier are fetched together for every block that reads them.
  void add_joined() {
    for (const Morphism& m : scheme_.morphisms) {
      if (op_named(m.op).lies != LiesWithin::kJoins || m.phase != Phase::kForward) continue;
      const bool away = std::all_of(m.inputs.begin(), m.inputs.end(), [&](Value in) {
        return scheme_[in].role == Role::kParameter && scheme_[in].attributes.tier == Tier::kHost;
      });
      const Value joined = m.outputs[0];
      if (!away || scheme_[joined].attributes.residence != Residence::kUnsaid) continue;
      CheapChoice& choice = of_kind("joined", Residence::kRecomputed);
      choice.values.push_back(joined);
      choice.freed += clock_.bytes(joined);
    }
  }

  const Scheme& scheme_;
  Clock clock_;
  Graph graph_;
  std::map<std::string, CheapChoice> by_kind_;
};

Scheme mark_cheap(Scheme scheme, Application& application) {
  Choices choices(scheme, application.options.target);
  const double share = application.args.number("within");
  double left = share * choices.step();
  for (const CheapChoice& choice : choices.found()) {
    if (share < 1 && choice.cost > left) continue;
    left -= std::max(choice.cost, 0.0);  // a choice that saves time does not raise the limit
    for (const Value v : choice.values) {
      Residence& residence = scheme[v].attributes.residence;
      if (residence == choice.residence) continue;  // needed for two choices
      residence = choice.residence;
      ++application.matches;
    }
  }
  return scheme;
}

}  // namespace

extern const Functor functor_recompute_cheap = {
    .name = "recompute_cheap",
    .summary = "recomputes norms and activations in the backward instead of keeping them",
    .law = Law::kExact,
    .params = {{.name = "within",
                .otherwise = "0.01",
                .summary = "the share of the step's time that it may cost; 1: all there is",
                .whole = false,
                .least = 0,
                .most = 1,
                .on_small =
                    "1"}},  // a small copy's products are short, so everything is recomputed there
    .by_default = true,
    .may_match_none = true,
    .rules = {{FunctorPhase::kStepRules, mark_cheap}},
};

}  // namespace adjoint

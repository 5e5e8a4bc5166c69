#include "analysis/stages.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "analysis/use_sums.h"
#include "ops/op_def.h"

namespace adjoint {

ChainCosts chain_costs(const Scheme& scheme, const Chain& chain) {
  ChainCosts costs;
  costs.blocks.assign(chain.length(), 0);
  const std::vector<bool> from_data = depends_on_data(scheme);
  bool behind = false;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    if (m.phase != Phase::kForward || !from_data[m.outputs[0]]) continue;
    // Operations, and bytes at ten operations each: a norm costs little arithmetic and some time.
    auto cost = static_cast<double>(count_flops(call_of(scheme, m)));
    for (const Value out : m.outputs) {
      cost += 10 * static_cast<double>(scheme[out].type.bytes().count);
    }
    const int block = chain.block_of_morphism[i];
    behind = behind || block >= 0;
    (block >= 0 ? costs.blocks[block] : behind ? costs.behind : costs.before) += cost;
  }
  return costs;
}

std::vector<int> balanced_cuts(const ChainCosts& costs, int pieces) {
  const int blocks = static_cast<int>(costs.blocks.size());
  if (pieces < 2 || blocks < pieces) return {};
  std::vector<double> sum = {0};
  for (const double cost : costs.blocks) sum.push_back(sum.back() + cost);
  struct Best {
    double dearest = std::numeric_limits<double>::infinity(), squares = 0;
    int begin = 0;  // of the last piece
    bool operator<(const Best& other) const {
      return dearest != other.dearest ? dearest < other.dearest : squares < other.squares;
    }
  };
  // best[k][b]: the first b blocks in k + 1 pieces.
  std::vector<std::vector<Best>> best(pieces, std::vector<Best>(blocks + 1));
  for (int k = 0; k < pieces; ++k) {
    for (int b = k + 1; b <= blocks - (pieces - 1 - k); ++b) {
      for (int begin = k; begin < b; ++begin) {
        if (k == 0 && begin > 0) break;
        double cost = sum[b] - sum[begin];
        if (k == 0) cost += costs.before;
        if (k == pieces - 1) cost += costs.behind;
        const Best before = k > 0 ? best[k - 1][begin] : Best{.dearest = 0};
        const Best now{.dearest = std::max(before.dearest, cost),
                       .squares = before.squares + cost * cost,
                       .begin = begin};
        if (now < best[k][b]) best[k][b] = now;
      }
    }
  }
  std::vector<int> begins(pieces - 1);
  for (int k = pieces - 1, b = blocks; k > 0; --k) begins[k - 1] = b = best[k][b].begin;
  return begins;
}

namespace {

// Beside tensors, an update reads and makes single numbers: the rate, the step number, a square of
// the norm, the factor that clips. All stages have these, so they do not say where a call is made.
// They are scalars; a cache line leaves room for a few numbers in one object.
constexpr Bytes kSmall{64};

class StageSpread {
 public:
  explicit StageSpread(Scheme scheme)
      : scheme_(std::move(scheme)),
        of_data_(depends_on_data(scheme_)),
        of_parameters_(scheme_.objects.size(), false),
        apart_(summed_use_by_use(scheme_)),
        stage_(scheme_.objects.size(), 0),
        first_of_several_(scheme_.objects.size(), 0) {
    for (const Value in : scheme_.inputs) {
      of_parameters_[in] = scheme_[in].role == Role::kParameter;
    }
    for (const Morphism& m : scheme_.morphisms) {
      const bool any =
          std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value v) { return of_parameters_[v]; });
      for (const Value out : m.outputs) of_parameters_[out] = any;
    }
  }

  Scheme run() {
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase == Phase::kForward) follow_forward(m);
    }
    follow_readers();
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase == Phase::kBackward) follow_backward(m);
    }
    for (const Morphism& m : scheme_.morphisms) {
      if (m.phase == Phase::kUpdate) follow_update(m);
    }
    for (size_t v = 0; v < scheme_.objects.size(); ++v) {
      scheme_.objects[v].attributes.stage = stage_[v];
    }
    return std::move(scheme_);
  }

 private:
  int said(Value v) const { return scheme_[v].attributes.stage; }
  void set(const Morphism& m, int stage) {
    for (const Value out : m.outputs) stage_[out] = stage;
  }

  // What nobody said is made where the last of its operands is: x + f(x), of which x comes from the
  // stage before.
  void follow_forward(const Morphism& m) {
    if (!of_parameters_[m.outputs[0]] || !of_data_[m.outputs[0]]) return;
    int said_stage = 0, made = 0;
    for (const Value out : m.outputs) said_stage = std::max(said_stage, said(out));
    for (const Value in : m.inputs) {
      if (!is_parameter(in)) made = std::max(made, stage_[in]);
    }
    const int stage = said_stage > 0 ? said_stage : made;
    set(m, std::max(stage, 1));
    by_path_.emplace(m.source.path, std::max(stage, 1));
  }
  bool is_parameter(Value v) const { return scheme_[v].role == Role::kParameter; }

  // Parameters, and what is made of them alone, lie where they are read, if that is one stage.
  void follow_readers() {
    constexpr int kUnread = -1;
    std::vector<int> wanted(scheme_.objects.size(), kUnread);
    const auto join = [](int a, int b) { return a == kUnread ? b : a == b ? a : 0; };
    for (size_t i = scheme_.morphisms.size(); i-- > 0;) {
      const Morphism& m = scheme_.morphisms[i];
      if (m.phase != Phase::kForward) continue;
      int stage = stage_[m.outputs[0]];
      if (of_parameters_[m.outputs[0]] && !of_data_[m.outputs[0]]) {
        stage = kUnread;
        for (const Value out : m.outputs) {
          if (wanted[out] != kUnread) stage = join(stage, wanted[out]);
        }
        if (stage == kUnread) continue;
        set(m, stage);
        if (stage > 0) by_path_.emplace(m.source.path, stage);
      }
      for (const Value in : m.inputs) {
        if (of_parameters_[in] && !of_data_[in]) wanted[in] = join(wanted[in], stage);
      }
    }
    for (const Value in : scheme_.inputs) {
      if (scheme_[in].role == Role::kParameter) stage_[in] = std::max(wanted[in], 0);
    }
  }

  // A gradient's calls are named after the forward call that they are of. A sum of an object's
  // gradients is made where its terms are, and where these differ, where the object was made; of a
  // parameter that several stages read it is made where it is needed.
  void follow_backward(const Morphism& m) {
    std::set<int> stages;
    int first = 0;
    for (const Value in : m.inputs) {
      if (stage_[in] > 0 && scheme_[in].role == Role::kGradient) stages.insert(stage_[in]);
      if (first_of_several_[in]) stages.insert(0), first = first_of_several_[in];
    }
    const auto named = by_path_.find(m.source.path);
    const bool adds = is_addition(call_of(scheme_, m));
    int stage = 0;
    if (named != by_path_.end() && !adds) {
      stage = named->second;
    } else if (stages.size() == 1) {
      stage = *stages.begin();
    } else if (!stages.empty()) {
      const int least = *std::find_if(stages.begin(), stages.end(), [](int s) { return s > 0; });
      if (apart_[m.outputs[0]]) {
        first = first > 0 ? std::min(first, least) : least;
      } else {
        stage = least;
      }
    } else if (of_parameters_[m.outputs[0]]) {
      for (const Value in : m.inputs) stage = std::max(stage, stage_[in]);
    }
    set(m, stage);
    for (const Value out : m.outputs) first_of_several_[out] = stage == 0 ? first : 0;
  }

  // An update is made where its parameter lies. What is made of a large object is made where that
  // is, on the first of several stages; what is made of small numbers alone, by all.
  void follow_update(const Morphism& m) {
    std::set<int> stages;
    bool large = false;
    int first = 0;
    for (const Value in : m.inputs) {
      if (scheme_[in].type.bytes() <= kSmall) continue;
      large = true;
      if (scheme_[in].role == Role::kState && stage_[in] == 0) continue;  // it follows
      stages.insert(stage_[in]);
      if (first_of_several_[in]) first = first_of_several_[in];
    }
    int stage = 0;
    if (large && stages.size() == 1) stage = *stages.begin();
    bool makes_large = false;
    for (const Value out : m.outputs) {
      makes_large = makes_large || scheme_[out].type.bytes() > kSmall;
    }
    if (stage == 0 && first > 0 && !makes_large) stage = first;
    // A small parameter is as much of one stage as a large one.
    if (!large) {
      for (const Value in : m.inputs) {
        if (scheme_[in].role == Role::kParameter) stage = stage_[in];
      }
      if (stage == 0 && m.inputs.size() == 1) stage = stage_[m.inputs[0]];
    }
    set(m, stage);
    for (const Value out : m.outputs) first_of_several_[out] = stage == 0 ? first : 0;
    // Its states have its path.
    for (const Value in : m.inputs) {
      if (scheme_[in].role != Role::kState) continue;
      const bool of_parameter = std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value v) {
        return scheme_[v].role == Role::kParameter &&
               scheme_[v].source.path == scheme_[in].source.path;
      });
      if (of_parameter || scheme_[in].type.bytes() > kSmall) stage_[in] = stage;
    }
  }

  Scheme scheme_;
  std::vector<bool> of_data_, of_parameters_, apart_;
  std::vector<int> stage_;
  std::vector<int> first_of_several_;  // of a parameter's gradient that is made on several stages
  std::unordered_map<std::string, int> by_path_;  // of forward calls
};

}  // namespace

std::vector<bool> parameter_gradients(const Scheme& scheme) {
  std::set<std::string> parameters;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kParameter) parameters.insert(scheme[in].source.path);
  }
  std::vector<bool> is_gradient;
  for (const Object& object : scheme.objects) {
    is_gradient.push_back(object.source.facet.starts_with("grad") &&
                          parameters.count(object.source.path));
  }
  return is_gradient;
}

Scheme spread_stages(Scheme scheme) { return StageSpread(std::move(scheme)).run(); }

}  // namespace adjoint

#include "laws/reach.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "laws/coverage.h"
#include "ops/attention.h"
#include "ops/axes.h"

namespace adjoint {

namespace {

// Every index below this is tried; above it a change is looked for between samples.
constexpr int64_t kEach = 1024;
constexpr int64_t kSamples = 4096;
constexpr int64_t kMostSteps = 1'000'000;  // counts of steps that are tried

// What a condition may depend on: an axis, a count of steps or the ids of an input.
struct Variable {
  Reach::Of of;
  std::string along;
  int64_t size;  // values from 0 on
};

double value_of(const ExprNode& n, double a, double b, double c) {
  switch (n.kind) {
    case ExprKind::kConst:
      return n.value;
    case ExprKind::kAdd:
      return a + b;
    case ExprKind::kSub:
      return a - b;
    case ExprKind::kMul:
      return a * b;
    case ExprKind::kDiv:
      return a / b;
    case ExprKind::kMin:
      return std::min(a, b);
    case ExprKind::kMax:
      return std::max(a, b);
    case ExprKind::kLess:
      return static_cast<double>(a < b);
    case ExprKind::kEqual:
      return static_cast<double>(a == b);
    case ExprKind::kNeg:
      return -a;
    case ExprKind::kExp:
      return std::exp(a);
    case ExprKind::kLog:
      return std::log(a);
    case ExprKind::kSqrt:
      return std::sqrt(a);
    case ExprKind::kTanh:
      return std::tanh(a);
    case ExprKind::kSigmoid:
      return 1 / (1 + std::exp(-a));
    case ExprKind::kErf:
      return std::erf(a);
    case ExprKind::kSin:
      return std::sin(a);
    case ExprKind::kCos:
      return std::cos(a);
    case ExprKind::kFinite:
      return static_cast<double>(std::isfinite(a));
    case ExprKind::kWhole:
      return std::nearbyint(a);
    case ExprKind::kSelect:
      return a != 0 ? b : c;
    default:
      return a;  // a rounding
  }
}

// What a node decides: which of two it is, or which whole number.
std::optional<double> decision(const ExprNode& n, double value, double a, double b) {
  switch (n.kind) {
    case ExprKind::kLess:
    case ExprKind::kEqual:
    case ExprKind::kWhole:
      return value;
    case ExprKind::kMin:
    case ExprKind::kMax:
      return static_cast<double>(a < b);
    default:
      return std::nullopt;
  }
}

bool decides(ExprKind kind) {
  return kind == ExprKind::kLess || kind == ExprKind::kEqual || kind == ExprKind::kWhole ||
         kind == ExprKind::kMin || kind == ExprKind::kMax;
}

class Finder {
 public:
  Finder(const Scheme& scheme, const std::map<std::string, int64_t>& ids_below)
      : scheme_(scheme), known_(scheme.objects.size()), maker_(scheme.objects.size(), -1) {
    for (const Value in : scheme.inputs) {
      const Object& object = scheme[in];
      if (object.role != Role::kInput) continue;
      if (object.type.rank() > 0) samples_.insert(object.type.axes[0].name);
      if (object.type.rank() > 1) positions_.insert(object.type.axes[1].name);
      const auto ids = ids_below.find(object.source.path);
      if (is_float(object.type.dtype) || ids == ids_below.end()) continue;
      begin(in, {Reach::Of::kIds, object.source.path, ids->second});
    }
    for (const Value v : step_counters(scheme)) {
      begin(v, {Reach::Of::kSteps, to_string(scheme[v].source), kMostSteps});
      for (const Carry& carry : scheme.carries) {
        if (carry.in == v) after_[carry.out] = v;
      }
    }
  }

  std::vector<Reach> find() {
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const Morphism& m = scheme_.morphisms[i];
      for (const Value out : m.outputs) maker_[out] = static_cast<int>(i);
      if (m.phase == Phase::kForward) take_shape(m);
      const OpDef& op = op_named(m.op);
      if (op.body || says_body(m)) {
        take_body(m, static_cast<int>(i));
      } else if (m.inputs.size() == 1 && m.outputs.size() == 1) {
        pass_on(m);
      }
    }
    return std::move(found_);
  }

 private:
  using Assignment = std::map<int, double>;  // of variables

  void begin(Value v, Variable variable) { known_[v] = {number_of(std::move(variable))}; }

  int number_of(Variable variable) {
    for (size_t k = 0; k < variables_.size(); ++k) {
      if (variables_[k].of == variable.of && variables_[k].along == variable.along) {
        return static_cast<int>(k);
      }
    }
    variables_.push_back(std::move(variable));
    return static_cast<int>(variables_.size()) - 1;
  }

  Reach::Of use_of(const std::string& axis) const {
    if (positions_.count(axis)) return Reach::Of::kPositions;
    return samples_.count(axis) ? Reach::Of::kSamples : Reach::Of::kOther;
  }

  // Two axes of one object may have one label, so the place of an axis tells them apart.
  int variable_of(const std::vector<Axis>& space, int from_end) {
    const Axis& axis = space[space.size() - 1 - from_end];
    const int k =
        number_of({use_of(axis.name), axis.name + "/" + std::to_string(from_end), axis.size});
    variables_[k].size = std::max(variables_[k].size, axis.size);
    return k;
  }

  // A view, or the same numbers at other places.
  void pass_on(const Morphism& m) {
    const OpCall call = call_of(scheme_, m);
    const bool same = op_named(m.op).view || is_cast(call) || is_linear_together(call);
    if (same && known_[m.inputs[0]]) known_[m.outputs[0]] = known_[m.inputs[0]];
  }

  void note(const Morphism& m, const std::string& what, Reach::Of of, std::string along,
            int64_t at) {
    if (const size_t place = along.rfind('/'); place != std::string::npos) along.resize(place);
    found_.push_back({.key = kind_of(to_string(m.source)) + "|" + m.op + "|" + what,
                      .of = of,
                      .along = std::move(along),
                      .at = at,
                      .source = to_string(m.source),
                      .op = m.op});
  }

  // What a call says of lengths by its shape alone.
  void take_shape(const Morphism& m) {
    const OpCall call = call_of(scheme_, m);
    const auto take = [&](const char* what, const Axis& axis, int64_t at) {
      if (use_of(axis.name) == Reach::Of::kPositions && at > 0 && at < axis.size) {
        note(m, what, Reach::Of::kPositions, axis.name, at);
      }
    };
    if (op_named(m.op).attends) {
      const AttentionOperands operands(call, call.inputs.size());
      const Axis& positions = call.inputs[0].axes[1];
      take("window", positions, operands.shape.window);
      if (operands.bias >= 0) take("bias", positions, call.inputs[operands.bias].dim(1));
    }
    if (call.attrs.count("start") && call.attrs.count("size") && !call.inputs.empty()) {
      take("start", call.inputs[0].axes[slice_axis(call)], call.integer("start"));
    }
  }

  void take_body(const Morphism& m, int index) {
    const OpCall call = call_of(scheme_, m);
    const Body body = body_of(call);
    const bool indexed = body.uses_index();
    const auto is_known = [&](Value v) { return known_[v].has_value(); };
    if (!indexed && std::none_of(m.inputs.begin(), m.inputs.end(), is_known)) return;
    Work& work = works_[index] = {.body = body, .space = space_of(call), .known = {}, .at = {}};
    // Labels are the objects': an op that is told a shape has none.
    const std::vector<Axis>& made = scheme_[m.outputs[0]].type.axes;
    if (made.size() == work.space.size()) work.space = made;
    work.known.resize(body.nodes.size());
    for (size_t k = 0; k < body.nodes.size(); ++k) {
      const ExprNode& n = body.nodes[k];
      switch (n.kind) {
        case ExprKind::kInput:
          work.known[k] = known_[m.inputs[n.index]];
          break;
        case ExprKind::kIndex:
          work.known[k] = {variable_of(work.space, n.index)};
          work.at[static_cast<int>(k)] = *work.known[k]->begin();
          break;
        case ExprKind::kRandom:
        case ExprKind::kRowSum:
        case ExprKind::kRowMax:
        case ExprKind::kRotate:
          break;
        default:
          work.known[k].emplace();
          for (const int arg : n.args) {
            if (arg < 0 || !work.known[k]) continue;
            if (!work.known[arg]) {
              work.known[k].reset();
            } else {
              work.known[k]->insert(work.known[arg]->begin(), work.known[arg]->end());
            }
          }
      }
    }
    for (size_t out = 0; out < m.outputs.size() && out < body.outputs.size(); ++out) {
      if (body.outputs[out].summed_axes == 0) {
        known_[m.outputs[out]] = work.known[body.outputs[out].node];
      }
    }
    // A count of steps is a variable before and after the step.
    for (const Value out : m.outputs) {
      if (const auto counted = after_.find(out); counted != after_.end()) {
        known_[out] = known_[counted->second];
      }
    }
    std::string constants;
    for (const auto& [name, value] : m.attrs) constants += name + "=" + to_string(value) + ";";
    for (size_t k = 0; k < body.nodes.size(); ++k) {
      if (!decides(body.nodes[k].kind) || !work.known[k] || work.known[k]->empty()) continue;
      const std::string what = std::to_string(k);
      if (!tried_.insert(kind_of(to_string(m.source)) + m.op + what + constants).second) continue;
      decide(m, index, static_cast<int>(k));
    }
  }

  // Where the decision of a node is first another one than at 0, along each of its variables, the
  // others being as small or as large as they can be.
  void decide(const Morphism& m, int index, int node) {
    for (const int along : *works_[index].known[node]) {
      const Variable& variable = variables_[along];
      std::optional<int64_t> first;
      for (const bool largest : {false, true}) {
        Assignment at;
        for (const int other : *works_[index].known[node]) {
          at[other] = largest ? static_cast<double>(variables_[other].size - 1) : 0;
        }
        const auto decided = [&](int64_t value) {
          at[along] = static_cast<double>(value);
          std::map<std::pair<int, int>, double> values;
          return decision_at(index, node, at, values);
        };
        const std::optional<int64_t> change = first_change(decided, variable.size);
        if (change) first = std::min(first.value_or(*change), *change);
      }
      if (first) note(m, std::to_string(node), variable.of, variable.along, *first);
    }
  }

  template <class Decided>
  static std::optional<int64_t> first_change(const Decided& decided, int64_t size) {
    const double begin = decided(0);
    const int64_t stride = std::max<int64_t>(1, (size - kEach) / kSamples);
    int64_t before = 0;
    for (int64_t at = 1; at < size;) {
      if (decided(at) != begin) {
        while (at - before > 1) {
          const int64_t middle = before + (at - before) / 2;
          (decided(middle) != begin ? at : before) = middle;
        }
        return at;
      }
      before = at;
      const int64_t next = at + (at < kEach ? 1 : stride);
      at = at + 1 < size ? std::min(next, size - 1) : size;
    }
    return std::nullopt;
  }

  double decision_at(int index, int node, const Assignment& at,
                     std::map<std::pair<int, int>, double>& values) const {
    const ExprNode& n = works_.at(index).body.nodes[node];
    const double a = node_at(index, n.args[0], at, values);
    const double b = n.args[1] < 0 ? 0 : node_at(index, n.args[1], at, values);
    return *decision(n, value_of(n, a, b, 0), a, b);
  }

  double node_at(int index, int node, const Assignment& at,
                 std::map<std::pair<int, int>, double>& values) const {
    const auto [kept, fresh] = values.emplace(std::pair{index, node}, 0);
    if (!fresh) return kept->second;
    const Work& work = works_.at(index);
    const ExprNode& n = work.body.nodes[node];
    double value = 0;
    if (n.kind == ExprKind::kInput) {
      value = object_at(scheme_.morphisms[index].inputs[n.index], at, values);
    } else if (n.kind == ExprKind::kIndex) {
      value = at.at(work.at.at(node));
    } else {
      double args[3] = {};
      for (int k = 0; k < 3; ++k) {
        if (n.args[k] >= 0) args[k] = node_at(index, n.args[k], at, values);
      }
      value = value_of(n, args[0], args[1], args[2]);
    }
    return values[{index, node}] = value;
  }

  double object_at(Value v, const Assignment& at,
                   std::map<std::pair<int, int>, double>& values) const {
    if (const auto counted = after_.find(v); counted != after_.end()) {
      return at.at(*known_[v]->begin()) + 1;
    }
    const int index = maker_[v];
    if (index < 0) return at.at(*known_[v]->begin());
    const Morphism& m = scheme_.morphisms[index];
    const auto work = works_.find(index);
    if (work == works_.end()) return object_at(m.inputs[0], at, values);
    for (size_t out = 0; out < m.outputs.size(); ++out) {
      if (m.outputs[out] == v)
        return node_at(index, work->second.body.outputs[out].node, at, values);
    }
    return 0;
  }

  struct Work {
    Body body;
    std::vector<Axis> space;
    std::vector<std::optional<std::set<int>>> known;  // per node: the variables that decide it
    std::map<int, int> at;                            // per node that is an index: its variable
  };
  const Scheme& scheme_;
  std::vector<Variable> variables_;
  std::vector<std::optional<std::set<int>>> known_;  // per object
  std::vector<int> maker_;                           // per object: -1, it is fed
  std::map<Value, Value> after_;  // a count of steps after the step -> the count before it
  std::map<int, Work> works_;     // by morphism
  std::set<std::string> samples_, positions_, tried_;
  std::vector<Reach> found_;
};

}  // namespace

std::vector<Reach> reaches_of(const Scheme& scheme,
                              const std::map<std::string, int64_t>& ids_below) {
  return Finder(scheme, ids_below).find();
}

std::vector<Value> step_counters(const Scheme& step) {
  std::map<Value, Value> next;
  for (const Carry& carry : step.carries) next[carry.out] = carry.in;
  std::vector<Value> counters;
  for (const Morphism& m : step.morphisms) {
    for (const Value out : m.outputs) {
      const auto carried = next.find(out);
      if (carried == next.end()) continue;
      const Object& state = step[carried->second];
      const bool begins_at_0 = !state.init || state.init->kind == Init::Kind::kZeros;
      if (state.role != Role::kState || state.type.rank() != 0 || !begins_at_0) continue;
      if (!is_addition(call_of(step, m)) || m.inputs[0] != carried->second) continue;
      counters.push_back(carried->second);
    }
  }
  return counters;
}

std::vector<Reach> beyond(const std::vector<Reach>& model, const std::vector<Reach>& seen) {
  std::set<std::string> there;
  for (const Reach& reach : seen) there.insert(reach.key + reach.along);
  std::map<std::string, Reach> missing;
  for (const Reach& reach : model) {
    if (there.count(reach.key + reach.along)) continue;
    const auto [kept, fresh] = missing.emplace(reach.key + reach.along, reach);
    if (!fresh && kept->second.at < reach.at) kept->second = reach;
  }
  std::vector<Reach> list;
  for (auto& [key, reach] : missing) list.push_back(std::move(reach));
  return list;
}

std::string in_words(const Reach& reach) {
  const std::string where = reach.op + " at " + reach.source + ": what it does from ";
  switch (reach.of) {
    case Reach::Of::kPositions:
      return join_parts(where, "position ", reach.at, " on");
    case Reach::Of::kSamples:
      return join_parts(where, "sample ", reach.at, " on");
    case Reach::Of::kIds:
      return join_parts(where, reach.at, " of '", reach.along, "' on");
    case Reach::Of::kSteps:
      return join_parts(where, "step ", reach.at, " on");
    case Reach::Of::kOther:
      break;
  }
  return join_parts(where, reach.at, " of ", reach.along, " on");
}

}  // namespace adjoint

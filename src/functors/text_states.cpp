// State rules of a functor's text: `state average of trained -> d*average + (1 - d)*parameter`.
// What follows a parameter from step to step is carried like a moment of the optimizer: zeros at
// first, or what the rule says, then what the rule makes of it and of the parameter after its
// update. A step that is not taken leaves it, and so does one in between where it changes every so
// many steps. A state that the forward pass reads is there already, as a frozen parameter.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "functors/text_rules.h"
#include "models/elaborate.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

class StateRules : TextRules {
 public:
  using TextRules::TextRules;

  Scheme add_states(Scheme scheme) {
    const Scheme before = scheme;
    const Roles roles(before);
    Names names = names_for(roles.chain().length());
    std::map<Value, Value> updated;  // parameter -> what it is after the step
    for (const Carry& c : before.carries) updated[c.in] = c.out;
    std::optional<Value> taken;  // asked for where there is a state
    for (const StateRule& rule : text_.states) {
      for (const Value v : before.inputs) {
        const auto matches = [&](const Clause& c) {
          return object_matches(before, roles, names, v, c);
        };
        if (before[v].role != Role::kParameter) continue;
        const auto after = updated.find(v);
        const bool read = is_read(rule);
        const bool there = read && before.find(source_of_state(before[v].source.path, rule)) &&
                           before[v].source.facet.empty();
        if (read ? !there : after == updated.end()) continue;
        if (!std::all_of(rule.selector.begin(), rule.selector.end(), matches)) continue;
        if (rule.by_block) {
          const int block = roles.chain().block_of[v];
          if (block < 0) continue;
          names.set(std::string(kBlockNumber), block);
        }
        if (!taken) taken = verdict_of(before);
        add_state(scheme, rule, names, v, after == updated.end() ? v : after->second, *taken);
        application_.note(place(rule.at) + "state " + rule.name, to_string(before[v].source));
        ++application_.matches;
        ++application_.counts[rule.name];
      }
    }
    return scheme;
  }

 private:
  // Whether the step is taken at all: what the norm of all gradients says.
  static Value verdict_of(const Scheme& step) {
    for (const Morphism& m : step.morphisms) {
      const int verdict = op_named(m.op).verdict;
      const auto is_result = [&](Value v) {
        return std::count(step.outputs.begin(), step.outputs.end(), v) > 0;
      };
      if (verdict >= 0 && std::any_of(m.outputs.begin(), m.outputs.end(), is_result)) {
        return m.outputs[verdict];
      }
    }
    CHECK(false, "a step tells its gradient's norm");
  }

  // How many steps were taken before this one.
  Value steps(Scheme& into, Value taken) {
    if (steps_) return *steps_;
    const Source source{"optimizer", application_.functor + ".steps"};
    // There already where the functor is twice in the stack, for other parameters.
    if ((steps_ = into.find(source))) return *steps_;
    steps_ = into.add_input(
        {.type = {Dtype::kF32, {}}, .source = source, .role = Role::kState, .init = Init{}});
    Builder builder(into);
    builder.at(source, Phase::kUpdate, Role::kState);
    into.carries.push_back({*steps_, builder.emit("add", {*steps_, taken})});
    return *steps_;
  }

  // The rule as a scheme of its own, whose inputs are the state, the parameter and the steps.
  Scheme fragment(const StateRule& rule, const Names& names, const Type& type,
                  Labels& labels) const {
    Document document;
    Box box{.name = "model", .at = rule.at};
    Formal whole{.name = rule.name, .dtype = type.dtype, .at = rule.at};
    for (int a = 0; a < type.rank(); ++a) {
      const std::string axis = axis_of(std::string(kParameterAfter), a, type.rank());
      labels[axis] = type.axes[a].name;
      document.axes.push_back(
          {axis, {.number = static_cast<double>(type.dim(a)), .at = rule.at}, rule.at});
      whole.axes.push_back({.kind = Term::Kind::kName, .word = axis, .at = rule.at});
    }
    box.formals.push_back(whole);
    whole.name = kParameterAfter;
    box.formals.push_back(whole);
    box.formals.push_back(
        {.name = std::string(kStepsTaken), .dtype = Dtype::kF32, .axes = {}, .at = rule.at});
    document.numbers = numbers_of(names, rule.at);
    const Sizes sizes{.ranks = {{std::string(kParameterAfter), type.rank()}},
                      .what = "'parameter'"};
    box.body = rule.statements;
    for (Statement& statement : box.body) {
      for (Term& value : statement.values) value = with_sizes(std::move(value), sizes);
    }
    box.body.push_back({{"result"}, {with_sizes(rule.value, sizes)}, rule.at});
    document.boxes.push_back(std::move(box));
    return elaborate(document, text_.file, {});
  }

  void add_state(Scheme& into, const StateRule& rule, const Names& names, Value parameter,
                 Value after, Value taken) {
    const Type type = into[parameter].type;
    Labels labels;
    const Scheme piece = fragment(rule, names, type, labels);
    if (piece.inputs.size() != 3) {
      fail_at(text_.file, rule.at,
              "a state is made of itself, the parameter and numbers; this "
              "rule makes '",
              to_string(piece[piece.inputs[3]].source), "', ", name(piece[piece.inputs[3]].role));
    }
    const Value out = piece.outputs[0];
    if (piece.outputs.size() != 1 || piece[out].type.dtype != type.dtype ||
        !same_shape(piece[out].type, type)) {
      fail_at(text_.file, rule.at, "the state '", rule.name, "' of '", into[parameter].source.path,
              "' must stay ", to_string(type), ", found ",
              to_string(relabelled(piece[out].type, labels)));
    }
    const std::string prefix = application_.functor + ".";
    const Source source = source_of_state(into[parameter].source.path, rule);
    const auto there = into.find(source);
    const auto is_carried = [&](const Carry& c) { return there && c.in == *there; };
    if (there &&
        (!is_read(rule) || std::any_of(into.carries.begin(), into.carries.end(), is_carried))) {
      application_.refuse("it is in the stack twice; name it once");
    }
    const Value count = steps(into, taken);
    const Value state = there ? *there
                              : into.add_input({.type = type,
                                                .source = source,
                                                .role = Role::kState,
                                                .init = beginning_of(rule, names)});
    std::vector<Value> known(piece.objects.size(), -1);
    known[piece.inputs[0]] = state;
    known[piece.inputs[1]] = after;
    known[piece.inputs[2]] = count;
    const auto placed = [&](const Source& at) {
      return Source{source.path, prefix + rule.name + "." + at.path};
    };
    for (size_t v = 0; v < piece.objects.size(); ++v) {
      if (known[v] >= 0) continue;
      Object o = piece.objects[v];
      o.source = placed(o.source);
      o.role = Role::kMetric;  // of the step, and no activation of the model's
      o.type = relabelled(std::move(o.type), labels);
      known[v] = into.add(std::move(o));
    }
    for (Morphism m : piece.morphisms) {
      for (Value& in : m.inputs) in = known[in];
      for (Value& made : m.outputs) made = known[made];
      m.source = placed(m.source);
      m.phase = Phase::kUpdate;
      into.morphisms.push_back(std::move(m));
    }
    Value next = known[out];
    if (const auto due = is_due(into, rule, names, taken)) {
      Builder builder(into);
      builder.at(placed({"due"}), Phase::kUpdate, Role::kMetric);
      next = builder.emit("where", {*due, next, state});
    }
    Builder builder(into);
    builder.at(source, Phase::kUpdate, into[state].role);
    into.carries.push_back({state, builder.emit("where", {taken, next, state})});
    into[into.carries.back().out].frozen = into[state].frozen;
  }

  // Of a rule that changes its state every so many steps: 1 after the first step that is taken and
  // then after every n-th, 0 after the others. 0 steps: after the first alone.
  std::optional<Value> is_due(Scheme& into, const StateRule& rule, const Names& names,
                              Value taken) {
    if (rule.every.empty()) return std::nullopt;
    const double every = names.number(rule.every[0]);
    if (every < 0 || every != std::floor(every)) {
      fail_at(text_.file, rule.every[0].at, "every wants a whole number of steps, or 0 for once, ",
              "found ", print(rule.every[0]), " = ", shortest(every));
    }
    if (every == 1) return std::nullopt;
    const Source source{"optimizer",
                        application_.functor + "." + rule.name + ".wait." + shortest(every)};
    const auto [found, fresh] = due_.emplace(to_string(source), 0);
    if (!fresh) return found->second;
    Builder builder(into);
    if (every == 0) {
      builder.at(with_facet(source, "due"), Phase::kUpdate, Role::kMetric);
      return found->second = builder.emit("equal", {steps(into, taken)}, {{"b", 0.0}});
    }
    // How many steps are still to be waited for.
    const Value wait = into.add_input(
        {.type = {Dtype::kF32, {}}, .source = source, .role = Role::kState, .init = Init{}});
    builder.at(with_facet(source, "due"), Phase::kUpdate, Role::kMetric);
    found->second = builder.emit("equal", {wait}, {{"b", 0.0}});
    builder.at(with_facet(source, "less"), Phase::kUpdate, Role::kMetric);
    const Value less = builder.emit("sub", {wait, taken});
    builder.at(with_facet(source, "next"), Phase::kUpdate, Role::kMetric);
    const Value next = builder.emit("where", {found->second, less}, {{"yes", every - 1}});
    builder.at(source, Phase::kUpdate, Role::kState);
    into.carries.push_back({wait, builder.emit("where", {taken, next, wait})});
    return found->second;
  }

  std::optional<Value> steps_;
  std::map<std::string, Value> due_;  // by the source of what is waited by
};

}  // namespace

Scheme add_states(const FunctorText& text, Application& application, Scheme scheme) {
  return StateRules(text, application).add_states(std::move(scheme));
}

}  // namespace adjoint

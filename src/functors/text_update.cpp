// One parameter's update as an optimizer's text says it. The rule becomes a small model of its own,
// whose inputs are p, g and the states, and is elaborated by the models' notation. joined_update.h
// sets that scheme into the step, so an optimizer that works on elements alone is one call, as
// adamw is.
#include <algorithm>
#include <set>

#include "functors/joined_update.h"
#include "functors/parameter_facts.h"
#include "models/elaborate.h"

namespace adjoint {

namespace {

constexpr const char* kFactor = "the gradient's factor";  // no name that a text could have
constexpr std::string_view kAxisPrefix = "p.";

Term name_term(std::string word, Position at) {
  return {.kind = Term::Kind::kName, .word = std::move(word), .at = at};
}

class TextUpdate {
 public:
  TextUpdate(Builder& builder, const Optimizer& optimizer, const ParameterUpdate& update)
      : builder_(builder),
        step_(builder.scheme()),
        optimizer_(optimizer),
        text_(*optimizer.text),
        update_(update),
        path_(step_[update.parameter].source.path),
        type_(step_[update.parameter].type),
        facts_(text_, type_, update.is) {
    for (const Axis& axis : type_.axes) label(axis);
  }

  void emit() {
    add_inputs();
    elaborate_rule();
    JoinedUpdate update{.piece = piece_,
                        .given = given_,
                        .carried = {},
                        .path = path_,
                        .prefix = text_.name,
                        .ok = update_.ok};
    for (size_t i = 0; i < results_.size(); ++i) {
      check_result(i);
      update.carried.push_back({results_[i].before, piece_.outputs[i]});
    }
    emit_joined(builder_, update);
  }

 private:
  struct Result {
    std::string name;
    Value before;
  };

  // The labels of the parameter's axes, so that they are in no text's way.
  void label(const Axis& axis) {
    std::string name = std::string(kAxisPrefix) + axis.name;
    const auto differs = [&](const auto& known) {
      return known.first == name && known.second != axis.size;
    };
    while (std::any_of(axes_.begin(), axes_.end(), differs)) name += "'";
    axes_.emplace_back(std::move(name), axis.size);
  }

  Document document() const {
    Document document{.boxes = text_.boxes};
    std::set<std::string> set;
    for (const auto& [name, size] : axes_) {
      if (set.insert(name).second) {
        document.axes.push_back({name, {.number = static_cast<double>(size)}, {}});
      }
    }
    document.numbers = numbers_of(optimizer_);
    document.numbers.push_back({"decay", {.number = update_.decay}, {}});
    return document;
  }

  // An input of the piece that is an object of the step.
  void give(Box& box, const std::string& name, Value object, Position at) {
    Formal formal{.name = name, .dtype = step_[object].type.dtype, .at = at};
    const std::vector<Axis>& axes = step_[object].type.axes;
    const bool like_p = same_shape(step_[object].type, type_);
    for (size_t a = 0; a < axes.size(); ++a) {
      Term size = like_p ? name_term(axes_[a].first, at)
                         : Term{.number = static_cast<double>(axes[a].size), .at = at};
      formal.axes.push_back(std::move(size));
    }
    box.formals.push_back(std::move(formal));
    given_.push_back(object);
  }

  // The shape of a term of p, g and rate.
  Type type_of(const OptimizerState& state) {
    if (state.like == name_term("p", {})) return type_;
    Document small = document();
    Box box{.name = "model", .at = state.at};
    give(box, "p", update_.parameter, state.at);
    give(box, "g", update_.gradient, state.at);
    give(box, "rate", update_.rate, state.at);
    given_.clear();
    box.body.push_back({{"state " + state.name}, {facts_(state.like)}, state.at});
    small.boxes.push_back(std::move(box));
    const Scheme piece = elaborate(small, text_.file, {});
    Type type = piece[piece.outputs[0]].type;
    if (piece.outputs.size() != 1 || type.dtype != Dtype::kF32) {
      fail_at(text_.file, state.at, "state '", state.name,
              "': wanted one object of float32, found ",
              piece.outputs.size() == 1 ? to_string(type) : "several");
    }
    for (Axis& axis : type.axes) {
      for (size_t a = 0; a < axes_.size(); ++a) {
        if (axes_[a].first == axis.name) {
          axis.name = type_.axes[a].name;
          break;
        }
      }
    }
    return type;
  }

  Init init_of(const OptimizerState& state) {
    if (!state.start) return {};
    const Settings known = resolve_settings({.numbers = numbers_of(optimizer_)}, text_.file, {});
    const double value = evaluate_number(facts_(*state.start), text_.file, [&](const Term& name) {
      const auto found = known.find(name.word);
      if (found == known.end()) {
        fail_at(text_.file, name.at, "there is no number '", name.word, "' here");
      }
      return found->second;
    });
    return {.kind = Init::Kind::kConstant, .scale = value};
  }

  void add_inputs() {
    results_.push_back({"p", update_.parameter});
    for (const OptimizerState& state : optimizer_.rule.states) {
      const Type type = type_of(state);
      results_.push_back(
          {state.name, step_.add_input({.type = type,
                                        .source = {path_, text_.name + "." + state.name},
                                        .role = Role::kState,
                                        .init = init_of(state)})});
    }
  }

  // The rule as a model: g is divided first, and what is carried is what it gives.
  void elaborate_rule() {
    const std::vector<Statement>& body = optimizer_.rule.body;
    const Position at = body.front().at;
    Document whole = document();
    Box box{.name = "model", .at = at};
    for (const Result& result : results_) {
      give(box, result.name, result.before, at);
      if (result.name == "p") give(box, "g", update_.gradient, at);
    }
    give(box, "rate", update_.rate, at);
    give(box, kFactor, update_.factor, at);
    bool counts = false;
    for (const Statement& s : body) {
      for (const Term& value : s.values) counts = counts || mentions(value, "step");
    }
    if (counts) give(box, "step", update_.steps(), at);
    box.body.push_back({{"g"},
                        {{.kind = Term::Kind::kBinary,
                          .word = "*",
                          .args = {name_term(kFactor, at), name_term("g", at)},
                          .at = at}},
                        at});
    for (Statement s : body) {
      for (Term& value : s.values) value = facts_(std::move(value));
      box.body.push_back(std::move(s));
    }
    Statement last{.names = {}, .values = {}, .at = body.back().at};
    for (const Result& result : results_) {
      last.names.push_back("the next " + result.name);
      last.values.push_back(name_term(result.name, last.at));
    }
    box.body.push_back(std::move(last));
    whole.boxes.push_back(std::move(box));
    piece_ = elaborate(whole, text_.file, {});
    if (piece_.inputs.size() > given_.size()) {
      const Object& extra = piece_[piece_.inputs[given_.size()]];
      fail_at(text_.file, at, "an optimizer has states, and no ", name(extra.role),
              " of its own: '", to_string(extra.source), "'");
    }
  }

  Position last_assignment(const std::string& of) const {
    Position at;
    for (const Statement& s : optimizer_.rule.body) {
      if (std::count(s.names.begin(), s.names.end(), of)) at = s.at;
    }
    return at;
  }

  void check_result(size_t i) const {
    const Type& wanted = step_[results_[i].before].type;
    const bool one_each = piece_.outputs.size() == results_.size();
    if (one_each && piece_[piece_.outputs[i]].type.dtype == wanted.dtype &&
        same_shape(piece_[piece_.outputs[i]].type, wanted)) {
      return;
    }
    fail_at(text_.file, last_assignment(results_[i].name), "'", results_[i].name,
            "' stays what it is, ", to_string(wanted), ", found ",
            one_each ? to_string(piece_[piece_.outputs[i]].type) : "several objects");
  }

  Builder& builder_;
  Scheme& step_;
  const Optimizer& optimizer_;
  const OptimizerText& text_;
  const ParameterUpdate& update_;
  std::string path_;
  Type type_;
  ParameterFacts facts_;
  std::vector<std::pair<std::string, int64_t>> axes_;  // of the parameter: label, size
  std::vector<Result> results_;                        // the parameter, then its states
  std::vector<Value> given_;                           // what the inputs of the piece are
  Scheme piece_;
};

}  // namespace

void update_by_text(Builder& builder, const Optimizer& optimizer, const ParameterUpdate& update) {
  try {
    TextUpdate(builder, optimizer, update).emit();
  } catch (const Error& e) {
    const Object& p = builder.scheme()[update.parameter];
    fail(e.what(), " (p is '", p.source.path, "', ", to_string(p.type), ")");
  }
}

}  // namespace adjoint

// One parameter's update as an optimizer's text says it. The rule becomes a small model of its own,
// whose inputs are p, g and the states, and is elaborated by the models' notation. Of that scheme,
// what works on elements is joined into bodies: one `map` for each shape that is carried, and one
// for each operand that another op wants (a mean, a product). So an optimizer that works on
// elements alone is one call, as adamw is.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "body/join.h"
#include "functors/optimizer_text.h"
#include "models/elaborate.h"

namespace adjoint {

namespace {

constexpr const char* kFactor = "the gradient's factor";  // no name that a text could have
constexpr std::string_view kAxisPrefix = "p.";
constexpr int kMostFallbacks = 8;

Term name_term(std::string word, Position at) {
  return {.kind = Term::Kind::kName, .word = std::move(word), .at = at};
}

// rank(p), elements(p), dim(p, -1), matrix(p) -> numbers.
class Facts {
 public:
  Facts(const OptimizerText& text, const Type& parameter, const ParameterIs& is)
      : text_(text), parameter_(parameter), is_(is), words_(parameter_facts()) {}

  Term operator()(Term term) const {
    if (const auto number = fact(term)) return {.number = *number, .at = term.at};
    for (Term& t : term.args) t = (*this)(std::move(t));
    for (auto& [word, t] : term.keywords) t = (*this)(std::move(t));
    for (Term& t : term.repeat) t = (*this)(std::move(t));
    return term;
  }

 private:
  std::optional<double> fact(const Term& term) const {
    if (term.kind != Term::Kind::kCall || term.args.empty() || !term.keywords.empty()) return {};
    const Term& of = term.args[0];
    if (of.kind != Term::Kind::kName || of.word != "p" || !term.repeat.empty()) return {};
    for (const Box& box : text_.boxes) {
      if (box.name == term.word) return {};
    }
    if (term.word == "dim" && term.args.size() == 2) return dim(term.args[1]);
    if (term.args.size() != 1) return {};
    if (term.word == "rank") return parameter_.rank();
    if (term.word == "elements") return static_cast<double>(parameter_.num_elements());
    if (std::find(words_.begin(), words_.end(), term.word) == words_.end()) return {};
    return is_(term.word);
  }

  double dim(const Term& axis) const {
    const double at = evaluate_number(axis, text_.file, [&](const Term& name) -> double {
      fail_at(text_.file, name.at, "dim: wanted the number of an axis, found '", name.word, "'");
    });
    const int rank = parameter_.rank(), i = static_cast<int>(at);
    if (i != at || i < -rank || i >= rank) {
      fail_at(text_.file, axis.at, "dim: wanted an axis of ", shape_string(parameter_),
              " by a number from ", -rank, " to ", rank - 1, ", found ", print(axis));
    }
    return static_cast<double>(parameter_.dim(i));
  }

  const OptimizerText& text_;
  const Type& parameter_;
  const ParameterIs& is_;
  std::vector<std::string> words_;
};

void append_numbers(Document& document, const Optimizer& optimizer) {
  for (const FunctorParam& p : optimizer.text->params) {
    document.numbers.push_back({p.name, optimizer.args.term(p.name), {}});
  }
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
    check_results();
    emit_results();
  }

 private:
  struct Result {
    std::string name;
    Value before, wanted;  // of the step, of the piece
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
    append_numbers(document, optimizer_);
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
    if (state.start.empty()) return {};
    Document numbers;
    append_numbers(numbers, optimizer_);
    const Settings known = resolve_settings(numbers, text_.file, {});
    const double value = evaluate_number(facts_(state.start[0]), text_.file, [&](const Term& name) {
      const auto found = known.find(name.word);
      if (found == known.end()) {
        fail_at(text_.file, name.at, "there is no number '", name.word, "' here");
      }
      return found->second;
    });
    return {.kind = Init::Kind::kConstant, .scale = value};
  }

  void add_inputs() {
    results_.push_back({"p", update_.parameter, -1});
    for (const OptimizerState& state : optimizer_.rule.states) {
      const Type type = type_of(state);
      results_.push_back({state.name,
                          step_.add_input({.type = type,
                                           .source = {path_, text_.name + "." + state.name},
                                           .role = Role::kState,
                                           .init = init_of(state)}),
                          -1});
    }
  }

  static bool speaks_of(const Term& term, std::string_view name) {
    const auto speaks = [&](const Term& t) { return speaks_of(t, name); };
    return (term.kind == Term::Kind::kName && term.word == name) ||
           std::any_of(term.args.begin(), term.args.end(), speaks) ||
           std::any_of(term.keywords.begin(), term.keywords.end(),
                       [&](const auto& k) { return speaks(k.second); });
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
      for (const Term& value : s.values) counts = counts || speaks_of(value, "step");
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
    made_by_ = producers(piece_);
    known_.assign(piece_.objects.size(), -1);
    for (size_t i = 0; i < piece_.inputs.size(); ++i) {
      if (i < given_.size()) {
        known_[piece_.inputs[i]] = given_[i];
      } else {
        fail_at(text_.file, at, "an optimizer has states, and no ",
                name(piece_[piece_.inputs[i]].role), " of its own: '",
                to_string(piece_[piece_.inputs[i]].source), "'");
      }
    }
  }

  Position last_assignment(const std::string& of) const {
    Position at;
    for (const Statement& s : optimizer_.rule.body) {
      if (std::count(s.names.begin(), s.names.end(), of)) at = s.at;
    }
    return at;
  }

  void check_results() {
    for (size_t i = 0; i < results_.size(); ++i) {
      const Type& wanted = step_[results_[i].before].type;
      const bool one_each = piece_.outputs.size() == results_.size();
      if (!one_each || piece_[piece_.outputs[i]].type.dtype != wanted.dtype ||
          piece_[piece_.outputs[i]].type.rank() != wanted.rank() ||
          !same_shape(piece_[piece_.outputs[i]].type, wanted)) {
        fail_at(text_.file, last_assignment(results_[i].name), "'", results_[i].name,
                "' stays what it is, ", to_string(wanted), ", found ",
                one_each ? to_string(piece_[piece_.outputs[i]].type) : "several objects");
      }
      results_[i].wanted = piece_.outputs[i];
    }
  }

  // Made element by element of what it reads, in float32.
  bool is_lazy(Value v) const {
    if (made_by_[v] < 0 || known_[v] >= 0 || piece_[v].type.dtype != Dtype::kF32) return false;
    const Morphism& m = piece_.morphisms[made_by_[v]];
    if (!is_row_op(op_named(m.op)) || m.outputs.size() != 1) return false;
    const Body body = body_of(call_of(piece_, m));
    const BodyOutput& out = body.outputs[0];
    return out.summed_axes == 0 && out.row == BodyOutput::Row::kWhole && !body.needs_whole_rows() &&
           std::none_of(body.nodes.begin(), body.nodes.end(), [](const ExprNode& n) {
             return n.kind == ExprKind::kIndex || n.kind == ExprKind::kRandom;
           });
  }

  // What an expression of v reads; makes what is no expression.
  void find_leaves(Value v, std::vector<Value>& leaves, std::set<Value>& seen) {
    if (!seen.insert(v).second) return;
    if (is_lazy(v)) {
      for (const Value in : piece_.morphisms[made_by_[v]].inputs) find_leaves(in, leaves, seen);
      return;
    }
    make(v);
    leaves.push_back(v);
  }

  Builder& at(const std::string& facet, Role role) {
    return builder_.at({path_, facet}, Phase::kUpdate, role);
  }

  // An object of the step that is v.
  Value make(Value v) {
    if (known_[v] >= 0) return known_[v];
    const Morphism& m = piece_.morphisms[made_by_[v]];
    const std::string facet = text_.name + "." + piece_[v].source.path;
    if (is_lazy(v)) {
      std::vector<Value> leaves;
      std::set<Value> seen;
      find_leaves(v, leaves, seen);
      at(facet, Role::kMetric);
      return known_[v] = emit_map({v}, leaves, /*guarded=*/{}).front();
    }
    std::vector<Value> inputs;
    for (const Value in : m.inputs) inputs.push_back(make(in));
    at(facet, Role::kMetric);
    const std::vector<Value> made = builder_.emit_all(m.op, std::move(inputs), m.attrs);
    for (size_t k = 0; k < made.size(); ++k) {
      known_[m.outputs[k]] = made[k];
      step_[made[k]].source = {path_, text_.name + "." + piece_[m.outputs[k]].source.path};
    }
    return known_[v];
  }

  int node_of(Body& body, Value v, const std::map<Value, int>& operands,
              std::map<Value, int>& nodes) {
    if (const auto found = nodes.find(v); found != nodes.end()) return found->second;
    if (const auto leaf = operands.find(v); leaf != operands.end()) {
      return nodes[v] = input(body, leaf->second).node;
    }
    const Morphism& m = piece_.morphisms[made_by_[v]];
    const Body own = body_of(call_of(piece_, m));
    std::vector<int> renamed;
    for (ExprNode n : own.nodes) {
      if (n.kind == ExprKind::kInput) {
        renamed.push_back(node_of(body, m.inputs[n.index], operands, nodes));
        continue;
      }
      for (int a = 0; a < facts(n.kind).arity; ++a) n.args[a] = renamed[n.args[a]];
      renamed.push_back(body.add(std::move(n)));
    }
    return nodes[v] = renamed[own.outputs[0].node];
  }

  // One map that gives all of `wanted`, which have one shape. `guarded`: what each of them stays
  // when the step is not to be taken.
  std::vector<Value> emit_map(const std::vector<Value>& wanted, std::vector<Value> leaves,
                              const std::vector<Value>& guarded) {
    // Numbers that all updates share come last: that is how gang_updates knows them.
    std::stable_partition(leaves.begin(), leaves.end(),
                          [&](Value v) { return piece_[v].type.rank() > 0; });
    std::map<Value, int> operands, nodes;
    std::vector<Value> inputs;
    const auto operand = [&](Value object) {
      const auto at = std::find(inputs.begin(), inputs.end(), object) - inputs.begin();
      if (at == std::ssize(inputs)) inputs.push_back(object);
      return static_cast<int>(at);
    };
    std::vector<int> before;
    for (const Value object : guarded) before.push_back(operand(object));
    for (const Value leaf : leaves) operands[leaf] = operand(known_[leaf]);
    Body body;
    const Expr ok = guarded.empty() ? Expr{} : input(body, operand(update_.ok));
    std::vector<Type> types, results;
    for (size_t k = 0; k < wanted.size(); ++k) {
      Expr next{&body, node_of(body, wanted[k], operands, nodes)};
      if (!guarded.empty()) next = select(ok, next, input(body, before[k]));
      body.outputs.push_back({.node = next.node});
      results.push_back(with_dtype(piece_[wanted[k]].type, Dtype::kF32));
    }
    for (const Value object : inputs) types.push_back(step_[object].type);
    const std::vector<Axis> space =
        guarded.empty() ? piece_[wanted[0]].type.axes : step_[guarded[0]].type.axes;
    const MapCall call = map_call(std::move(body), space, types, results);
    std::vector<Value> used;
    for (const int i : call.operands) used.push_back(inputs[i]);
    return builder_.emit_all("map", std::move(used), call.attrs);
  }

  // Results of one shape are one call. A larger one may read the state that a smaller one
  // overwrites, and never the other way around, so larger ones come first.
  void emit_results() {
    std::vector<std::vector<size_t>> groups;
    std::set<Value> seen;
    std::vector<Value> unused;
    for (size_t i = 0; i < results_.size(); ++i) {
      find_leaves(results_[i].wanted, unused, seen);
      // With the labels of their axes, too: only then may a result overwrite an operand.
      const auto alike = [&](const std::vector<size_t>& group) {
        return step_[results_[i].before].type == step_[results_[group[0]].before].type;
      };
      const auto group = std::find_if(groups.begin(), groups.end(), alike);
      if (group == groups.end()) {
        groups.push_back({i});
      } else {
        group->push_back(i);
      }
    }
    const auto size = [&](const std::vector<size_t>& group) {
      const Type& type = step_[results_[group[0]].before].type;
      return std::pair(type.num_elements(), type.rank());
    };
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const auto& a, const auto& b) { return size(a) > size(b); });
    for (const std::vector<size_t>& group : groups) emit_group(group);
  }

  void emit_group(const std::vector<size_t>& group) {
    std::vector<Value> wanted, before, leaves;
    std::set<Value> seen;
    for (const size_t i : group) {
      wanted.push_back(results_[i].wanted);
      before.push_back(results_[i].before);
      find_leaves(results_[i].wanted, leaves, seen);
    }
    builder_.at(step_[before[0]].source, Phase::kUpdate, Role::kState);
    const std::vector<Value> after = emit_map(wanted, leaves, before);
    for (size_t k = 0; k < after.size(); ++k) {
      step_[after[k]].source = step_[before[k]].source;
      step_[after[k]].role = step_[before[k]].role;
      step_[after[k]].type = step_[before[k]].type;
      step_.carries.push_back({before[k], after[k]});
    }
  }

  Builder& builder_;
  Scheme& step_;
  const Optimizer& optimizer_;
  const OptimizerText& text_;
  const ParameterUpdate& update_;
  std::string path_;
  Type type_;
  Facts facts_;
  std::vector<std::pair<std::string, int64_t>> axes_;  // of the parameter: label, size
  std::vector<Result> results_;                        // the parameter, then its states
  std::vector<Value> given_;                           // what the inputs of the piece are
  Scheme piece_;
  std::vector<int> made_by_;
  std::vector<Value> known_;  // per object of the piece: the step's, or -1
};

}  // namespace

std::vector<std::string> parameter_facts() {
  return {"matrix", "table",        "vector",       "embedding",     "readout",
          "router", "feed_forward", "attention_in", "attention_out", "norm"};
}

Optimizer optimizer_for(Optimizer optimizer, const Type& parameter, const ParameterIs& is,
                        const StepOptions& options) {
  for (int i = 0; i < kMostFallbacks; ++i) {
    if (!optimizer.text) return optimizer;
    const OptimizerText& text = *optimizer.text;
    if (text.cases.empty()) {
      optimizer.rule = text.always;
      return optimizer;
    }
    Document numbers;
    append_numbers(numbers, optimizer);
    const Settings known = resolve_settings(numbers, text.file, {});
    const Facts facts(text, parameter, is);
    const auto holds = [&](const OptimizerCase& one) {
      if (one.when.empty()) return true;
      return evaluate_number(facts(one.when[0]), text.file, [&](const Term& name) {
               const auto found = known.find(name.word);
               if (found != known.end()) return found->second;
               std::vector<std::string> names;
               for (const auto& [other, value] : known) names.push_back(other);
               fail_at(text.file, name.at, "there is no number '", name.word,
                       "' here; of a parameter there are rank(p), elements(p), dim(p, -1), ",
                       join(parameter_facts(), "(p), "), "(p)", did_you_mean(name.word, names));
             }) != 0;
    };
    const auto found = std::find_if(text.cases.begin(), text.cases.end(), holds);
    CHECK(found != text.cases.end(), "a text with cases ends with `otherwise`");
    if (found->instead.empty()) {
      optimizer.rule = found->rule;
      return optimizer;
    }
    optimizer = find_optimizer(found->instead, options);
  }
  fail(optimizer.text->file, ": each optimizer here leaves this parameter to another one");
}

void update_by_text(Builder& builder, const Optimizer& optimizer, const ParameterUpdate& update) {
  try {
    TextUpdate(builder, optimizer, update).emit();
  } catch (const Error& e) {
    const Object& p = builder.scheme()[update.parameter];
    fail(e.what(), " (p is '", p.source.path, "', ", to_string(p.type), ")");
  }
}

}  // namespace adjoint

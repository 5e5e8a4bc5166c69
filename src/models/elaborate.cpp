#include "models/elaborate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "models/elaborator.h"
#include "ops/words.h"

namespace adjoint {

namespace {

// Beyond these a text is a mistake (or a trap), and would end the stack or the memory.
constexpr int64_t kMostCalls = int64_t{1} << 18;
constexpr int kMostAxes = 8;

// Paths that the scheme itself uses at its root.
constexpr std::string_view kReserved[] = {"position", "rotary_table", kRandomCounter};

std::string join_path(const std::string& path, const std::string& component) {
  return path.empty() ? component : path + "." + component;
}

template <class Map>
void append_names(std::vector<std::string>& names, const Map& map) {
  for (const auto& [name, value] : map) names.push_back(name);
}

}  // namespace

std::string axis_label(const Term& term) {
  std::string text = print(term);
  std::erase(text, ',');
  return text;
}

Elaborator::Elaborator(const Document& document, std::string_view file, const ModelConfig& config,
                       const KnownUses& uses)
    : document_(document),
      file_(file),
      name_(config.preset.empty() ? "model" : config.preset),
      settings_(resolve_settings(document, file, config)),
      uses_(uses),
      builder_(scheme_) {}

Scheme Elaborator::run() {
  scheme_.name = name_;
  const Box* model = document_.box("model");
  if (!model) fail(file_, ": there is no box named 'model'");
  open_boxes_.push_back(model);
  Scope scope{.box = *model};
  for (const std::string_view name : kReserved) scope.taken.emplace(name);
  for (const Formal& formal : model->formals) {
    if (!scope.taken.insert(formal.name).second) {
      fail_here(formal.at, "model: '", formal.name, "' is already the name of something");
    }
    const Value first = static_cast<Value>(scheme_.objects.size());
    scope.locals[formal.name] = Objects{scheme_.add_input(
        {.type = type_of(scope, formal), .source = {formal.name}, .role = Role::kInput})};
    accept_objects(first, "model", formal.at);
  }
  scheme_.outputs = finish(run_body(scope), model->body.back().at);
  verify(scheme_);
  return std::move(scheme_);
}

Type Elaborator::type_of(const Scope& scope, const Formal& formal) {
  Type type{.dtype = formal.dtype.value_or(Dtype::kI32)};
  for (const Term& axis : formal.axes) {
    type.axes.push_back({axis_label(axis), whole_number(scope, axis, "the size of an axis")});
  }
  return type;
}

void Elaborator::check_formal(const Scope& scope, const Formal& formal, Value found, Position at) {
  const Type& type = scheme_[found].type;
  const Type wanted = type_of(Scope{.box = scope.box}, formal);
  if ((!formal.axes.empty() && !same_shape(type, wanted)) ||
      (formal.dtype && *formal.dtype != type.dtype)) {
    fail_here(at, scope.box.name, ": ", formal.name, " wants ",
              formal.dtype ? to_string(wanted) : shape_string(wanted), ", found ", to_string(type));
  }
}

// What the last statement names: objects side by side, and behind them losses.
Elaborator::Meaning Elaborator::run_body(Scope& scope) {
  for (const Statement& statement : scope.box.body) run_statement(scope, statement);
  const Statement& last = scope.box.body.back();
  Tuple made;
  for (const std::string& name : last.names) {
    const Meaning& value = scope.locals.find(name)->second;
    if (const auto* loss = std::get_if<Loss>(&value)) {
      made.losses.push_back(*loss);
      continue;
    }
    const auto* objects = std::get_if<Objects>(&value);
    if (!objects) {
      fail_here(last.at, scope.box.name, ": its value must be an object, '", name, "' is ",
                describe(value));
    }
    if (!made.losses.empty()) {
      fail_here(last.at, scope.box.name, ": losses come behind objects, and '", name,
                "' is an object");
    }
    made.objects.insert(made.objects.end(), objects->begin(), objects->end());
  }
  if (made.losses.empty()) return made.objects;
  if (made.objects.empty() && made.losses.size() == 1) return made.losses[0];
  return made;
}

std::string Elaborator::describe(const Meaning& meaning) const {
  if (std::holds_alternative<double>(meaning)) return "a number";
  if (std::holds_alternative<List>(meaning)) return "a list";
  if (std::holds_alternative<Tuple>(meaning)) return "several things";
  return std::holds_alternative<Loss>(meaning) ? "a loss" : "an object";
}

void Elaborator::run_statement(Scope& scope, const Statement& statement) {
  std::vector<Meaning> values;
  for (const Term& term : statement.values) {
    // gamma = param(hidden): a free parameter is called like the statement, if it can be.
    const bool unnamed = term.kind == Term::Kind::kCall && term.word == "param" &&
                         statement.names.size() == 1 && !document_.box(term.word) &&
                         scope.taken.count(statement.names[0]) == 0 &&
                         std::none_of(term.keywords.begin(), term.keywords.end(),
                                      [](const auto& k) { return k.first == "name"; });
    Term named = term;
    if (unnamed) {
      named.keywords.emplace_back(
          "name", Term{.kind = Term::Kind::kName, .word = statement.names[0], .at = term.at});
    }
    values.push_back(evaluate(scope, named));
  }
  if (values.size() != statement.names.size()) {
    // Fewer terms than names: what the terms give is dealt out one by one.
    std::vector<Meaning> single;
    for (const Meaning& value : values) {
      const auto* loss = std::get_if<Loss>(&value);
      if (const auto* objects = std::get_if<Objects>(&value)) {
        for (const Value v : *objects) single.push_back(Objects{v});
      } else if (const auto* tuple = std::get_if<Tuple>(&value)) {
        for (const Value v : tuple->objects) single.push_back(Objects{v});
        for (const List& list : tuple->lists) single.push_back(list);
        for (const Loss& each : tuple->losses) single.push_back(each);
      } else if (loss && loss->size() == 1 && loss->front().weight == 1) {
        single.push_back(Objects{loss->front().sum});
        single.push_back(Objects{loss->front().count});
      } else {
        single.push_back(value);
      }
    }
    values = std::move(single);
  }
  if (values.size() != statement.names.size()) {
    fail_here(statement.at, statement.names.size(), " names for ", values.size(), " values");
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::count(statement.names.begin(), statement.names.end(), statement.names[i]) > 1) {
      fail_here(statement.at, "'", statement.names[i], "' is named twice");
    }
    scope.locals[statement.names[i]] = std::move(values[i]);
  }
}

Elaborator::Meaning Elaborator::evaluate(Scope& scope, const Term& term) {
  switch (term.kind) {
    case Term::Kind::kNumber:
      return term.number;
    case Term::Kind::kName:
      return meaning_of_name(scope, term);
    case Term::Kind::kCall:
      if (is_numeric(scope, term)) return number(scope, term);
      return call(scope, term);
    case Term::Kind::kBinary:
      if (is_numeric(scope, term)) return number(scope, term);
      return combine(scope, term);
    case Term::Kind::kNegate: {
      const Meaning inner = evaluate(scope, term.args[0]);
      if (const auto* plain = std::get_if<double>(&inner)) return -*plain;
      if (std::holds_alternative<Loss>(inner)) {
        return combine_losses({.kind = Term::Kind::kBinary, .word = "*", .at = term.at}, -1.0,
                              inner);
      }
      const auto* objects = std::get_if<Objects>(&inner);
      if (!objects || objects->size() != 1) {
        fail_here(term.at, "-: wants one object, found ",
                  objects ? std::to_string(objects->size()) : describe(inner));
      }
      return emit_infix(scope, term, "scale",
                        {{"x", objects->front()}, {"by", -1.0}, {"plus", 0.0}});
    }
    case Term::Kind::kNot:
      if (is_numeric(scope, term)) return number(scope, term);
      return opposite(scope, term, one_object(scope, term.args[0], "not: its operand"));
    case Term::Kind::kWhen:
      if (term.args.size() < 3) fail_here(term.at, "wanted 'else' and what it is otherwise");
      return evaluate(scope, term.args[holds(scope, term) ? 0 : 2]);
    case Term::Kind::kText:
    case Term::Kind::kList:
      break;
  }
  fail_here(term.at, "wanted an object or a number, found ", print(term));
}

// The condition of a choice is a number: known before anything runs.
bool Elaborator::holds(const Scope& scope, const Term& when) {
  const Term& condition = when.args[1];
  if (condition.kind == Term::Kind::kName) return flag(scope, condition);
  return number(scope, condition) != 0;
}

// Whether a term has numbers only, so that its functions are those of numbers.
bool Elaborator::is_numeric(const Scope& scope, const Term& term) const {
  const auto numeric = [&](const Term& part) { return is_numeric(scope, part); };
  switch (term.kind) {
    case Term::Kind::kNumber:
      return true;
    case Term::Kind::kName: {
      const auto local = scope.locals.find(term.word);
      if (local != scope.locals.end()) return std::holds_alternative<double>(local->second);
      return is_named_here(scope, term.word);
    }
    case Term::Kind::kCall:
      return is_number_function(term.word) && !document_.box(term.word) &&
             std::all_of(term.args.begin(), term.args.end(), numeric);
    case Term::Kind::kBinary:
    case Term::Kind::kNegate:
    case Term::Kind::kNot:
      return std::all_of(term.args.begin(), term.args.end(), numeric);
    case Term::Kind::kWhen:  // lazily: what is not chosen may be anything
    case Term::Kind::kText:
    case Term::Kind::kList:
      return false;
  }
  return false;
}

Elaborator::Meaning Elaborator::meaning_of_name(const Scope& scope, const Term& name) {
  if (const auto local = scope.locals.find(name.word); local != scope.locals.end()) {
    return local->second;
  }
  if (const auto set = settings_.find(name.word); set != settings_.end()) return set->second;
  if (name.word == "l" && scope.repetition) return static_cast<double>(*scope.repetition);
  if (name.word == "position") return Objects{position(name.at)};
  std::vector<std::string> known = {"position"};
  if (scope.repetition) known.emplace_back("l");
  append_names(known, scope.locals);
  append_names(known, settings_);
  fail_here(name.at, "there is no object or number '", name.word, "' here",
            did_you_mean(name.word, known));
}

// a + b and the like: of numbers, of objects, of a number and an object, or of losses.
Elaborator::Meaning Elaborator::combine(Scope& scope, const Term& binary) {
  const Meaning left = evaluate(scope, binary.args[0]), right = evaluate(scope, binary.args[1]);
  if (std::holds_alternative<Loss>(left) || std::holds_alternative<Loss>(right)) {
    return combine_losses(binary, left, right);
  }
  const std::string& op = binary.word;
  const auto argument = [&](const Meaning& meaning) -> SurfaceCall::Argument {
    if (const auto* plain = std::get_if<double>(&meaning)) return *plain;
    const auto* objects = std::get_if<Objects>(&meaning);
    if (!objects) fail_here(binary.at, op, ": wants objects or numbers, found ", describe(meaning));
    if (objects->size() != 1) {
      fail_here(binary.at, op, ": wants one object on each side, found ", objects->size());
    }
    return objects->front();
  };
  const SurfaceCall::Argument a = argument(left), b = argument(right);
  const auto* x = std::get_if<Value>(&a);
  const auto* y = std::get_if<Value>(&b);
  if (!x && !y) return arithmetic(binary, std::get<double>(a), std::get<double>(b), file_);
  if (op == "mod") fail_here(binary.at, "mod: wants numbers, found an object");
  if (op == "<") return relate(scope, binary, "less", a, b);
  if (op == ">") return relate(scope, binary, "less", b, a);
  if (op == "==") return relate(scope, binary, "equal", a, b);
  if (op == "<=") return opposite(scope, binary, relate(scope, binary, "less", b, a)[0]);
  if (op == ">=") return opposite(scope, binary, relate(scope, binary, "less", a, b)[0]);
  if (op == "!=") return opposite(scope, binary, relate(scope, binary, "equal", a, b)[0]);
  if (op == "or") return relate(scope, binary, "maximum", a, b);
  if (x && y) {
    const char* name = op == "+" ? "add" : op == "-" ? "sub" : op == "/" ? "div" : "mul";
    return emit_infix(scope, binary, name, {{"a", *x}, {"b", *y}});
  }
  const double n = std::get<double>(x ? b : a);
  Value object = x ? *x : *y;
  double by = 1, plus = 0;
  if (op == "+") {
    plus = n;
  } else if (op == "-") {
    plus = x ? -n : n;
    if (!x) by = -1;
  } else if (op == "/" && x) {
    if (n == 0 || !std::isfinite(1 / n)) fail_here(binary.at, "/: an object divided by ", n);
    by = 1 / n;
  } else {  // * and `and`
    if (op == "/") {
      object = emit_infix(scope, binary, "pow", {{"x", object}, {"power", -1.0}})[0];
    }
    by = n;
  }
  return emit_infix(scope, binary, "scale", {{"x", object}, {"by", by}, {"plus", plus}});
}

Elaborator::Objects Elaborator::relate(Scope& scope, const Term& term, std::string_view op,
                                       SurfaceCall::Argument a, SurfaceCall::Argument b) {
  return emit_infix(scope, term, op, {{"a", std::move(a)}, {"b", std::move(b)}});
}

// 1 where it is 0, and 0 where it is 1.
Elaborator::Objects Elaborator::opposite(Scope& scope, const Term& term, Value of) {
  return emit_infix(scope, term, "scale", {{"x", of}, {"by", -1.0}, {"plus", 1.0}});
}

// Losses are added to each other and multiplied by numbers.
Elaborator::Meaning Elaborator::combine_losses(const Term& binary, const Meaning& left,
                                               const Meaning& right) {
  const auto *a = std::get_if<Loss>(&left), *b = std::get_if<Loss>(&right);
  const auto *m = std::get_if<double>(&left), *n = std::get_if<double>(&right);
  const auto weighted = [](Loss loss, double by) {
    for (LossTerm& term : loss) term.weight *= by;
    return loss;
  };
  if (a && b && (binary.word == "+" || binary.word == "-")) {
    Loss sum = *a;
    for (const LossTerm& term : weighted(*b, binary.word == "+" ? 1 : -1)) sum.push_back(term);
    return sum;
  }
  if (binary.word == "*" && (m || n)) return weighted(a ? *a : *b, m ? *m : *n);
  if (binary.word == "/" && n && *n != 0) return weighted(*a, 1 / *n);
  fail_here(binary.at, binary.word, ": a loss is added to a loss or multiplied by a number, found ",
            describe(left), " ", binary.word, " ", describe(right));
}

Elaborator::Meaning Elaborator::call(Scope& scope, const Term& call) {
  if (const auto use = uses_.find(call.word); use != uses_.end()) {
    return call_again(scope, call, use->second);
  }
  if (const Box* box = document_.box(call.word)) return call_box(scope, call, *box);
  if (auto found = call_word(scope, call)) return *std::move(found);
  const OpDef* op = find_op(call.word);
  if (op && !op->params.empty()) return call_op(scope, call, *op);
  if (const OpDef* word = find_word(call.word)) return call_op(scope, call, *word);
  if (op) fail_here(call.at, call.word, ": this op cannot be called from a model's text");
  std::vector<std::string> known = number_functions();
  known.insert(known.end(), {"param", "reverse", "item"});
  for (const OpDef* each : all_ops()) {
    if (!each->params.empty()) known.emplace_back(each->name);
  }
  for (const OpDef& word : notation_words()) known.emplace_back(word.name);
  for (const Box& box : document_.boxes) known.push_back(box.name);
  fail_here(call.at, call.word, ": there is no such op or box", did_you_mean(call.word, known));
}

// The model's value. A loss of several terms becomes one pair: every term's sum is weighted by
// largest count / its own count, and the largest count divides once. Counts are taken of targets
// alone, so that they are known before the backward pass begins and a batch in parts has them
// whole.
Elaborator::Objects Elaborator::finish(const Meaning& value, Position at) {
  if (const auto* objects = std::get_if<Objects>(&value)) return *objects;
  const auto* loss = std::get_if<Loss>(&value);
  if (!loss) fail_here(at, "model: its value must be objects or a loss, found ", describe(value));
  if (loss->size() == 1 && loss->front().weight == 1) {
    return {loss->front().sum, loss->front().count};
  }
  struct Counted {
    std::string_view by;
    Value targets;
    Attrs attrs;
    bool operator==(const Counted&) const = default;
  };
  std::vector<Counted> counted;
  for (const LossTerm& term : *loss) {
    for (const Morphism& m : scheme_.morphisms) {
      if (m.outputs[0] != term.sum) continue;
      const OpDef& op = op_named(m.op);
      if (static_cast<int>(m.inputs.size()) <= op.targets) {
        fail_here(at, op.name, ": a term of a sum of losses wants targets, which say what counts");
      }
      Attrs attrs;
      if (const auto ignore = m.attrs.find("ignore"); ignore != m.attrs.end())
        attrs.insert(*ignore);
      counted.push_back({op.counted_by, m.inputs[op.targets], std::move(attrs)});
    }
  }
  CHECK(counted.size() == loss->size(), "every term of a loss is made by an op");
  const bool alike = std::all_of(counted.begin(), counted.end(),
                                 [&](const Counted& c) { return c == counted[0]; });
  builder_.at({"loss"}, Phase::kForward, Role::kActivation);
  const Value first = static_cast<Value>(scheme_.objects.size());
  std::vector<Value> counts, factors;
  Value largest = loss->front().count;
  if (!alike) {
    for (size_t i = 0; i < counted.size(); ++i) {
      const Counted& c = counted[i];
      const size_t same = std::find(counted.begin(), counted.end(), c) - counted.begin();
      counts.push_back(same < i ? counts[same] : builder_.emit(c.by, {c.targets}, c.attrs));
    }
    largest = counts[0];
    for (size_t i = 1; i < counts.size(); ++i) {
      const bool seen =
          std::count(counts.begin(), counts.begin() + static_cast<int64_t>(i), counts[i]) > 0;
      if (!seen) largest = builder_.emit("maximum", {largest, counts[i]});
    }
    std::map<Value, Value> factor_of;
    for (const Value count : counts) {
      const auto [found, fresh] = factor_of.emplace(count, count);
      if (fresh) {
        const Value some = builder_.emit("maximum", {count}, {{"b", 1.0}});
        found->second = builder_.emit("div", {largest, some});
      }
      factors.push_back(found->second);
    }
  }
  const Value sum = weighted_sum(*loss, factors);
  accept_objects(first, "loss", at);
  return {sum, largest};
}

Value Elaborator::weighted_sum(const Loss& loss, const std::vector<Value>& factors) {
  std::optional<Value> total;
  for (size_t i = 0; i < loss.size(); ++i) {
    Value term = loss[i].sum;
    if (loss[i].weight != 1) term = builder_.emit("scale", {term}, {{"by", loss[i].weight}});
    if (!factors.empty()) term = builder_.emit("mul", {term, factors[i]});
    total = total ? builder_.emit("add", {*total, term}) : term;
  }
  return *total;
}

double Elaborator::number(const Scope& scope, const Term& term) {
  return evaluate_number(term, file_, [&](const Term& name) {
    if (name.word == "seq" && !scope.locals.count("seq") && !settings_.count("seq")) {
      fail_here(name.at, "'seq' has no size: set it, or give the model an axis 'context'");
    }
    const auto local = scope.locals.find(name.word);
    if (local == scope.locals.end() && !is_named_here(scope, name.word)) {
      std::vector<std::string> known;
      if (scope.repetition) known.emplace_back("l");
      append_names(known, settings_);
      fail_here(name.at, "there is no axis or number '", name.word, "'",
                did_you_mean(name.word, known));
    }
    const Meaning meaning = meaning_of_name(scope, name);
    const auto* plain = std::get_if<double>(&meaning);
    if (!plain) {
      fail_here(name.at, "wanted a number, found ",
                std::holds_alternative<Objects>(meaning) ? "the object" : describe(meaning), " '",
                name.word, "'");
    }
    return *plain;
  });
}

int64_t Elaborator::whole_number(const Scope& scope, const Term& term, std::string_view what) {
  const double value = number(scope, term);
  if (std::floor(value) != value || value < 0 || value > static_cast<double>(kLargestSize)) {
    fail_here(term.at, what, " must be a whole number up to 2^40, found ",
              term.kind == Term::Kind::kNumber ? "" : print(term) + " = ", shortest(value));
  }
  return static_cast<int64_t>(value);
}

Value Elaborator::one_object(Scope& scope, const Term& term, std::string_view what) {
  const Meaning meaning = evaluate(scope, term);
  const auto* objects = std::get_if<Objects>(&meaning);
  if (std::holds_alternative<double>(meaning)) {
    fail_here(term.at, what, " must be an object, found the number ", print(term));
  }
  if (!objects) fail_here(term.at, what, " must be an object, found ", describe(meaning));
  if (objects->size() != 1)
    fail_here(term.at, what, " must be one object, found ", objects->size());
  return objects->front();
}

// 0, 1, 2, ... along the sequence: made once, when it is first spoken of.
Value Elaborator::position(Position at) {
  if (position_) return *position_;
  const Term seq{.kind = Term::Kind::kName, .word = "seq", .at = at};
  const int64_t size = whole_number(Scope{.box = *open_boxes_[0]}, seq, "the size of an axis");
  builder_.at({"position"}, Phase::kForward, Role::kActivation);
  position_ = builder_.emit("positions", {}, {{"shape", std::vector<int64_t>{size}}});
  scheme_[*position_].type.axes[0].name = "seq";
  return *position_;
}

std::string Elaborator::call_path(Scope& scope, const Term& call, std::string_view kind,
                                  bool is_box) {
  // Named calls count too, so that a name given later does not renumber the others.
  auto count = scope.calls.find(kind);
  if (count == scope.calls.end()) count = scope.calls.emplace(kind, 0).first;
  int n = ++count->second;
  for (const auto& [word, value] : call.keywords) {
    if (word != "name") continue;
    if (value.kind != Term::Kind::kName) {
      fail_here(value.at, kind, ": name must be a plain name, found ", print(value));
    }
    if (!scope.taken.insert(value.word).second) {
      fail_here(value.at, kind, ": the name '", value.word, "' is taken in ", scope.box.name);
    }
    return join_path(scope.path, value.word);
  }
  std::string component(kind);
  if (!is_box || n > 1) component += "#" + std::to_string(n);
  while (!scope.taken.insert(component).second) {
    component = std::string(kind) + "#" + std::to_string(++n);
  }
  return join_path(scope.path, component);
}

void Elaborator::count_call(Position at) {
  if (++calls_ > kMostCalls) fail_here(at, "this model has more than ", kMostCalls, " calls");
}

void Elaborator::accept_objects(Value first, std::string_view maker, Position at) {
  for (Value v = first; v < static_cast<Value>(scheme_.objects.size()); ++v) {
    const Object& object = scheme_[v];
    const Type& type = object.type;
    const char* wrong = nullptr;
    for (const Axis& axis : type.axes) {
      if (axis.size < 1) wrong = "has an axis without size";
    }
    if (type.rank() > kMostAxes) wrong = "has more than 8 axes";
    if (!wrong &&
        (!is_countable(type) || __builtin_add_overflow(bytes_, 8 * type.num_elements(), &bytes_))) {
      wrong = "makes more bytes than can be counted";
    }
    if (wrong) {
      fail_here(at, maker, ": ", to_string(object.source), " ", shape_string(type), " ", wrong);
    }
    if (object.role == Role::kParameter) parameters_.emplace(object.source.path, v);
  }
}

Scheme elaborate(const Document& document, std::string_view file, const ModelConfig& config,
                 const KnownUses& uses) {
  return Elaborator(document, file, config, uses).run();
}

}  // namespace adjoint

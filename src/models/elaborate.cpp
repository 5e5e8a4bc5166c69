#include "models/elaborate.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "models/elaborator.h"

namespace adjoint {

namespace {

// Beyond these a text is a mistake (or a trap), and would end the stack or the memory.
constexpr size_t kDeepestBoxes = 64;
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

Elaborator::Elaborator(const Document& document, std::string_view file, const ModelConfig& config)
    : document_(document),
      file_(file),
      name_(config.preset.empty() ? "model" : config.preset),
      settings_(resolve_settings(document, file, config)),
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
  scheme_.outputs = run_body(scope);
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

Elaborator::Objects Elaborator::run_box(const Box& box, std::string path, const Objects& inputs,
                                        Position at) {
  if (std::count(open_boxes_.begin(), open_boxes_.end(), &box)) {
    fail_here(at, box.name, ": a box cannot call itself");
  }
  if (open_boxes_.size() >= kDeepestBoxes) {
    fail_here(at, box.name, ": more than ", kDeepestBoxes, " boxes inside each other");
  }
  count_call(at);
  open_boxes_.push_back(&box);
  Scope scope{.box = box, .path = std::move(path)};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Formal& formal = box.formals[i];
    check_formal(scope, formal, inputs[i], at);
    if (!scope.locals.emplace(formal.name, Objects{inputs[i]}).second) {
      fail_here(formal.at, box.name, ": '", formal.name, "' is named twice");
    }
  }
  Objects outputs = run_body(scope);
  open_boxes_.pop_back();
  return outputs;
}

Elaborator::Objects Elaborator::run_body(Scope& scope) {
  for (const Statement& statement : scope.box.body) run_statement(scope, statement);
  Objects outputs;
  const Statement& last = scope.box.body.back();
  for (const std::string& name : last.names) {
    const auto* objects = std::get_if<Objects>(&scope.locals.find(name)->second);
    if (!objects) {
      fail_here(last.at, scope.box.name, ": its value must be an object, '", name, "' is a number");
    }
    outputs.insert(outputs.end(), objects->begin(), objects->end());
  }
  return outputs;
}

void Elaborator::run_statement(Scope& scope, const Statement& statement) {
  std::vector<Meaning> values;
  for (const Term& term : statement.values) values.push_back(evaluate(scope, term));
  if (values.size() != statement.names.size()) {
    // Fewer terms than names: what the terms give is dealt out one by one.
    std::vector<Meaning> single;
    for (const Meaning& value : values) {
      if (const auto* objects = std::get_if<Objects>(&value)) {
        for (const Value v : *objects) single.push_back(Objects{v});
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
      if (is_number_function(term.word) && !document_.box(term.word)) return number(scope, term);
      return call(scope, term);
    case Term::Kind::kBinary:
      return combine(scope, term);
    case Term::Kind::kNegate: {
      const Meaning inner = evaluate(scope, term.args[0]);
      if (const auto* plain = std::get_if<double>(&inner)) return -*plain;
      const Objects& objects = std::get<Objects>(inner);
      if (objects.size() != 1) fail_here(term.at, "-: wants one object, found ", objects.size());
      return emit_infix(scope, term, "scale", {{"x", objects[0]}, {"by", -1.0}, {"plus", 0.0}});
    }
    case Term::Kind::kText:
    case Term::Kind::kWhen:
    case Term::Kind::kList:
      break;
  }
  fail_here(term.at, "wanted an object or a number, found ", print(term));
}

Elaborator::Meaning Elaborator::meaning_of_name(const Scope& scope, const Term& name) {
  if (const auto local = scope.locals.find(name.word); local != scope.locals.end()) {
    return local->second;
  }
  if (const auto set = settings_.find(name.word); set != settings_.end()) return set->second;
  if (name.word == "position") return Objects{position(name.at)};
  std::vector<std::string> known = {"position"};
  append_names(known, scope.locals);
  append_names(known, settings_);
  fail_here(name.at, "there is no object or number '", name.word, "' here",
            did_you_mean(name.word, known));
}

// a + b and the like: of numbers, of objects, or of a number and an object.
Elaborator::Meaning Elaborator::combine(Scope& scope, const Term& binary) {
  const Meaning left = evaluate(scope, binary.args[0]), right = evaluate(scope, binary.args[1]);
  const auto object = [&](const Meaning& meaning) -> std::optional<Value> {
    const auto* objects = std::get_if<Objects>(&meaning);
    if (!objects) return std::nullopt;
    if (objects->size() != 1) {
      fail_here(binary.at, binary.word, ": wants one object on each side, found ", objects->size());
    }
    return objects->front();
  };
  const std::optional<Value> a = object(left), b = object(right);
  const char op = binary.word[0];
  if (a && b) {
    const char* name = op == '+' ? "add" : op == '-' ? "sub" : op == '*' ? "mul" : "div";
    return emit_infix(scope, binary, name, {{"a", *a}, {"b", *b}});
  }
  if (!a && !b) return arithmetic(binary, std::get<double>(left), std::get<double>(right), file_);
  const double n = std::get<double>(a ? right : left);
  double by = 1, plus = 0;
  switch (op) {
    case '+':
      plus = n;
      break;
    case '-':
      plus = a ? -n : n;
      if (!a) by = -1;
      break;
    case '*':
      by = n;
      break;
    default:
      if (!a) fail_here(binary.at, "/: a number cannot be divided by an object");
      if (n == 0 || !std::isfinite(1 / n)) fail_here(binary.at, "/: an object divided by ", n);
      by = 1 / n;
  }
  return emit_infix(scope, binary, "scale", {{"x", a ? *a : *b}, {"by", by}, {"plus", plus}});
}

Elaborator::Objects Elaborator::call(Scope& scope, const Term& call) {
  if (const Box* box = document_.box(call.word)) return call_box(scope, call, *box);
  const OpDef* op = find_op(call.word);
  if (op && !op->params.empty()) return call_op(scope, call, *op);
  if (op) fail_here(call.at, call.word, ": this op cannot be called from a model's text");
  std::vector<std::string> known = number_functions();
  for (const OpDef* each : all_ops()) {
    if (!each->params.empty()) known.emplace_back(each->name);
  }
  for (const Box& box : document_.boxes) known.push_back(box.name);
  fail_here(call.at, call.word, ": there is no such op or box", did_you_mean(call.word, known));
}

Elaborator::Objects Elaborator::call_box(Scope& scope, const Term& call, const Box& box) {
  Objects objects;
  for (const Term& arg : call.args) {
    const Meaning meaning = evaluate(scope, arg);
    const auto* given = std::get_if<Objects>(&meaning);
    if (!given) fail_here(arg.at, box.name, ": wants objects, found the number ", print(arg));
    objects.insert(objects.end(), given->begin(), given->end());
  }
  if (objects.size() != box.formals.size()) {
    std::vector<std::string> names;
    for (const Formal& f : box.formals) names.push_back(f.name);
    fail_here(call.at, box.name, ": wants ", box.formals.size(), " objects (", join(names, ", "),
              "), found ", objects.size());
  }
  for (const auto& [word, value] : call.keywords) {
    if (word != "name") {
      fail_here(call.at, box.name, ": there is no argument '", word,
                "'; a box takes objects by position, and name");
    }
  }
  const std::string path = call_path(scope, call, box.name, true);
  if (call.repeat.empty()) return run_box(box, path, objects, call.at);
  // The results of one repetition are the operands of the next.
  const int64_t times = whole_number(scope, call.repeat[0], "how often a box is repeated");
  for (int64_t i = 0; i < times; ++i) {
    objects = run_box(box, path + "[" + std::to_string(i) + "]", objects, call.at);
    if (objects.size() != box.formals.size()) {
      fail_here(call.at, box.name,
                ": a box that is repeated gives as many objects as it takes: ", box.formals.size(),
                ", found ", objects.size());
    }
  }
  return objects;
}

double Elaborator::number(const Scope& scope, const Term& term) {
  return evaluate_number(term, file_, [&](const Term& name) {
    if (name.word == "seq" && !scope.locals.count("seq") && !settings_.count("seq")) {
      fail_here(name.at, "'seq' has no size: set it, or give the model an axis 'context'");
    }
    const auto local = scope.locals.find(name.word);
    if (local == scope.locals.end() && !settings_.count(name.word)) {
      std::vector<std::string> known;
      append_names(known, settings_);
      fail_here(name.at, "there is no axis or number '", name.word, "'",
                did_you_mean(name.word, known));
    }
    const Meaning meaning = meaning_of_name(scope, name);
    const auto* plain = std::get_if<double>(&meaning);
    if (!plain) fail_here(name.at, "wanted a number, found the object '", name.word, "'");
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
  if (!objects) fail_here(term.at, what, " must be an object, found the number ", print(term));
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

Scheme elaborate(const Document& document, std::string_view file, const ModelConfig& config) {
  return Elaborator(document, file, config).run();
}

}  // namespace adjoint

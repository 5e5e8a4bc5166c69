#include "models/elaborate.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "models/call_names.h"
#include "models/elaborator.h"
#include "ops/words.h"

namespace adjoint {

namespace {

// Beyond these a text is a mistake (or a trap), and would end the stack or the memory.
constexpr int64_t kMostCalls = int64_t{1} << 18;
constexpr int kMostAxes = 8;

// Paths that the scheme itself uses at its root.
// What people who come from other libraries write, and how it is said here.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"arange", "'index'"},
    {"bmm", "'contract'"},
    {"cat", "'concat'"},
    {"clamp", "'minimum' of a 'maximum'"},
    {"clip", "'minimum' of a 'maximum'"},
    {"dense", "'linear'"},
    {"einsum", "'contract'"},
    {"embedding", "'embed'"},
    {"expand", "'stretch'"},
    {"masked_fill", "'where'"},
    {"matmul", "'contract'"},
    {"permute", "'transpose'"},
    {"repeat", "'stretch'"},
    {"reshape", "'split' and 'merge'"},
    {"roll", "'shift'"},
    {"rope", "'rotary'"},
    {"rsqrt", "'pow' with -0.5"},
    {"softplus", "'log' of 1 + 'exp'"},
    {"square", "'pow' with 2"},
    {"std", "'sqrt' of a 'mean'"},
    {"swish", "'silu'"},
    {"var", "a 'mean' of 'pow' with 2"},
    {"view", "'split' and 'merge'"},
};

constexpr std::string_view kReserved[] = {"position", "rotary_table", kRandomCounter};

std::string join_path(const std::string& path, const std::string& component) {
  return path.empty() ? component : path + "." + component;
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
    if (const auto* made = std::get_if<Objects>(&values[i]); made && made->size() == 1) {
      written_.names[made->front()] = statement.names[i];
    } else if (const auto* loss = std::get_if<Loss>(&values[i]); loss && loss->size() == 1) {
      written_.names[loss->front().sum] = statement.names[i];
    }
    scope.locals[statement.names[i]] = std::move(values[i]);
  }
}

Elaborator::Meaning Elaborator::call(Scope& scope, const Term& call) {
  if (const auto use = uses_.find(call.word); use != uses_.end()) {
    return call_again(scope, call, use->second);
  }
  if (const Box* box = document_.box(call.word)) return call_box(scope, call, *box);
  const OpDef* op = find_op(call.word);
  if (op && !op->params.empty()) return call_op(scope, call, *op);
  if (const OpDef* word = find_word(call.word)) {
    return word->surface ? call_op(scope, call, *word) : call_word(scope, call);
  }
  if (op) fail_here(call.at, call.word, ": this op cannot be called from a model's text");
  std::vector<std::string> known = number_functions();
  for (const OpDef* each : all_ops()) {
    if (!each->params.empty()) known.emplace_back(each->name);
  }
  for (const OpDef& word : notation_words()) known.emplace_back(word.name);
  for (const Box& box : document_.boxes) known.push_back(box.name);
  const auto is_called = [&](const auto& other) { return other.first == call.word; };
  const auto other = std::find_if(std::begin(kElsewhere), std::end(kElsewhere), is_called);
  fail_here(call.at, call.word, ": there is no such op or box",
            other != std::end(kElsewhere) ? "; here it is " + std::string(other->second)
                                          : did_you_mean(call.word, known));
}

std::string Elaborator::call_path(Scope& scope, const Term& call, std::string_view kind,
                                  bool is_box) {
  const std::set<std::string>& numbered = numbered_in(scope.box);
  for (const auto& [word, value] : call.keywords) {
    if (word != "name" || value.kind != Term::Kind::kText) continue;
    // One that says its number does not count: it was put here, or others were taken away.
    if (!is_numbered_name(value.word, kind, is_box)) {
      fail_here(value.at, kind, ": a name in quotes is the number of such a call, \"", kind,
                "#2\", found ", print(value));
    }
    if (!scope.taken.insert(value.word).second) {
      fail_here(value.at, kind, ": the name '", value.word, "' is taken in ", scope.box.name);
    }
    return join_path(scope.path, value.word);
  }
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
  while (numbered.count(component) || !scope.taken.insert(component).second) {
    component = std::string(kind) + "#" + std::to_string(++n);
  }
  return join_path(scope.path, component);
}

const std::set<std::string>& Elaborator::numbered_in(const Box& box) {
  const auto found = numbered_.find(&box);
  return found != numbered_.end() ? found->second
                                  : numbered_.emplace(&box, numbered_names(box)).first->second;
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
                 const KnownUses& uses, Written* written) {
  Elaborator elaborator(document, file, config, uses);
  Scheme scheme = elaborator.run();
  if (written) {
    *written = elaborator.written();
    written->calls.resize(scheme.morphisms.size());
  }
  return scheme;
}

}  // namespace adjoint

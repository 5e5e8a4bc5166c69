// Calls of ops: arguments meet the params that the op states, by position, by name or by default,
// and are read as what each param takes: an object, a size, a number, a flag, a word.
#include <algorithm>
#include <cmath>

#include "base/counts.h"
#include "base/text.h"
#include "models/elaborator.h"
#include "ops/words.h"

namespace adjoint {

namespace {

std::string what_it_takes(const OpDef& op) {
  return params_text(op) + ", and name, frozen and weights";
}

bool has_keyword(const Term& call, std::string_view name) {
  return std::any_of(call.keywords.begin(), call.keywords.end(),
                     [&](const auto& keyword) { return keyword.first == name; });
}

// Of one call: its gradients take up to two and a half times as many.
constexpr int64_t kMostFlops = kMostCounted / 3;

// Some params may be absent; the word that says so is their default.
bool may_be_absent(const Param& param) {
  return param.otherwise == "none" || param.otherwise == "own";
}

}  // namespace

// Where its parameters are: under its own path, or where the box around it has them.
SurfaceCall Elaborator::surface_call(const Scope& scope, std::string path) {
  SurfaceCall surface{.builder = builder_, .path = {}, .arguments = {}, .size_names = {}};
  if (scope.weights != scope.path) {
    surface.shared = &parameters_;
    surface.weights = scope.weights + path.substr(scope.path.size());
  }
  surface.path = std::move(path);
  return surface;
}

Elaborator::Meaning Elaborator::call_op(Scope& scope, const Term& call, const OpDef& op) {
  if (!call.repeat.empty()) fail_here(call.at, op.name, ": only a box can be repeated");
  SurfaceCall surface{.builder = builder_, .path = {}, .arguments = {}, .size_names = {}};
  const auto given = bind(scope, call, op);
  for (const auto& [param, term] : given) add_argument(scope, surface, op, *param, *term);
  for (const Param& param : op.params) {
    const auto is_this = [&](const auto& pair) { return pair.first == &param; };
    if (std::none_of(given.begin(), given.end(), is_this)) {
      add_default(surface, op, param, call.at);
    }
  }
  // After the operands, which may hold calls of the same op: the inner one is the first.
  SurfaceCall placed = surface_call(scope, call_path(scope, call, op.name, false));
  placed.arguments = std::move(surface.arguments);
  placed.size_names = std::move(surface.size_names);
  const bool borrows = has_keyword(call, "weights");
  if (borrows) placed.shared = &parameters_, placed.weights = weights_for(scope, call, placed.path);
  const size_t first = scheme_.objects.size(), first_call = scheme_.morphisms.size();
  const Objects made = emit(op, placed, call.at);
  if (borrows) {
    check_borrowed(first_call, placed.weights, op.name, call.at);
  } else if (std::any_of(scheme_.objects.begin() + static_cast<int64_t>(first),
                         scheme_.objects.end(),
                         [](const Object& o) { return o.role == Role::kParameter; })) {
    owners_.insert(placed.path);
  }
  if (is_frozen(scope, call)) freeze(first, op.name, call.at);
  if (!op.counted_by.empty()) return Loss{{.weight = 1, .sum = made[0], .count = made[1]}};
  return made;
}

// rms_norm(x, weights=final): what has no weights cannot have another call's.
void Elaborator::check_borrowed(size_t first_call, const std::string& owner, std::string_view op,
                                Position at) {
  const auto is_the_owners = [&](Value in) {
    return scheme_[in].role == Role::kParameter && scheme_[in].source.path.starts_with(owner + ".");
  };
  for (size_t i = first_call; i < scheme_.morphisms.size(); ++i) {
    const std::vector<Value>& inputs = scheme_.morphisms[i].inputs;
    if (std::any_of(inputs.begin(), inputs.end(), is_the_owners)) return;
  }
  fail_here(at, op, ": it reads no weights, so it cannot have those of '", owner, "'");
}

// y(x): a use that the text was told of, with its own constants and, where none are given, its own
// operands.
Elaborator::Meaning Elaborator::call_again(Scope& scope, const Term& call, const KnownUse& use) {
  if (!call.repeat.empty()) fail_here(call.at, call.word, ": only a box can be repeated");
  const std::vector<std::string> names(use.operands.begin(),
                                       use.operands.begin() + static_cast<int64_t>(use.named));
  std::vector<const Term*> given(use.operands.size(), nullptr);
  if (call.args.size() > names.size()) {
    fail_here(call.at, call.word, ": too many operands; it takes ", join(names, ", "));
  }
  for (size_t k = 0; k < call.args.size(); ++k) given[k] = &call.args[k];
  for (const auto& [word, value] : call.keywords) {
    if (word == "name") continue;
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) {
      fail_here(call.at, call.word, ": there is no operand '", word, "'; it takes ",
                join(names, ", "), ", and name", did_you_mean(word, names));
    }
    const Term*& operand = given[static_cast<size_t>(found - names.begin())];
    if (operand) fail_here(call.at, call.word, ": '", word, "' is given twice");
    operand = &value;
  }
  Objects operands;
  for (size_t k = 0; k < given.size(); ++k) {
    const auto control = use.controls.find(use.operands[k]);
    if (control != use.controls.end()) {
      operands.push_back(builder_.control(control->first, control->second));
      continue;
    }
    const Term own{.kind = Term::Kind::kName, .word = use.operands[k], .at = call.at};
    operands.push_back(
        one_object(scope, given[k] ? *given[k] : own, call.word + ": '" + use.operands[k] + "'"));
  }
  const OpDef& op = op_named(use.op);
  const std::string path = call_path(scope, call, op.name, false);
  Attrs attrs = use.attrs;
  // Random bits are keyed by path.
  if (const auto key = attrs.find("key"); key != attrs.end()) key->second = path;
  count_call(call.at);
  const Value first = static_cast<Value>(scheme_.objects.size());
  builder_.at({path}, Phase::kForward, Role::kActivation);
  Objects made;
  try {
    made = builder_.emit_all(op.name, std::move(operands), std::move(attrs));
  } catch (const Error& error) {
    fail_here(call.at, error.what());
  }
  accept_objects(first, op.name, call.at);
  if (!op.counted_by.empty()) return Loss{{.weight = 1, .sum = made[0], .count = made[1]}};
  return Objects{made[0]};
}

// linear(x, hidden, frozen=yes): what the call makes is not trained.
bool Elaborator::is_frozen(const Scope& scope, const Term& call) {
  for (const auto& [word, value] : call.keywords) {
    if (word != "frozen") continue;
    if (value.kind != Term::Kind::kWhen) return flag(scope, value);
    if (holds(scope, value)) return flag(scope, value.args[0]);
    return value.args.size() > 2 && flag(scope, value.args[2]);
  }
  return false;
}

void Elaborator::freeze(size_t first, std::string_view maker, Position at) {
  bool any = false;
  for (size_t v = first; v < scheme_.objects.size(); ++v) {
    if (scheme_.objects[v].role != Role::kParameter) continue;
    scheme_.objects[v].frozen = any = true;
  }
  if (!any) fail_here(at, maker, ": there is nothing to freeze: this call makes no parameter");
}

Elaborator::Objects Elaborator::emit_infix(Scope& scope, const Term& term, std::string_view op,
                                           Arguments arguments) {
  SurfaceCall surface{.builder = builder_,
                      .path = call_path(scope, term, op, false),
                      .arguments = std::move(arguments),
                      .size_names = {}};
  return emit(op_named(op), surface, term.at);
}

Elaborator::Objects Elaborator::emit(const OpDef& op, SurfaceCall& call, Position at) {
  count_call(at);
  const Value first = static_cast<Value>(scheme_.objects.size());
  const size_t first_call = scheme_.morphisms.size();
  builder_.at({call.path}, Phase::kForward, Role::kActivation);
  Objects made;
  try {
    if (op.surface) {
      made = op.surface(call);
    } else {
      Objects operands;
      Attrs attrs;
      for (const Param& param : op.params) {
        const auto found = call.arguments.find(param.name);
        if (found == call.arguments.end()) continue;
        const SurfaceCall::Argument& argument = found->second;
        const std::string key(param.name);
        if (const auto* object = std::get_if<Value>(&argument)) operands.push_back(*object);
        if (const auto* objects = std::get_if<Objects>(&argument)) {
          operands.insert(operands.end(), objects->begin(), objects->end());
        }
        if (const auto* whole = std::get_if<int64_t>(&argument)) attrs[key] = *whole;
        if (const auto* real = std::get_if<double>(&argument)) attrs[key] = *real;
        if (const auto* yes = std::get_if<bool>(&argument)) attrs[key] = int64_t{*yes};
        if (const auto* word = std::get_if<std::string>(&argument)) attrs[key] = *word;
      }
      made = builder_.emit_all(op.name, std::move(operands), std::move(attrs));
    }
  } catch (const Error& error) {
    fail_here(at, error.what());
  }
  accept_objects(first, op.name, at);
  for (size_t m = first_call; m < scheme_.morphisms.size(); ++m) {
    if (count_flops(call_of(scheme_, scheme_.morphisms[m])) > kMostFlops) {
      fail_here(at, op.name, ": this call takes more operations than can be counted");
    }
  }
  return made;
}

std::vector<std::pair<const Param*, const Term*>> Elaborator::bind(Scope& scope, const Term& call,
                                                                   const OpDef& op) {
  std::vector<std::pair<const Param*, const Term*>> bound;
  const auto is_bound = [&](const Param& param) {
    return std::any_of(bound.begin(), bound.end(), [&](auto& b) { return b.first == &param; });
  };
  const auto param_named = [&](std::string_view name) -> const Param* {
    for (const Param& p : op.params) {
      if (p.name == name) return &p;
    }
    return nullptr;
  };
  for (const Term& arg : call.args) {
    // A flag may be given by its bare name, wherever it stands: attention(qkv, heads, causal).
    const bool is_word = arg.kind == Term::Kind::kName && !is_named_here(scope, arg.word);
    const Param* param = is_word ? param_named(arg.word) : nullptr;
    if (param && param->kind != Param::Kind::kFlag) param = nullptr;
    for (const Param& p : op.params) {
      if (!param && (!is_bound(p) || p.kind == Param::Kind::kTensors)) param = &p;
    }
    if (!param) {
      fail_here(call.at, op.name, ": too many arguments; it takes ", what_it_takes(op));
    }
    if (is_bound(*param) && param->kind != Param::Kind::kTensors) {
      fail_here(call.at, op.name, ": '", param->name, "' is given twice");
    }
    bound.emplace_back(param, &arg);
  }
  for (const auto& [word, value] : call.keywords) {
    if (word == "name" || word == "frozen" || word == "weights") continue;
    const Param* param = param_named(word);
    if (!param) {
      std::vector<std::string> names = {"name", "frozen", "weights"};
      for (const Param& p : op.params) names.emplace_back(p.name);
      fail_here(call.at, op.name, ": there is no argument '", word, "'; it takes ",
                what_it_takes(op), did_you_mean(word, names));
    }
    if (is_bound(*param)) fail_here(call.at, op.name, ": '", word, "' is given twice");
    // Chosen here, not where it is read: a choice may be between words, which have no value.
    const Term* given = &value;
    while (given && given->kind == Term::Kind::kWhen) {
      const bool first = holds(scope, *given);
      given = first ? &given->args[0] : given->args.size() > 2 ? &given->args[2] : nullptr;
    }
    if (given) bound.emplace_back(param, given);
  }
  return bound;
}

void Elaborator::add_argument(Scope& scope, SurfaceCall& call, const OpDef& op, const Param& param,
                              const Term& term) {
  const std::string name(param.name), what = std::string(op.name) + ": '" + name + "'";
  const bool is_word = term.kind == Term::Kind::kName && !is_named_here(scope, term.word);
  if (is_word && may_be_absent(param) && term.word == param.otherwise) return;
  switch (param.kind) {
    case Param::Kind::kTensor:
      call.arguments[name] = one_object(scope, term, what);
      return;
    case Param::Kind::kMaybeTensor:
      call.arguments[name] = is_word && term.word != "position"
                                 ? parameter_of_call(scope, term, param.name)
                                 : one_object(scope, term, what);
      return;
    case Param::Kind::kTensors: {
      const Meaning meaning = evaluate(scope, term);
      const auto* list = std::get_if<List>(&meaning);
      const auto* objects = list ? &list->items : std::get_if<Objects>(&meaning);
      if (!objects) {
        fail_here(term.at, what, " wants objects, found ",
                  std::holds_alternative<double>(meaning) ? "the number" : describe(meaning), " ",
                  print(term));
      }
      Objects all = call.has(name) ? std::get<Objects>(call.arguments[name]) : Objects{};
      all.insert(all.end(), objects->begin(), objects->end());
      call.arguments[name] = std::move(all);
      return;
    }
    case Param::Kind::kOperand:
      if (is_numeric(scope, term)) {
        call.arguments[name] = number(scope, term);
      } else {
        const Meaning meaning = evaluate(scope, term);
        if (const auto* plain = std::get_if<double>(&meaning)) {
          call.arguments[name] = *plain;
        } else {
          const auto* objects = std::get_if<Objects>(&meaning);
          if (!objects || objects->size() != 1) {
            fail_here(term.at, what, " must be one object or a number, found ",
                      objects ? std::to_string(objects->size()) + " objects" : describe(meaning));
          }
          call.arguments[name] = objects->front();
        }
      }
      return;
    case Param::Kind::kAxis:
      call.arguments[name] = axis(scope, call, op, term);
      return;
    case Param::Kind::kSize:
      call.arguments[name] = whole_number(scope, term, what);
      // A bare number is no label: there the param says what the axis is.
      call.size_names[name] = term.kind == Term::Kind::kNumber ? name : axis_label(term);
      return;
    case Param::Kind::kNumber:
      call.arguments[name] = number(scope, term);
      return;
    case Param::Kind::kFlag:
      call.arguments[name] = (is_word && term.word == param.name) || flag(scope, term);
      return;
    case Param::Kind::kInit:
      call.arguments[name] = init(scope, term);
      return;
    case Param::Kind::kWord:
      if (term.kind != Term::Kind::kName && term.kind != Term::Kind::kText) {
        fail_here(term.at, what, " must be a word, found ", print(term));
      }
      call.arguments[name] = term.word;
      return;
  }
}

// By its number, from the end where it is negative, or by its label where one axis alone has it.
int64_t Elaborator::axis(Scope& scope, const SurfaceCall& call, const OpDef& op, const Term& term) {
  const auto& first = call.arguments.find(op.params[0].name)->second;
  const auto* several = std::get_if<Objects>(&first);
  const Type& type = scheme_[several ? several->front() : std::get<Value>(first)].type;
  const std::string label = axis_label(term);
  const auto has_label = [&](const Axis& a) { return a.name == label; };
  const auto found = std::find_if(type.axes.begin(), type.axes.end(), has_label);
  if (found != type.axes.end() && term.kind != Term::Kind::kNumber) {
    if (std::count_if(type.axes.begin(), type.axes.end(), has_label) > 1) {
      fail_here(term.at, op.name, ": ", shape_string(type), " has several axes '", label,
                "'; say its number, from 0, or from -1 at the end");
    }
    return found - type.axes.begin();
  }
  const bool literal = term.kind == Term::Kind::kNumber || term.kind == Term::Kind::kNegate;
  const double at = literal ? number(scope, term) : 0.5;
  if (std::floor(at) != at || at < -type.rank() || at >= type.rank()) {
    std::vector<std::string> labels;
    for (const Axis& a : type.axes) labels.push_back(a.name);
    fail_here(term.at, op.name, ": wanted an axis of ", shape_string(type),
              " by its label or by a ", "number from ", -type.rank(), " to ", type.rank() - 1,
              ", found ", print(term), did_you_mean(label, labels));
  }
  return static_cast<int64_t>(at < 0 ? at + type.rank() : at);
}

void Elaborator::add_default(SurfaceCall& call, const OpDef& op, const Param& param, Position at) {
  if (may_be_absent(param)) return;
  const auto missing = [&](const std::string& why) {
    fail_here(at, op.name, ": '", param.name, "' is missing", why, "; it takes ",
              what_it_takes(op));
  };
  if (param.otherwise.empty()) missing("");
  // A default speaks of the settings, never of what the calling box has named.
  const Term term = parse_term(param.otherwise, op.name);
  if (param.kind == Param::Kind::kSize && term.kind == Term::Kind::kName &&
      !settings_.count(term.word)) {
    missing(", for there is no axis '" + term.word + "'");
  }
  Scope nothing{.box = *open_boxes_.front()};
  add_argument(nothing, call, op, param, term);
}

bool Elaborator::flag(const Scope& scope, const Term& term) {
  if (term.kind == Term::Kind::kName && !is_named_here(scope, term.word)) {
    if (term.word == "yes") return true;
    if (term.word == "no") return false;
    fail_here(term.at, "wanted yes or no, found '", term.word, "'");
  }
  const double value = number(scope, term);
  if (value != 0 && value != 1) {
    fail_here(term.at, "wanted yes or no (1 or 0), found ", shortest(value));
  }
  return value == 1;
}

Init Elaborator::init(const Scope& scope, const Term& term) {
  if (term.kind == Term::Kind::kName && term.word == "zeros") return {.kind = Init::Kind::kZeros};
  if (term.kind == Term::Kind::kName && term.word == "ones") return {.kind = Init::Kind::kOnes};
  const bool normal = term.word == "normal", uniform = term.word == "uniform";
  const bool constant = term.word == "constant";
  if (term.kind != Term::Kind::kCall || !(normal || uniform || constant) || term.args.size() != 1 ||
      !term.keywords.empty() || !term.repeat.empty()) {
    fail_here(term.at, "wanted zeros, ones, normal(...), uniform(...) or constant(...), found ",
              print(term));
  }
  const double scale = number(scope, term.args[0]);
  if (constant) return {.kind = Init::Kind::kConstant, .scale = scale};
  if (scale < 0) fail_here(term.at, "wanted a scale of at least 0, found ", print(term));
  return {.kind = normal ? Init::Kind::kNormal : Init::Kind::kUniform, .scale = scale};
}

// weight=wte: the weight of the call named wte, here or in the boxes around.
Value Elaborator::parameter_of_call(const Scope& scope, const Term& name,
                                    std::string_view parameter) {
  const std::string ending = "." + std::string(parameter);
  std::string around = scope.path;
  while (true) {
    const auto found = parameters_.find((around.empty() ? "" : around + ".") + name.word + ending);
    if (found != parameters_.end()) return found->second;
    if (around.empty()) break;
    const size_t dot = around.rfind('.');
    around.resize(dot == std::string::npos ? 0 : dot);
  }
  std::vector<std::string> known;
  for (const auto& [path, value] : parameters_) {
    if (!path.ends_with(ending)) continue;
    const std::string call = path.substr(0, path.size() - ending.size());
    if (const auto name = name_seen_from(scope.path, call)) known.push_back(*name);
  }
  for (const auto& [object, meaning] : scope.locals) known.push_back(object);
  fail_here(name.at, "there is no object '", name.word,
            "' here, nor a call of that name above with a ", parameter,
            did_you_mean(name.word, known));
}

}  // namespace adjoint

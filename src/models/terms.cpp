// The meaning of a term: a number, an object or a loss. Arithmetic of numbers is done here and now;
// that of objects becomes ops.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "models/elaborator.h"

namespace adjoint {

namespace {

template <class Map>
void append_names(std::vector<std::string>& names, const Map& map) {
  for (const auto& [name, value] : map) names.push_back(name);
}

}  // namespace

// What a term's operands made has its place by now, so the rest is this term's own.
Elaborator::Meaning Elaborator::evaluate(Scope& scope, const Term& term) {
  Meaning meaning = evaluate_here(scope, term);
  std::vector<TextSpan>& calls = written_.calls;
  while (calls.size() < scheme_.morphisms.size()) calls.push_back(term.span);
  return meaning;
}

Elaborator::Meaning Elaborator::evaluate_here(Scope& scope, const Term& term) {
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
      if (const Value x = one_object(scope, term.args[0], "not: its operand"); truths_.count(x)) {
        return opposite(scope, term, x);
      } else {
        return relate(scope, term, "equal", x, 0.0);
      }
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
      if (term.word == "in") return numeric(term.args[0]);
      [[fallthrough]];
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
  const Meaning left = evaluate(scope, binary.args[0]);
  if (binary.word == "in") {
    const auto* plain = std::get_if<double>(&left);
    if (!plain) fail_here(binary.at, "in: wants a number and a list, found ", describe(left));
    Term known = binary;
    known.args[0] = {.number = *plain, .at = binary.at};
    return number(scope, known);
  }
  const Meaning right = evaluate(scope, binary.args[1]);
  if (std::holds_alternative<Loss>(left) || std::holds_alternative<Loss>(right)) {
    return combine_losses(binary, left, right);
  }
  const std::string& sign = binary.word;
  const auto argument = [&](const Meaning& meaning) -> SurfaceCall::Argument {
    if (const auto* plain = std::get_if<double>(&meaning)) return *plain;
    const auto* objects = std::get_if<Objects>(&meaning);
    if (!objects)
      fail_here(binary.at, sign, ": wants objects or numbers, found ", describe(meaning));
    if (objects->size() != 1) {
      fail_here(binary.at, sign, ": wants one object on each side, found ", objects->size());
    }
    return objects->front();
  };
  SurfaceCall::Argument a = argument(left), b = argument(right);
  const bool joins = sign == "and" || sign == "or";
  if (joins && (std::holds_alternative<Value>(a) || std::holds_alternative<Value>(b))) {
    a = truth(scope, binary, a);
    b = truth(scope, binary, b);
  }
  const auto* x = std::get_if<Value>(&a);
  const auto* y = std::get_if<Value>(&b);
  if (!x && !y) return arithmetic(binary, std::get<double>(a), std::get<double>(b), file_);
  if (sign == "mod") fail_here(binary.at, "mod: wants numbers, found an object");
  if (sign == "<") return relate(scope, binary, "less", a, b);
  if (sign == ">") return relate(scope, binary, "less", b, a);
  if (sign == "==") return relate(scope, binary, "equal", a, b);
  if (sign == "<=") return opposite(scope, binary, relate(scope, binary, "less", b, a)[0]);
  if (sign == ">=") return opposite(scope, binary, relate(scope, binary, "less", a, b)[0]);
  if (sign == "!=") return opposite(scope, binary, relate(scope, binary, "equal", a, b)[0]);
  if (sign == "or") return relate(scope, binary, "maximum", a, b);
  if (sign == "and" && x && y) return relate(scope, binary, "mul", a, b);
  if (x && y) {
    const char* name = sign == "+" ? "add" : sign == "-" ? "sub" : sign == "/" ? "div" : "mul";
    return emit_infix(scope, binary, name, {{"a", *x}, {"b", *y}});
  }
  const double n = std::get<double>(x ? b : a);
  Value object = x ? *x : *y;
  double by = 1, plus = 0;
  if (sign == "+") {
    plus = n;
  } else if (sign == "-") {
    plus = x ? -n : n;
    if (!x) by = -1;
  } else if (sign == "/" && x) {
    if (n == 0 || !std::isfinite(1 / n)) fail_here(binary.at, "/: an object divided by ", n);
    by = 1 / n;
  } else {  // * and `and`
    if (sign == "/") {
      object = emit_infix(scope, binary, "pow", {{"x", object}, {"power", -1.0}})[0];
    }
    by = n;
  }
  return emit_infix(scope, binary, "scale", {{"x", object}, {"by", by}, {"plus", plus}});
}

Elaborator::Objects Elaborator::relate(Scope& scope, const Term& term, std::string_view op,
                                       SurfaceCall::Argument a, SurfaceCall::Argument b) {
  const Objects made = emit_infix(scope, term, op, {{"a", std::move(a)}, {"b", std::move(b)}});
  truths_.insert(made.front());
  return made;
}

// 1 where it is 0, and 0 where it is 1.
Elaborator::Objects Elaborator::opposite(Scope& scope, const Term& term, Value of) {
  const Objects made = emit_infix(scope, term, "scale", {{"x", of}, {"by", -1.0}, {"plus", 1.0}});
  truths_.insert(made.front());
  return made;
}

// 1 where it is not 0, which comparisons are as they stand.
SurfaceCall::Argument Elaborator::truth(Scope& scope, const Term& term,
                                        const SurfaceCall::Argument& of) {
  if (const auto* number = std::get_if<double>(&of)) return *number != 0 ? 1.0 : 0.0;
  const Value x = std::get<Value>(of);
  if (truths_.count(x)) return of;
  return opposite(scope, term, relate(scope, term, "equal", x, 0.0).front()).front();
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

}  // namespace adjoint

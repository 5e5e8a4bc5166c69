#include "scheme/term.h"

#include <algorithm>

#include "base/text.h"

namespace adjoint {

namespace {

// More than these in one term is a mistake, and its depth would end the stack.
constexpr int kDeepestNesting = 200;
constexpr int kMostOperators = 500;

}  // namespace

Term TermParser::whole_value() {
  operators_ = 0;
  return value();
}

Term TermParser::whole_term() {
  operators_ = 0;
  return sum();
}

Term TermParser::whole_product() {
  operators_ = 0;
  return product();
}

Term TermParser::binary(std::string_view op, Term left, Term right) {
  if (++operators_ > kMostOperators) in_.fail_at(left.at, "this term is too long");
  Term term{.kind = Term::Kind::kBinary, .word = std::string(op), .at = left.at};
  term.span = term.whole = {left.whole.from, right.whole.to};
  term.args.push_back(std::move(left));
  term.args.push_back(std::move(right));
  return term;
}

// a when condition else b
Term TermParser::value() {
  Term result = choice();
  if (!in_.accept_word("when")) return result;
  Term given{.kind = Term::Kind::kWhen, .at = result.at};
  given.args.push_back(std::move(result));
  given.args.push_back(choice());
  given.span = given.whole = {given.args[0].whole.from, given.args[1].whole.to};
  if (!in_.accept_word("else")) return given;
  if (++nesting_ > kDeepestNesting) in_.fail_at(in_.position(), "this is nested too deeply");
  given.args.push_back(value());
  given.span.to = given.whole.to = given.args[2].whole.to;
  --nesting_;
  return given;
}

Term TermParser::choice() {
  Term left = both();
  while (in_.accept_word("or")) left = binary("or", std::move(left), both());
  return left;
}

Term TermParser::both() {
  Term left = negation();
  while (in_.accept_word("and")) left = binary("and", std::move(left), negation());
  return left;
}

Term TermParser::negation() {
  in_.skip_blank();
  const Position at = in_.position();
  if (!in_.accept_word("not")) return comparison();
  if (++nesting_ > kDeepestNesting) in_.fail_at(at, "this is nested too deeply");
  Term opposite{.kind = Term::Kind::kNot, .at = at};
  opposite.args.push_back(negation());
  opposite.span = opposite.whole = {at, opposite.args[0].whole.to};
  --nesting_;
  return opposite;
}

Term TermParser::comparison() {
  Term left = sum();
  for (const char* relation : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (in_.accept(relation)) return binary(relation, std::move(left), sum());
  }
  if (in_.accept_word("in")) return binary("in", std::move(left), sum());
  return left;
}

Term TermParser::sum() {
  Term left = product();
  while (true) {
    if (in_.accept("+")) {
      left = binary("+", std::move(left), product());
    } else if (!in_.looking_at("->") && in_.accept("-")) {
      left = binary("-", std::move(left), product());
    } else {
      return left;
    }
  }
}

Term TermParser::product() {
  Term left = factor();
  while (true) {
    if (in_.looking_at("**")) {
      in_.fail_at(in_.position(), "wanted '*' once, found '**'; powers are pow(x, 2)");
    }
    if (in_.looking_at("%")) {
      in_.fail_at(in_.position(), "wanted 'mod', found '%': a remainder is said as in l mod 2");
    }
    if (in_.accept("*")) {
      left = binary("*", std::move(left), factor());
    } else if (in_.accept("/")) {
      left = binary("/", std::move(left), factor());
    } else if (in_.accept_word("mod")) {
      left = binary("mod", std::move(left), factor());
    } else {
      return left;
    }
  }
}

Term TermParser::factor() {
  if (++nesting_ > kDeepestNesting) in_.fail_at(in_.position(), "this is nested too deeply");
  Term result = spanned(&TermParser::unnested_factor);
  --nesting_;
  return result;
}

// Reads a term that begins here; one that was read inside brackets knows its own span.
Term TermParser::spanned(Term (TermParser::*read)()) {
  in_.skip_blank();
  const Position from = in_.position();
  Term result = (this->*read)();
  result.whole = {from, in_.last()};
  if (result.span.to.line == 0) result.span = result.whole;
  return result;
}

Term TermParser::unnested_factor() {
  in_.skip_blank();
  const Position at = in_.position();
  if (in_.accept("(")) {
    in_.open_bracket();
    Term inner = value();
    in_.close_bracket();
    in_.expect(")", "to close the bracket");
    return inner;
  }
  if (in_.accept("[")) {
    Term list{.kind = Term::Kind::kList, .at = at};
    in_.open_bracket();
    if (!in_.looking_at("]")) {
      do {
        list.args.push_back(value());
      } while (in_.accept(","));
    }
    in_.close_bracket();
    in_.expect("]", "to close the list");
    return list;
  }
  if (!in_.looking_at("->") && in_.accept("-")) {
    Term negated{.kind = Term::Kind::kNegate, .at = at};
    negated.args.push_back(factor());
    return negated;
  }
  if (in_.at_number()) {
    if (in_.at_digit_word()) {
      return {.kind = Term::Kind::kName, .word = in_.take_word("a word"), .at = at};
    }
    return {.kind = Term::Kind::kNumber, .number = in_.take_number("a number"), .at = at};
  }
  if (in_.peek() == '"') return {.kind = Term::Kind::kText, .word = in_.take_text(), .at = at};
  Term term{.kind = Term::Kind::kName, .at = at};
  term.word = in_.take_name("a name, a number or '('");
  if (in_.accept("^")) {
    term.repeat.push_back(in_.looking_at("(") ? factor() : spanned(&TermParser::power));
    if (!in_.looking_at("(")) in_.fail_wanted("'(' after a repetition (powers are pow(x, 2))");
  }
  if (in_.accept("(")) {
    term.kind = Term::Kind::kCall;
    in_.open_bracket();
    if (!in_.looking_at(")")) {
      do {
        argument(term);
      } while (in_.accept(","));
    }
    in_.close_bracket();
    in_.expect(")", "or ',' after an argument");
  }
  return term;
}

Term TermParser::power() {
  const Position at = in_.position();
  if (in_.at_number()) {
    return {.kind = Term::Kind::kNumber, .number = in_.take_number("a count"), .at = at};
  }
  return {.kind = Term::Kind::kName, .word = in_.take_name("how often to repeat"), .at = at};
}

void TermParser::argument(Term& call) {
  in_.skip_blank();
  const Position at = in_.position();
  Term given = value();
  if (given.kind == Term::Kind::kName && in_.accept("=")) {
    for (const auto& [word, earlier] : call.keywords) {
      if (word == given.word) in_.fail_at(at, "'" + word + "' is given twice");
    }
    call.keywords.emplace_back(given.word, value());
    call.keywords.back().second.named = at;
  } else if (!call.keywords.empty()) {
    in_.fail_at(at, "wanted name=value: arguments by position come before arguments by name");
  } else {
    call.args.push_back(std::move(given));
  }
}

bool mentions(const Term& term, std::string_view name) {
  const auto in = [&](const Term& part) { return mentions(part, name); };
  return (term.kind == Term::Kind::kName && term.word == name) ||
         std::any_of(term.args.begin(), term.args.end(), in) ||
         std::any_of(term.repeat.begin(), term.repeat.end(), in) ||
         std::any_of(term.keywords.begin(), term.keywords.end(),
                     [&](const auto& keyword) { return in(keyword.second); });
}

bool calls(const Term& term, std::string_view name) {
  const auto in = [&](const Term& part) { return calls(part, name); };
  return (term.kind == Term::Kind::kCall && term.word == name) ||
         std::any_of(term.args.begin(), term.args.end(), in) ||
         std::any_of(term.repeat.begin(), term.repeat.end(), in) ||
         std::any_of(term.keywords.begin(), term.keywords.end(),
                     [&](const auto& keyword) { return in(keyword.second); });
}

Term parse_term(std::string_view text, std::string_view file) {
  Cursor in(text, file);
  Term one = TermParser(in).whole_value();
  in.expect_line_end();
  return one;
}

// So that print writes only the brackets that the grammar needs.
Binding binding(const Term& term) {
  if (term.kind == Term::Kind::kWhen) return Binding::kWhen;
  if (term.kind == Term::Kind::kNot) return Binding::kNot;
  if (term.kind != Term::Kind::kBinary) return Binding::kFactor;
  if (term.word == "or") return Binding::kOr;
  if (term.word == "and") return Binding::kAnd;
  if (term.word == "+" || term.word == "-") return Binding::kSum;
  const bool multiplies = term.word == "*" || term.word == "/" || term.word == "mod";
  return multiplies ? Binding::kProduct : Binding::kComparison;
}

Binding above(Binding binding) { return static_cast<Binding>(static_cast<int>(binding) + 1); }

std::string print_inside(const Term& term, Binding at_least) {
  return binding(term) >= at_least ? print(term) : "(" + print(term) + ")";
}

std::string print(const Term& term) {
  switch (term.kind) {
    case Term::Kind::kNumber:
      return shortest(term.number);
    case Term::Kind::kText:
      return "\"" + term.word + "\"";
    case Term::Kind::kName:
      return term.word;
    case Term::Kind::kNegate:
      return "-" + print_inside(term.args[0], Binding::kFactor);
    case Term::Kind::kNot:
      return "not " + print_inside(term.args[0], Binding::kNot);
    case Term::Kind::kBinary: {
      const Binding own = binding(term);
      const bool tight = term.word == "*" || term.word == "/";
      const std::string op = tight ? term.word : " " + term.word + " ";
      // Comparisons do not chain.
      const Binding left = own == Binding::kComparison ? above(own) : own;
      return print_inside(term.args[0], left) + op + print_inside(term.args[1], above(own));
    }
    case Term::Kind::kWhen: {
      const std::string given = print_inside(term.args[0], Binding::kOr) + " when " +
                                print_inside(term.args[1], Binding::kOr);
      return term.args.size() < 3 ? given : given + " else " + print(term.args[2]);
    }
    case Term::Kind::kCall:
    case Term::Kind::kList:
      break;
  }
  std::vector<std::string> parts;
  for (const Term& arg : term.args) parts.push_back(print(arg));
  if (term.kind == Term::Kind::kList) return "[" + join(parts, ", ") + "]";
  for (const auto& [word, value] : term.keywords) parts.push_back(word + "=" + print(value));
  std::string power;
  for (const Term& count : term.repeat) {
    const bool plain = count.kind == Term::Kind::kName || count.kind == Term::Kind::kNumber;
    power = "^" + (plain ? print(count) : "(" + print(count) + ")");
  }
  return term.word + power + "(" + join(parts, ", ") + ")";
}

}  // namespace adjoint

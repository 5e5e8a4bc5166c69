#include "scheme/term.h"

#include "base/text.h"

namespace adjoint {

namespace {

// More than these in one term is a mistake, and its depth would end the stack.
constexpr int kDeepestNesting = 200;
constexpr int kMostOperators = 500;

}  // namespace

Term TermParser::whole_term() {
  operators_ = 0;
  return term();
}

Term TermParser::whole_product() {
  operators_ = 0;
  return product();
}

Term TermParser::binary(char op, Term left, Term right) {
  if (++operators_ > kMostOperators) in_.fail_at(left.at, "this term is too long");
  Term term{.kind = Term::Kind::kBinary, .word = std::string(1, op), .at = left.at};
  term.args.push_back(std::move(left));
  term.args.push_back(std::move(right));
  return term;
}

Term TermParser::term() {
  Term left = product();
  while (true) {
    if (in_.accept("+")) {
      left = binary('+', std::move(left), product());
    } else if (in_.accept("-")) {
      left = binary('-', std::move(left), product());
    } else {
      return left;
    }
  }
}

Term TermParser::product() {
  Term left = factor();
  while (true) {
    if (in_.accept("*")) {
      left = binary('*', std::move(left), factor());
    } else if (in_.accept("/")) {
      left = binary('/', std::move(left), factor());
    } else {
      return left;
    }
  }
}

Term TermParser::factor() {
  if (++nesting_ > kDeepestNesting) in_.fail_at(in_.position(), "this is nested too deeply");
  Term result = unnested_factor();
  --nesting_;
  return result;
}

Term TermParser::unnested_factor() {
  in_.skip_blank();
  const Position at = in_.position();
  if (in_.accept("(")) {
    in_.open_bracket();
    Term inner = term();
    in_.close_bracket();
    in_.expect(")", "to close the bracket");
    return inner;
  }
  if (in_.accept("[")) {
    Term list{.kind = Term::Kind::kList, .at = at};
    in_.open_bracket();
    if (!in_.looking_at("]")) {
      do {
        list.args.push_back(term());
      } while (in_.accept(","));
    }
    in_.close_bracket();
    in_.expect("]", "to close the list");
    return list;
  }
  if (in_.accept("-")) {
    Term negated{.kind = Term::Kind::kNegate, .at = at};
    negated.args.push_back(factor());
    return negated;
  }
  if (in_.at_number()) {
    return {.kind = Term::Kind::kNumber, .number = in_.take_number("a number"), .at = at};
  }
  if (in_.peek() == '"') return {.kind = Term::Kind::kText, .word = in_.take_text(), .at = at};
  Term term{.kind = Term::Kind::kName, .at = at};
  term.word = in_.take_name("a name, a number or '('");
  if (in_.accept("^")) {
    term.repeat.push_back(in_.looking_at("(") ? factor() : power());
    if (!in_.looking_at("(")) in_.fail_wanted("'(' after a repetition");
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
  Term value = term();
  if (value.kind == Term::Kind::kName && in_.accept("=")) {
    for (const auto& [word, earlier] : call.keywords) {
      if (word == value.word) in_.fail_at(at, "'" + word + "' is given twice");
    }
    call.keywords.emplace_back(value.word, conditional());
  } else if (!call.keywords.empty()) {
    in_.fail_at(at, "wanted name=value: arguments by position come before arguments by name");
  } else {
    call.args.push_back(std::move(value));
  }
}

Term TermParser::conditional() {
  Term value = term();
  if (!in_.accept_word("when")) return value;
  Term given{.kind = Term::Kind::kWhen, .at = value.at};
  given.args.push_back(std::move(value));
  given.args.push_back(term());
  return given;
}

Term parse_term(std::string_view text, std::string_view file) {
  Cursor in(text, file);
  Term one = TermParser(in).whole_term();
  in.expect_line_end();
  return one;
}

namespace {

// Binding strength, so that print writes only the brackets that the grammar needs.
int strength(const Term& term) {
  if (term.kind != Term::Kind::kBinary) return 3;
  return term.word == "+" || term.word == "-" ? 1 : 2;
}

}  // namespace

std::string print_inside(const Term& term, int at_least) {
  return strength(term) >= at_least ? print(term) : "(" + print(term) + ")";
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
      return "-" + print_inside(term.args[0], 3);
    case Term::Kind::kBinary: {
      const int own = strength(term);
      const std::string op = own == 1 ? " " + term.word + " " : term.word;
      return print_inside(term.args[0], own) + op + print_inside(term.args[1], own + 1);
    }
    case Term::Kind::kWhen:
      return print(term.args[0]) + " when " + print(term.args[1]);
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

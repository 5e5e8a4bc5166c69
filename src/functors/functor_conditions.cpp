// Numbers and conditions of a functor's text, and the names that they may use where they stand.
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "functors/functor_parser.h"
#include "models/settings.h"

namespace adjoint {

namespace {

constexpr int kDeepestCondition = 100;  // brackets and nots: more is a mistake

// How strongly a condition binds: `or` least, then `and`, then `not`. A list of one is its element.
int strength_of(const Condition& c) {
  const bool joins = c.kind == Condition::Kind::kAny || c.kind == Condition::Kind::kAll;
  if (joins && c.parts.size() == 1) return strength_of(c.parts[0]);
  return c.kind == Condition::Kind::kAny ? 1 : c.kind == Condition::Kind::kAll ? 2 : 3;
}

}  // namespace

bool mentions(const Term& term, std::string_view name) {
  const auto in = [&](const Term& part) { return mentions(part, name); };
  return (term.kind == Term::Kind::kName && term.word == name) ||
         std::any_of(term.args.begin(), term.args.end(), in) ||
         std::any_of(term.keywords.begin(), term.keywords.end(),
                     [&](const auto& keyword) { return in(keyword.second); });
}

std::string print(const Condition& c) {
  const int own = c.kind == Condition::Kind::kNot ? 3 : strength_of(c);
  std::vector<std::string> parts;
  for (const Condition& part : c.parts) {
    parts.push_back(strength_of(part) < own ? "(" + print(part) + ")" : print(part));
  }
  switch (c.kind) {
    case Condition::Kind::kAll:
      return join(parts, " and ");
    case Condition::Kind::kAny:
      return join(parts, " or ");
    case Condition::Kind::kNot:
      return "not " + parts[0];
    case Condition::Kind::kNumber:
      return "number(" + print(c.terms[0]) + ")";
    case Condition::Kind::kIn:
      return print(c.terms[0]) + " in " + print(c.terms[1]);
    case Condition::Kind::kCompare:
      break;
  }
  return print(c.terms[0]) + " " + c.relation + " " + print(c.terms[1]);
}

// The names that a number or a condition may use here.
std::vector<std::string> FunctorParser::known_names() const {
  std::vector<std::string> names = {"L"};
  if (!index_.empty()) names.push_back(index_);
  if (knows_block_) names.emplace_back(kBlockNumber);
  if (knows_training_) names.emplace_back(kTraining);
  for (const FunctorParam& p : result_.params) names.push_back(p.name);
  for (const Let& l : result_.lets) names.push_back(l.name);
  return names;
}

// An unknown name would make a condition silently false. The words that a parameter may be
// compared with are names, too.
void FunctorParser::check_names(const Term& term) {
  std::vector<std::string> known;
  if (term.kind == Term::Kind::kName) {
    speaks_of_block_ = speaks_of_block_ || (knows_block_ && term.word == kBlockNumber);
    known = known_names();
    for (const FunctorParam& p : result_.params) {
      known.insert(known.end(), p.words.begin(), p.words.end());
    }
  } else if (term.kind == Term::Kind::kCall) {
    known = number_functions();
    known.insert(known.end(), {"largest", "number"});
  }
  if (!known.empty() && std::find(known.begin(), known.end(), term.word) == known.end()) {
    in_.fail_at(term.at, "there is no number or word '" + term.word + "' here (there are " +
                             join(known, ", ") + ")" + did_you_mean(term.word, known));
  }
  for (const Term& t : term.args) check_names(t);
}

Term FunctorParser::number_term() {
  Term term = terms_.whole_term();
  check_names(term);
  return term;
}

Condition FunctorParser::when() { return in_.accept_word("when") ? condition() : Condition{}; }

Condition FunctorParser::condition() {
  if (++nesting_ > kDeepestCondition) in_.fail_at(in_.position(), "this is nested too deeply");
  Condition any{.kind = Condition::Kind::kAny};
  do {
    Condition all{.kind = Condition::Kind::kAll};
    do {
      all.parts.push_back(negation());
    } while (in_.accept_word("and"));
    any.parts.push_back(std::move(all));
  } while (in_.accept_word("or"));
  --nesting_;
  return any;
}

Condition FunctorParser::negation() {
  if (in_.accept_word("not")) {
    if (++nesting_ > kDeepestCondition) in_.fail_at(in_.position(), "this is nested too deeply");
    Condition c{.kind = Condition::Kind::kNot};
    c.parts.push_back(negation());
    --nesting_;
    return c;
  }
  if (!at_bracketed_condition()) return comparison();
  in_.accept("(");
  in_.open_bracket();
  Condition inner = condition();
  in_.close_bracket();
  in_.expect(")", "to close the condition");
  return inner;
}

// A bracket may begin a term, (l + 1) mod 2 == 0, or a condition, (l == 0 or l == L - 1): one
// that compares or joins inside is a condition.
bool FunctorParser::at_bracketed_condition() {
  if (!in_.looking_at("(")) return false;
  int depth = 0;
  std::string word;
  for (size_t ahead = 0; in_.peek(ahead); ++ahead) {
    const char c = in_.peek(ahead), next = in_.peek(ahead + 1);
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
      continue;
    }
    if (word == "and" || word == "or" || word == "not" || word == "in") return true;
    word.clear();
    if (c == '<' || c == '>' || ((c == '=' || c == '!') && next == '=')) return true;
    depth += (c == '(') - (c == ')');
    if (depth == 0) return false;
  }
  return false;
}

Condition FunctorParser::comparison() {
  Condition c{.kind = Condition::Kind::kCompare};
  in_.skip_blank();
  const Position at = in_.position();
  c.terms.push_back(number_term());
  const Term& left = c.terms[0];
  if (left.kind == Term::Kind::kCall && left.word == "number" && left.args.size() == 1) {
    c.kind = Condition::Kind::kNumber;
    c.terms = {left.args[0]};
    return c;
  }
  if (knows_training_ && left.kind == Term::Kind::kName && left.word == kTraining &&
      !at_relation()) {
    c.relation = "!=";
    c.terms.push_back({.kind = Term::Kind::kNumber, .number = 0, .at = at});
    return c;
  }
  if (in_.accept_word("in")) {
    c.kind = Condition::Kind::kIn;
  } else {
    for (const char* relation : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!in_.accept(relation)) continue;
      c.relation = relation;
      break;
    }
    if (c.relation.empty()) in_.fail_at(at, "wanted a comparison such as l mod every == 0");
  }
  c.terms.push_back(number_term());
  return c;
}

bool FunctorParser::at_relation() {
  return in_.looking_at("=") || in_.looking_at("!") || in_.looking_at("<") || in_.looking_at(">") ||
         in_.looking_at("in ");
}

}  // namespace adjoint

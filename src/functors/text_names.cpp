#include "functors/text_names.h"

#include <algorithm>

#include "base/text.h"
#include "models/settings.h"

namespace adjoint {

Names::Names(const FunctorText& text, const Arguments& args, int chain_length)
    : text_(text), args_(args) {
  numbers_["L"] = chain_length;
  for (const Let& let : text.lets) {
    for (const auto& [value, when] : let.choices) {
      if (!holds(when)) continue;
      numbers_[let.name] = number(value);
      chosen_.push_back("let " + let.name + " = " + print(value));
      break;
    }
  }
}

bool Names::is_param(std::string_view name) const {
  return std::any_of(text_.params.begin(), text_.params.end(),
                     [&](const FunctorParam& p) { return p.name == name; });
}

double Names::number(const Term& term) const {
  return evaluate_number(meant(term), text_.file, [&](const Term& name) {
    const auto found = numbers_.find(name.word);
    if (found != numbers_.end()) return found->second;
    if (is_param(name.word)) return number(args_.term(name.word));
    fail_at(text_.file, name.at, "there is no number '", name.word, "' here");
  });
}

bool Names::holds(const Condition& c) const {
  const auto part_holds = [&](const Condition& part) { return holds(part); };
  switch (c.kind) {
    case Condition::Kind::kAll:
      return std::all_of(c.parts.begin(), c.parts.end(), part_holds);
    case Condition::Kind::kAny:
      return std::any_of(c.parts.begin(), c.parts.end(), part_holds);
    case Condition::Kind::kNot:
      return !holds(c.parts[0]);
    case Condition::Kind::kNumber:
      return is_number(meant(c.terms[0]));
    case Condition::Kind::kIn: {
      const std::vector<Term> list = elements(c.terms[1]);
      const double left = number(c.terms[0]);
      return std::any_of(list.begin(), list.end(),
                         [&](const Term& t) { return number(t) == left; });
    }
    case Condition::Kind::kCompare:
      return compare(c);
  }
  return false;
}

std::vector<std::string> Names::ways(const Condition& c) const {
  switch (c.kind) {
    case Condition::Kind::kAny: {
      std::vector<std::string> all;
      for (const Condition& part : c.parts) {
        if (!holds(part)) continue;
        for (std::string& way : ways(part)) all.push_back(std::move(way));
      }
      return all;
    }
    case Condition::Kind::kAll: {
      std::vector<std::string> all = {""};
      for (const Condition& part : c.parts) {
        std::vector<std::string> longer;
        for (const std::string& way : all) {
          for (const std::string& next : ways(part)) {
            longer.push_back(way.empty() ? next : way + " and " + next);
          }
        }
        all = std::move(longer);
      }
      return all;
    }
    case Condition::Kind::kNot:
    case Condition::Kind::kNumber:
    case Condition::Kind::kCompare:
      return {print(c)};
    case Condition::Kind::kIn: {
      std::vector<std::string> all;
      for (const Term& t : elements(c.terms[1])) {
        if (number(t) != number(c.terms[0])) continue;
        all.push_back(print(c.terms[0]) + " == " + shortest(number(t)));
      }
      return all;
    }
  }
  return {};
}

std::string Names::filled(std::string text) const {
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos) break;
    const Term name = parse_term(text.substr(open + 1, close - open - 1), text_.file);
    const Term value = meant(name);
    text.replace(open, close - open + 1, is_number(value) ? shortest(number(value)) : print(value));
  }
  return text;
}

Term Names::meant(const Term& term) const {
  if (term.kind == Term::Kind::kName && is_param(term.word)) return args_.term(term.word);
  if (term.kind == Term::Kind::kCall && term.word == "largest" && term.args.size() == 1) {
    Term most{.at = term.at};
    for (const Term& t : elements(term.args[0])) most.number = std::max(most.number, number(t));
    return most;
  }
  return term;
}

std::vector<Term> Names::elements(const Term& term) const {
  Term list = meant(term);
  return list.kind == Term::Kind::kList ? std::move(list.args) : std::vector<Term>{list};
}

bool Names::is_number(const Term& t) const {
  if (t.kind == Term::Kind::kName) return numbers_.count(t.word) > 0;
  return t.kind != Term::Kind::kList && t.kind != Term::Kind::kText;
}

bool Names::compare(const Condition& c) const {
  const Term a = meant(c.terms[0]), b = meant(c.terms[1]);
  if (!is_number(a) || !is_number(b)) {
    // Words and lists are equal or not.
    const bool same = print(a) == print(b);
    return c.relation == "==" ? same : c.relation == "!=" && !same;
  }
  const double x = number(a), y = number(b);
  if (c.relation == "==") return x == y;
  if (c.relation == "!=") return x != y;
  if (c.relation == "<=") return x <= y;
  if (c.relation == ">=") return x >= y;
  return c.relation == "<" ? x < y : x > y;
}

}  // namespace adjoint

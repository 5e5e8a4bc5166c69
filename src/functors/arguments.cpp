// The arguments of a functor in a stack: terms bound to its params, by position, by name or by
// default.
#include "functors/arguments.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace adjoint {

namespace {

std::string with_default(const FunctorParam& param) {
  return param.otherwise.empty() ? param.name : param.name + "=" + param.otherwise;
}

std::string what_it_takes(const std::vector<FunctorParam>& params) {
  if (params.empty()) return "nothing";
  std::vector<std::string> parts;
  for (const FunctorParam& p : params) parts.push_back(with_default(p));
  return join(parts, ", ");
}

bool is_number(const Term& term) {
  return term.kind == Term::Kind::kNumber ||
         (term.kind == Term::Kind::kNegate && is_number(term.args[0]));
}

double number_of(const Term& term) {
  return term.kind == Term::Kind::kNegate ? -number_of(term.args[0]) : term.number;
}

// What a complaint about an argument begins with.
struct Complaint {
  std::string_view functor, file;

  std::string at(Position place) const {
    const std::string name(functor);
    return file.empty() ? name : join_parts(file, ":", place.line, ":", place.column, ": ", name);
  }
};

void check_one(const Complaint& of, const FunctorParam& param, const Term& term) {
  const std::string what = of.at(term.at) + ": '" + param.name + "'";
  if (param.text && term.kind == Term::Kind::kText) return;
  if (param.text && param.words.empty()) {
    if (term.kind != Term::Kind::kText) fail(what, " must be in quotes, found ", print(term));
  }
  if (term.kind == Term::Kind::kName) {
    const auto& words = param.words;
    if (std::find(words.begin(), words.end(), term.word) != words.end()) return;
    if (words.empty()) fail(what, " must be a number, found '", term.word, "'");
    fail(what, " is one of ", join(words, ", "), ", found '", term.word, "'",
         did_you_mean(term.word, words));
  }
  if (!is_number(term)) fail(what, " must be a number or a word, found ", print(term));
  const double n = number_of(term);
  if (!param.words.empty() && param.least > param.most) {
    fail(what, " is one of ", join(param.words, ", "), ", found ", print(term));
  }
  if (param.whole && n != std::floor(n)) fail(what, " must be a whole number, found ", print(term));
  if (n < param.least) {
    fail(what, " must be at least ", shortest(param.least), ", found ", print(term));
  }
  if (n > param.most) {
    fail(what, " must be at most ", shortest(param.most), ", found ", print(term));
  }
}

void check(const Complaint& of, const FunctorParam& param, const Term& term) {
  if (term.kind != Term::Kind::kList) return check_one(of, param, term);
  if (!param.list) {
    fail(of.at(term.at), ": '", param.name, "' is one value, found the list ", print(term));
  }
  for (const Term& element : term.args) check_one(of, param, element);
}

}  // namespace

std::string signature(const std::string& name, const std::vector<FunctorParam>& params) {
  std::vector<std::string> parts;
  for (const FunctorParam& p : params) {
    parts.push_back(with_default(p));
    if (p.words.empty()) continue;
    parts.back() += ": " + join(p.words, " | ") + (p.least <= p.most ? " | n" : "");
  }
  return parts.empty() ? name : name + "(" + join(parts, ", ") + ")";
}

Arguments::Arguments(std::string_view functor, const std::vector<FunctorParam>& params,
                     const Term& call, std::string_view file) {
  const Complaint of{.functor = functor, .file = file};
  if (call.args.size() > params.size()) {
    fail(of.at(call.args[params.size()].at), ": too many arguments; it takes ",
         what_it_takes(params));
  }
  std::vector<std::string> names, said;
  for (const FunctorParam& p : params) names.push_back(p.name);
  for (size_t i = 0; i < call.args.size(); ++i) values_[params[i].name] = call.args[i];
  for (const auto& [word, value] : call.keywords) {
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      fail(of.at(value.named), ": there is no parameter '", word, "'; it takes ",
           what_it_takes(params), did_you_mean(word, names));
    }
    if (!values_.emplace(word, value).second) {
      fail(of.at(value.named), ": '", word, "' is given twice");
    }
  }
  for (const FunctorParam& p : params) {
    const auto found = values_.find(p.name);
    if (found == values_.end()) {
      if (p.otherwise.empty()) {
        fail(of.at(call.at), ": '", p.name, "' is missing; it takes ", what_it_takes(params));
      }
      values_[p.name] = parse_term(p.otherwise, functor);
      continue;
    }
    check(of, p, found->second);
    if (adjoint::print(found->second) != p.otherwise) {
      said.push_back(p.name + "=" + adjoint::print(found->second));
    }
  }
  if (!said.empty()) printed_ = "(" + join(said, ", ") + ")";
}

const Term& Arguments::term(std::string_view name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end(), "a param that the functor declares: " + std::string(name));
  return found->second;
}

bool Arguments::is_word(std::string_view name) const {
  return term(name).kind == Term::Kind::kName;
}
double Arguments::number(std::string_view name) const { return number_of(term(name)); }
std::string Arguments::word(std::string_view name) const { return term(name).word; }
std::vector<Term> Arguments::list(std::string_view name) const {
  const Term& t = term(name);
  return t.kind == Term::Kind::kList ? t.args : std::vector<Term>{t};
}
std::string Arguments::print() const { return printed_; }

}  // namespace adjoint

// Numbers and conditions of a functor's text, and the names that they may use where they stand.
#include <algorithm>

#include "base/text.h"
#include "functors/functor_parser.h"
#include "models/settings.h"

namespace adjoint {

namespace {

bool is_arithmetic(std::string_view sign) {
  return sign == "+" || sign == "-" || sign == "*" || sign == "/" || sign == "mod";
}

}  // namespace

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

// Refuses a name that a number has, or one of `others`.
void FunctorParser::check_is_free(Position at, const std::string& name,
                                  const std::vector<std::string>& others) const {
  std::vector<std::string> taken = known_names();
  taken.insert(taken.end(), others.begin(), others.end());
  if (std::find(taken.begin(), taken.end(), name) != taken.end()) {
    in_.fail_at(at, "'" + name + "' is already the name of something");
  }
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
    known.insert(known.end(), {"cut", "largest", "length", "mesh", "number"});
    if (!sized_.empty()) {
      known.emplace_back("width");
      if (term.word == "width") return check_width(term);
    }
    // mesh(data): what it asks for may be said by another functor, or by none.
    if (term.word == "mesh" && term.args.size() == 1) return;
  }
  if (!known.empty() && std::find(known.begin(), known.end(), term.word) == known.end()) {
    in_.fail_at(term.at, "there is no number or word '" + term.word + "' here (there are " +
                             join(known, ", ") + ")" + did_you_mean(term.word, known));
  }
  for (const Term& t : term.args) check_names(t);
}

void FunctorParser::check_width(const Term& term) const {
  const std::string asked = term.args.size() == 1 ? term.args[0].word : "";
  if (std::find(sized_.begin(), sized_.end(), asked) != sized_.end()) return;
  in_.fail_at(term.at, "width wants the result or an operand of this rule (" + join(sized_, ", ") +
                           "), found '" + print(term) + "'" + did_you_mean(asked, sized_));
}

Term FunctorParser::number_term() {
  Term term = terms_.whole_term();
  check_names(term);
  return term;
}

Condition FunctorParser::when() {
  if (!in_.accept_word("when")) return std::nullopt;
  return condition();
}

Term FunctorParser::condition() {
  Term term = terms_.whole_value();
  check_condition(term);
  return term;
}

// A number alone is no condition: what is meant is hardly that it is not 0.
void FunctorParser::check_condition(const Term& c) {
  const bool is_binary = c.kind == Term::Kind::kBinary;
  if (c.kind == Term::Kind::kNot || (is_binary && (c.word == "and" || c.word == "or"))) {
    for (const Term& part : c.args) check_condition(part);
    return;
  }
  check_names(c);
  const bool compares = is_binary && !is_arithmetic(c.word);
  const bool asks = c.kind == Term::Kind::kCall && c.word == "number" && c.args.size() == 1;
  const bool is_training = knows_training_ && c.kind == Term::Kind::kName && c.word == kTraining;
  if (!compares && !asks && !is_training) {
    in_.fail_at(c.at, "wanted a comparison such as l mod every == 0, found '" + print(c) + "'");
  }
}

}  // namespace adjoint

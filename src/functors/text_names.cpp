#include "functors/text_names.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "models/settings.h"

namespace adjoint {

Names::Names(const FunctorText& text, const Arguments& args, int chain_length,
             std::span<const MeshAxis> mesh)
    : text_(text), args_(args), mesh_(mesh.begin(), mesh.end()) {
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

bool Names::holds(const Term& c) const {
  if (c.kind == Term::Kind::kNot) return !holds(c.args[0]);
  if (c.kind == Term::Kind::kCall) return is_number(meant(c.args[0]));  // number(every)
  if (c.kind != Term::Kind::kBinary) return number(c) != 0;             // training
  if (c.word == "and") return holds(c.args[0]) && holds(c.args[1]);
  if (c.word == "or") return holds(c.args[0]) || holds(c.args[1]);
  return c.word == "in" ? !ways(c).empty() : compare(c);
}

std::vector<std::string> Names::ways(const Term& c) const {
  const bool is_binary = c.kind == Term::Kind::kBinary;
  if (is_binary && c.word == "or") {
    std::vector<std::string> all;
    for (const Term& part : c.args) {
      if (!holds(part)) continue;
      for (std::string& way : ways(part)) all.push_back(std::move(way));
    }
    return all;
  }
  if (is_binary && c.word == "and") {
    std::vector<std::string> all;
    for (const std::string& left : ways(c.args[0])) {
      for (const std::string& right : ways(c.args[1])) all.push_back(left + " and " + right);
    }
    return all;
  }
  if (is_binary && c.word == "in") {
    std::vector<std::string> all;
    for (const Term& t : elements(c.args[1])) {
      if (number(t) != number(c.args[0])) continue;
      all.push_back(print(c.args[0]) + " == " + shortest(number(t)));
    }
    return all;
  }
  return {print(c)};
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
  if (term.kind == Term::Kind::kCall && term.word == "length" && term.args.size() == 1) {
    return {.number = static_cast<double>(elements(term.args[0]).size()), .at = term.at};
  }
  if (term.kind == Term::Kind::kCall && term.word == "mesh" && term.args.size() == 1) {
    return {.number = static_cast<double>(mesh_size(mesh_, term.args[0].word)), .at = term.at};
  }
  if (term.kind == Term::Kind::kCall && term.word == "cut" && term.args.size() >= 2) {
    const double block = number(term.args[0]);
    std::vector<double> said;
    if (term.args.size() > 2) {
      for (const Term& t : elements(term.args[2])) said.push_back(number(t));
    }
    double piece = 1;
    if (said.empty()) {
      const std::vector<int>& begins = cuts(static_cast<int>(number(term.args[1])));
      piece += static_cast<double>(
          std::count_if(begins.begin(), begins.end(), [&](int b) { return b <= block; }));
    } else {
      piece += static_cast<double>(
          std::count_if(said.begin(), said.end(), [&](double b) { return b <= block; }));
    }
    return {.number = piece, .at = term.at};
  }
  return term;
}

const std::vector<int>& Names::cuts(int pieces) const {
  const auto [found, fresh] = cuts_.try_emplace(pieces);
  if (fresh) found->second = balanced_cuts(costs_, pieces);
  return found->second;
}

std::vector<Term> Names::elements(const Term& term) const {
  Term list = meant(term);
  return list.kind == Term::Kind::kList ? std::move(list.args) : std::vector<Term>{list};
}

bool Names::is_number(const Term& t) const {
  if (t.kind == Term::Kind::kName) return numbers_.count(t.word) > 0;
  return t.kind != Term::Kind::kList && t.kind != Term::Kind::kText;
}

bool Names::compare(const Term& c) const {
  const Term a = meant(c.args[0]), b = meant(c.args[1]);
  if (is_number(a) && is_number(b)) return arithmetic(c, number(a), number(b), text_.file) != 0;
  // Words and lists are equal or not.
  const bool same = print(a) == print(b);
  return c.word == "==" ? same : c.word == "!=" && !same;
}

std::optional<Schedule> own_schedule(const FunctorText& text, const Arguments& args) {
  const std::string& word = text.order->word;
  const bool is_param = std::any_of(text.params.begin(), text.params.end(),
                                    [&](const FunctorParam& p) { return p.name == word; });
  if (!is_param || args.term(word).kind != Term::Kind::kText) return std::nullopt;
  const std::string& file = args.term(word).word;
  // A run's folder keeps such files (stack.h), and knows them by their names.
  if (!file.ends_with(kScheduleFile)) {
    fail(text.name, ": a schedule in a file is called NAME", kScheduleFile, ", found '", file, "'");
  }
  return parse_schedule(read_file(file), file);
}

}  // namespace adjoint

#include "functors/parameter_facts.h"

#include <algorithm>

#include "base/text.h"
#include "models/settings.h"

namespace adjoint {

namespace {

constexpr int kMostFallbacks = 8;  // from one optimizer to another

}  // namespace

std::vector<std::string> parameter_facts() {
  return {"matrix", "table",        "vector",       "embedding",     "readout",
          "router", "feed_forward", "attention_in", "attention_out", "norm"};
}

Term ParameterFacts::operator()(Term term) const {
  if (const auto number = fact(term)) return {.number = *number, .at = term.at};
  for (Term& t : term.args) t = (*this)(std::move(t));
  for (auto& [word, t] : term.keywords) t = (*this)(std::move(t));
  for (Term& t : term.repeat) t = (*this)(std::move(t));
  return term;
}

std::optional<double> ParameterFacts::fact(const Term& term) const {
  if (term.kind != Term::Kind::kCall || term.args.empty() || !term.keywords.empty()) return {};
  const Term& of = term.args[0];
  if (of.kind != Term::Kind::kName || of.word != "p" || !term.repeat.empty()) return {};
  for (const Box& box : text_.boxes) {
    if (box.name == term.word) return {};
  }
  if (term.word == "dim" && term.args.size() == 2) return dim(term.args[1]);
  if (term.args.size() != 1) return {};
  if (term.word == "rank") return parameter_.rank();
  if (term.word == "elements") return static_cast<double>(parameter_.num_elements());
  if (std::find(words_.begin(), words_.end(), term.word) == words_.end()) return {};
  return is_(term.word);
}

double ParameterFacts::dim(const Term& axis) const {
  const double at = evaluate_number(axis, text_.file, [&](const Term& name) -> double {
    fail_at(text_.file, name.at, "dim: wanted the number of an axis, found '", name.word, "'");
  });
  const int rank = parameter_.rank(), i = static_cast<int>(at);
  if (i != at || i < -rank || i >= rank) {
    fail_at(text_.file, axis.at, "dim: wanted an axis of ", shape_string(parameter_),
            " by a number from ", -rank, " to ", rank - 1, ", found ", print(axis));
  }
  return static_cast<double>(parameter_.dim(i));
}

std::vector<Setting> numbers_of(const Optimizer& optimizer) {
  std::vector<Setting> numbers;
  for (const FunctorParam& p : optimizer.params) {
    numbers.push_back({p.name, optimizer.args.term(p.name), {}});
  }
  return numbers;
}

Optimizer optimizer_for(Optimizer optimizer, const Type& parameter, const ParameterIs& is,
                        const StepOptions& options) {
  for (int i = 0; optimizer.text; ++i) {
    // A text names only others that travel with Adjoint.
    CHECK(i < kMostFallbacks, "no shipped optimizers leave a parameter to each other in a circle");
    const OptimizerText& text = *optimizer.text;
    if (text.cases.empty()) {
      optimizer.rule = text.always;
      return optimizer;
    }
    const Settings known = resolve_settings({.numbers = numbers_of(optimizer)}, text.file, {});
    const ParameterFacts facts(text, parameter, is);
    const auto holds = [&](const OptimizerCase& one) {
      if (!one.when) return true;
      return evaluate_number(facts(*one.when), text.file, [&](const Term& name) {
               const auto found = known.find(name.word);
               if (found != known.end()) return found->second;
               std::vector<std::string> names;
               for (const auto& [other, value] : known) names.push_back(other);
               fail_at(text.file, name.at, "there is no number '", name.word,
                       "' here; of a parameter there are rank(p), elements(p), dim(p, -1), ",
                       join(parameter_facts(), "(p), "), "(p)", did_you_mean(name.word, names));
             }) != 0;
    };
    const auto found = std::find_if(text.cases.begin(), text.cases.end(), holds);
    CHECK(found != text.cases.end(), "a text with cases ends with `otherwise`");
    if (found->instead.empty()) {
      optimizer.rule = found->rule;
      return optimizer;
    }
    optimizer = find_optimizer(found->instead, options);
  }
  return optimizer;
}

}  // namespace adjoint

#include "functors/text_rules.h"

#include <cmath>
#include <memory>

#include "base/text.h"
#include "models/settings.h"

namespace adjoint {

Names TextRules::names_for(int chain_length, std::span<const MeshAxis> mesh) const {
  const Names names(text_, application_.args, chain_length, mesh);
  for (const Requirement& r : text_.requirements) {
    if (!names.holds(r.condition)) application_.refuse(names.filled(r.message));
  }
  for (const std::string& let : names.chosen()) application_.note(let, "");
  return names;
}

std::vector<Setting> TextRules::numbers_of(const Names& names, Position at) const {
  std::vector<Setting> all;
  for (const auto& [name, value] : names.numbers()) all.push_back({name, {.number = value}, at});
  for (const FunctorParam& p : text_.params) {
    if (!p.words.empty() || p.list || names.numbers().count(p.name)) continue;
    all.push_back({p.name, {.number = names.number(application_.args.term(p.name))}, at});
  }
  return all;
}

bool TextRules::is_read(const StateRule& state) const {
  for (const MorphismRule& rule : text_.morphisms) {
    if (calls(rule.replacement, state.name)) return true;
    for (const Statement& statement : rule.statements) {
      for (const Term& value : statement.values) {
        if (calls(value, state.name)) return true;
      }
    }
  }
  return false;
}

Term TextRules::with_sizes(Term term, const Sizes& sizes) const {
  if (term.kind == Term::Kind::kCall && term.word == "queries") {
    if (term.args.size() != 1 || term.args[0].word != sizes.result || !term.keywords.empty()) {
      fail_at(text_.file, term.at, "queries wants '", sizes.result,
              "', the result of this rule, found '", print(term), "'");
    }
    if (!sizes.queries) {
      fail_at(text_.file, term.at, "no attention reads the rows of '", sizes.result,
              "' as queries that are followed by keys and values");
    }
    return {
        .kind = Term::Kind::kNumber, .number = static_cast<double>(*sizes.queries), .at = term.at};
  }
  const bool is_size = term.word == "size" && term.args.size() == 2;
  if (term.kind == Term::Kind::kCall && (is_size || term.word == "width") &&
      term.keywords.empty() && !term.args.empty()) {
    const std::string& variable = term.args[0].word;
    const auto found = sizes.ranks.find(variable);
    if (found == sizes.ranks.end() || (!is_size && term.args.size() > 1)) {
      fail_at(text_.file, term.at, term.word, " wants ", sizes.what, ", found '",
              print(term.args[0]), "'");
    }
    const int rank = found->second;
    double axis = rank - 1;
    if (is_size) {
      const Term& said = term.args[1];
      const bool behind = said.kind == Term::Kind::kNegate;
      const Term& literal = behind ? said.args[0] : said;
      axis = behind ? rank - literal.number : literal.number;
      if (literal.kind != Term::Kind::kNumber || axis != std::floor(axis)) axis = -1;
    }
    if (axis < 0 || axis >= rank) {
      fail_at(text_.file, is_size ? term.args[1].at : term.at, "'", variable, "' has ", rank,
              " axes: wanted the number of one, ",
              rank ? join_parts("from ", -rank, " to ", rank - 1, ", ") : "", "found ",
              print(term));
    }
    return {.kind = Term::Kind::kName,
            .word = axis_of(variable, static_cast<int>(axis), rank),
            .at = term.at};
  }
  for (Term& t : term.args) t = with_sizes(std::move(t), sizes);
  for (auto& [word, t] : term.keywords) t = with_sizes(std::move(t), sizes);
  return term;
}

Init TextRules::beginning_of(const StateRule& rule, const Names& names) const {
  if (rule.begins.empty()) return {};
  const double value = names.number(rule.begins[0]);
  if (value == 0) return {};
  if (value == 1) return {.kind = Init::Kind::kOnes};
  return {.kind = Init::Kind::kConstant, .scale = value};
}

FunctorPhase phase_of(const AttributeValue& value) {
  if (value.attribute == "frozen") return FunctorPhase::kMorphisms;
  for (const char* training : {"rate", "decay", "optimizer", "clipped"}) {
    if (value.attribute == training) return FunctorPhase::kAdjoint;
  }
  return FunctorPhase::kStepRules;
}

bool TextRules::object_matches(const Scheme& scheme, const Roles& roles, const Names& names,
                               Value v, const Clause& c) const {
  if (c.kind == Clause::Kind::kMade) {
    return application_.made(scheme[v].source.path) != c.negated;
  }
  if (c.kind == Clause::Kind::kMadeHere) {
    const std::string& path = scheme[v].source.path;
    return (made_here(path) && (c.word.empty() || is_called(path, c.word))) != c.negated;
  }
  const auto holds = [&](const std::string& word) {
    switch (c.kind) {
      case Clause::Kind::kIs:
        return roles.is(v, word);
      case Clause::Kind::kOf:
        return roles.is_of(v, word) || roles.is(v, word);
      case Clause::Kind::kInside:
        return roles.is_inside(v, word);
      case Clause::Kind::kOutside:
        return !roles.is_inside(v, word);
      case Clause::Kind::kChainState:
        return roles.state_index(v).has_value();
      case Clause::Kind::kMade:
      case Clause::Kind::kMadeHere:
        break;
    }
    return false;
  };
  return any_word(names, c.word, holds) != c.negated;
}

void TextRules::note_made(const std::string& path) const {
  application_.said->emplace(std::pair{path, "made"},
                             Application::Saying{"by a rule", application_.functor});
}

bool TextRules::made_here(const std::string& path) const {
  const auto found = application_.said->find({path, "made"});
  return found != application_.said->end() && found->second.by == application_.functor;
}

// qkv.lora_b and its qkv.lora_b.weight are both called lora_b: a call's parameters go by its name.
bool TextRules::is_called(std::string_view path, std::string_view name) {
  for (int k = 0; k < 2; ++k) {
    const size_t dot = path.rfind('.');
    if (path.substr(dot == path.npos ? 0 : dot + 1) == name) return true;
    if (dot == path.npos) return false;
    path = path.substr(0, dot);
  }
  return false;
}

namespace {

Scheme apply(const FunctorText& text, Application& application, Scheme scheme, FunctorPhase phase) {
  if (phase == FunctorPhase::kMorphisms) {
    scheme = rewrite_uses(text, application, std::move(scheme));
  }
  if (phase == FunctorPhase::kStates) return add_states(text, application, std::move(scheme));
  const int64_t rewritten = application.matches;
  say_attributes(text, application, scheme, phase);
  // What a rewriting functor matched are the uses that it rewrote.
  if (!text.morphisms.empty()) application.matches = rewritten;
  return scheme;
}

}  // namespace

Functor functor_of(FunctorText text) {
  Functor functor{.name = text.name,
                  .summary = text.summary,
                  .law = text.law,
                  .params = text.params,
                  .by_default = text.by_default,
                  .may_match_none = text.by_default,
                  .parts = text.parts,
                  .says_law = text.says_law};
  const auto shared = std::make_shared<const FunctorText>(std::move(text));
  if (shared->against) {
    functor.against_text = print(*shared->against);
    if (shared->against_when) functor.against_text += " when " + print(*shared->against_when);
    functor.against = [shared](const Arguments& args) -> std::optional<Term> {
      const Names names(*shared, args, 0);
      if (!names.holds(shared->against_when)) return std::nullopt;
      // What it is told may be a parameter of this one.
      Term told = *shared->against;
      for (auto& [word, value] : told.keywords) {
        if (value.kind != Term::Kind::kName || !names.is_param(value.word)) continue;
        value = {.number = names.number(value), .at = value.at};
      }
      return told;
    };
  }
  if (shared->order) {
    functor.weakened = [shared](const Arguments& args) {
      const auto own = own_schedule(*shared, args);
      return own && !sums_in_order(*own) ? Law::kReassociating : Law::kExact;
    };
  }
  if (!shared->mesh.empty()) {
    functor.mesh = [shared](const Arguments& args) {
      Names names(*shared, args, 0);
      names.set(std::string(kRanksLeft), 0);
      std::vector<MeshAxis> axes;
      for (const MeshRule& rule : shared->mesh) {
        axes.push_back({rule.axis, static_cast<int>(names.number(rule.size))});
      }
      return axes;
    };
  }
  const auto rule_for = [&](FunctorPhase phase) {
    functor.rules.push_back({phase, [shared, phase](Scheme scheme, Application& a) {
                               return apply(*shared, a, std::move(scheme), phase);
                             }});
  };
  const auto says_in = [&](FunctorPhase phase) {
    for (const ObjectRule& rule : shared->objects) {
      for (const Choice& choice : rule.choices) {
        for (const AttributeValue& value : choice.values) {
          if (phase_of(value) == phase) return true;
        }
      }
    }
    return false;
  };
  if (!shared->morphisms.empty() || says_in(FunctorPhase::kMorphisms)) {
    rule_for(FunctorPhase::kMorphisms);
  }
  if (says_in(FunctorPhase::kAdjoint)) rule_for(FunctorPhase::kAdjoint);
  if (!shared->states.empty()) rule_for(FunctorPhase::kStates);
  if (says_in(FunctorPhase::kStepRules) || !shared->mesh.empty())
    rule_for(FunctorPhase::kStepRules);
  return functor;
}

}  // namespace adjoint

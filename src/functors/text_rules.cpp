#include "functors/text_rules.h"

#include <memory>

namespace adjoint {

Names TextRules::names_for(int chain_length) const {
  const Names names(text_, application_.args, chain_length);
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
  if (says_in(FunctorPhase::kStepRules)) rule_for(FunctorPhase::kStepRules);
  return functor;
}

}  // namespace adjoint

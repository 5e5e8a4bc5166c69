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

bool TextRules::object_matches(const Roles& roles, const Names& names, Value v,
                               const Clause& c) const {
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
    }
    return false;
  };
  return any_word(names, c.word, holds) != c.negated;
}

void TextRules::note_made(const std::string& path) const {
  application_.said->emplace(std::pair{path, "made"}, std::pair{"by a rule", application_.functor});
}

bool TextRules::made_here(const std::string& path) const {
  const auto found = application_.said->find({path, "made"});
  return found != application_.said->end() && found->second.second == application_.functor;
}

namespace {

Scheme apply(const FunctorText& text, Application& application, Scheme scheme, FunctorPhase phase) {
  if (phase == FunctorPhase::kMorphisms) {
    for (const MorphismRule& rule : text.morphisms) {
      scheme = rewrite_uses(text, application, scheme, rule);
    }
  }
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
                  .may_match_none = text.by_default};
  const auto shared = std::make_shared<const FunctorText>(std::move(text));
  const auto rule_for = [&](FunctorPhase phase) {
    functor.rules.push_back({phase, [shared, phase](Scheme scheme, Application& a) {
                               return apply(*shared, a, std::move(scheme), phase);
                             }});
  };
  bool frozen = false, other = false;
  for (const ObjectRule& rule : shared->objects) {
    (rule.choices[0].value.attribute == "frozen" ? frozen : other) = true;
  }
  if (frozen || !shared->morphisms.empty()) rule_for(FunctorPhase::kMorphisms);
  if (other) rule_for(FunctorPhase::kStepRules);
  return functor;
}

}  // namespace adjoint

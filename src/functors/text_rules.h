// The rules of a functor's text at one scheme. Object rules select by roles and say attributes;
// morphism rules rewrite a use into a term of the models' own notation. Here is what both need:
// the selectors of a text, and what is told to whoever asks what acted.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "analysis/roles.h"
#include "functors/text_names.h"

namespace adjoint {

class TextRules {
 public:
  TextRules(const FunctorText& text, Application& application)
      : text_(text), application_(application) {}

 protected:
  // The names of a text in a scheme whose chain has this length. Refuses what the text's
  // requirements refuse, and tells what its lets became.
  Names names_for(int chain_length, std::span<const MeshAxis> mesh = {}) const;

  // Any of the words that a clause may stand for; "all" is everything.
  template <class Predicate>
  bool any_word(const Names& names, const std::string& word, const Predicate& holds) const {
    if (!names.is_param(word)) return holds(word);
    for (const Term& t : application_.args.list(word)) {
      if (t.word == "all" || holds(t.word)) return true;
    }
    return false;
  }

  bool object_matches(const Scheme& scheme, const Roles& roles, const Names& names, Value v,
                      const Clause& c) const;

  // Whether a rule that rewrites uses reads this state.
  bool is_read(const StateRule& rule) const;
  Source source_of_state(const std::string& path, const StateRule& rule) const {
    return {path, application_.functor + "." + rule.name};
  }

  // How a state begins: zeros, or what the rule says.
  Init beginning_of(const StateRule& rule, const Names& names) const;

  // What width(y), size(y, 1) and queries(y) may be asked of in a rule.
  struct Sizes {
    std::map<std::string, int> ranks;  // by variable
    std::string_view what = "the result or an operand of this rule";
    std::string result = {};
    std::optional<int64_t> queries = {};
  };
  // What the axis of a variable is called while its rule is elaborated.
  static std::string axis_of(const std::string& variable, int axis, int rank) {
    return variable + (axis + 1 == rank ? "_width" : "_" + std::to_string(axis));
  }
  // size(y, 1): the size of an axis of the result or an operand; width(y) is that of the last.
  // queries(y): how many numbers at the beginning of the result's rows an attention reads as
  // queries.
  Term with_sizes(Term term, const Sizes& sizes) const;

  // All numbers of a text, for a piece of the models' notation that may name them.
  std::vector<Setting> numbers_of(const Names& names, Position at) const;

  // A type of such a piece, its axes called as in the scheme that it is set in.
  using Labels = std::map<std::string, std::string>;
  static Type relabelled(Type type, const Labels& labels) {
    for (Axis& axis : type.axes) {
      if (const auto found = labels.find(axis.name); found != labels.end()) {
        axis.name = found->second;
      }
    }
    return type;
  }

  std::string place(Position at) const { return text_.file + ":" + std::to_string(at.line) + ": "; }

  // What a functor made it does not rewrite, wherever in the stack it is named.
  void note_made(const std::string& path) const;
  bool made_here(const std::string& path) const;
  static bool is_called(std::string_view path, std::string_view name);

  const FunctorText& text_;
  Application& application_;
};

// When a value is said: what is frozen before gradients are made, how parameters are trained before
// the optimizer is, and the rest of the whole step.
FunctorPhase phase_of(const AttributeValue& value);

// The object rules of a phase (text_objects.cpp), all morphism rules (text_morphisms.cpp) and all
// state rules (text_states.cpp).
void say_attributes(const FunctorText& text, Application& application, Scheme& scheme,
                    FunctorPhase phase);
Scheme rewrite_uses(const FunctorText& text, Application& application, Scheme scheme);
Scheme add_states(const FunctorText& text, Application& application, Scheme scheme);

}  // namespace adjoint

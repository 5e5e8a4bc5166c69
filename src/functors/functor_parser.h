// The reader of a functor's text. Its head, its stack and the lines that are no rules are read in
// functor_text.cpp, rules in functor_rules.cpp, and numbers and conditions in
// functor_conditions.cpp.
#pragma once
#include "functors/functor_text.h"

namespace adjoint {

class FunctorParser {
 public:
  FunctorParser(std::string_view text, std::string_view file) : in_(text, file), whole_(text) {
    result_.file = file;
  }

  FunctorText parse();

 private:
  // functor_text.cpp
  FunctorText stack_of_others();
  StackPart part();
  std::string comment_above() const;
  void params();
  void param();
  void check_default(const FunctorParam& p, const Term& otherwise);
  void line(std::string_view kind, Position from);
  void law(Position line);
  void against();
  void let();
  Requirement requirement(const std::vector<std::string>& names = {});
  void mesh(Position at);
  void order(Position at);
  void check_message(std::string_view message, Position at,
                     std::vector<std::string> names = {}) const;
  void expect_else();

  // functor_rules.cpp
  void begin_rule();
  bool end_rule();
  void object_rule(Position at);
  void refusal(ObjectRule& rule);
  void arrow();
  void check_once(const std::vector<AttributeValue>& values) const;
  AttributeValue attribute_value();
  AttributeValue placement(const std::string& word, Position at);
  void morphism_rule(Position at);
  void state_rule(Position at);
  std::vector<Requirement> expectations(const std::vector<std::string>& variables);
  // `below`: the head's line is over already.
  Term right_side(std::vector<Statement>& before, std::vector<std::string>& names,
                  bool below = false);
  std::vector<Statement> statements(std::vector<std::string>& names, bool below);
  bool at_statement() const;
  void check_statements_are_used(const std::vector<Statement>& all, const Term& result) const;
  void note_blocks(const Term& term, const std::vector<std::string>& variables);
  void selector(std::string_view what, std::vector<Clause>& clauses);
  Clause clause(std::string_view what);
  void exceptions(Exceptions& unless, const AttributeValue& value);
  void check_clause(const Clause& c, std::vector<std::string> words, std::string_view what) const;
  void check_is_not_of(const Clause& c, const std::vector<std::string>& words,
                       std::string_view what) const;
  Clause where_clause(const MorphismRule& rule);
  void check_word(Position at, const std::string& word, const std::vector<std::string>& known,
                  std::string_view what) const;

  // functor_conditions.cpp
  std::vector<std::string> known_names() const;
  void check_is_free(Position at, const std::string& name,
                     const std::vector<std::string>& others) const;
  void check_names(const Term& term);
  void check_width(const Term& term) const;
  Term number_term();
  Condition when();
  Term condition();
  void check_condition(const Term& condition);

  Cursor in_;
  std::string_view whole_;
  TermParser terms_{in_};
  TextSpan arrow_;     // of the last rule
  std::string index_;  // l, in a rule about x_l
  bool knows_block_ = false, speaks_of_block_ = false, knows_training_ = false;
  std::vector<std::string> sized_;  // variables whose width may be asked for
  FunctorText result_;
};

}  // namespace adjoint

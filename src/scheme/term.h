// Terms: what stands to the right of an equals sign, and all that a stack tells a functor. One
// grammar, which models, functors and stacks share.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme/cursor.h"

namespace adjoint {

// 3*hidden, normal(0.02), block^layers(dropout(x)), x + y, l mod 2 == 0, l in [2, 5], `a when tied
// else b`; and, as an argument by name, `wte when tied`: given if the condition holds, else as if
// it were not written.
struct Term {
  enum class Kind : uint8_t { kNumber, kName, kText, kCall, kBinary, kNegate, kNot, kWhen, kList };
  Kind kind = Kind::kNumber;
  double number = 0;
  std::string word = {};        // name, text, callee, or + - * / mod < <= > >= == != in and or
  std::vector<Term> args = {};  // operands of any kind
  std::vector<std::pair<std::string, Term>> keywords = {};
  std::vector<Term> repeat = {};  // f^L: none or one
  Position at = {};
  TextSpan span = {};   // without brackets around it
  TextSpan whole = {};  // with them
  Position named = {};  // of an argument by name: where its name begins
  bool operator==(const Term&) const = default;
};

Term parse_term(std::string_view text, std::string_view file);
std::string print(const Term& term);
// Whether an object or a number of this name is in a term.
bool mentions(const Term& term, std::string_view name);
// Whether this is called in a term.
bool calls(const Term& term, std::string_view name);

// How strongly a term holds together, weakest first.
enum class Binding : uint8_t { kWhen, kOr, kAnd, kNot, kComparison, kSum, kProduct, kFactor };
Binding binding(const Term& term);
// The next stronger one, which the right operand of an operator needs.
Binding above(Binding binding);
// With brackets if it binds less than `at_least`.
std::string print_inside(const Term& term, Binding at_least);

// Reads terms from a cursor:
//   value      = choice [ "when" choice [ "else" value ] ]
//   choice     = both { "or" both };  both = negation { "and" negation }
//   negation   = "not" negation | sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=" | "in") sum ]
//   sum        = product { ("+" | "-") product }
//   product    = factor { ("*" | "/" | "mod") factor }
//   factor     = number | text | "-" factor | "(" value ")" | "[" value {"," value} "]"
//              | name [ ["^" power] "(" argument {"," argument} ")" ]
//   argument   = value | name "=" value
class TermParser {
 public:
  explicit TermParser(Cursor& in) : in_(in) {}

  // A value, a sum or a product that is no part of another.
  Term whole_value();
  Term whole_term();
  Term whole_product();

 private:
  Term binary(std::string_view op, Term left, Term right);
  Term value();
  Term choice();
  Term both();
  Term negation();
  Term comparison();
  Term sum();
  Term product();
  Term factor();
  Term unnested_factor();
  Term power();
  Term spanned(Term (TermParser::*read)());
  void argument(Term& call);

  Cursor& in_;
  int nesting_ = 0, operators_ = 0;
};

}  // namespace adjoint

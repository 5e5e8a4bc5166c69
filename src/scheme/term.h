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

// 3*hidden, normal(0.02), block^layers(dropout(x)), x + y; and, as an argument by name,
// `wte when tied`: given if the condition holds, else as if it were not written. Functors take
// lists too: [2, 5].
struct Term {
  enum class Kind : uint8_t { kNumber, kName, kText, kCall, kBinary, kNegate, kWhen, kList };
  Kind kind = Kind::kNumber;
  double number = 0;
  std::string word = {};        // name, text, callee, or + - * /
  std::vector<Term> args = {};  // operands of any kind
  std::vector<std::pair<std::string, Term>> keywords = {};
  std::vector<Term> repeat = {};  // f^L: none or one
  Position at = {};
  bool operator==(const Term&) const = default;
};

Term parse_term(std::string_view text, std::string_view file);
std::string print(const Term& term);
// With brackets if it binds less than `at_least`: 1 any term, 2 a product, 3 a factor.
std::string print_inside(const Term& term, int at_least);

// Reads terms from a cursor:
//   term     = product { ("+" | "-") product };  product = factor { ("*" | "/") factor }
//   factor   = number | text | "-" factor | "(" term ")" | "[" term {"," term} "]"
//            | name [ ["^" power] "(" argument {"," argument} ")" ]
//   argument = term | name "=" term [ "when" term ]
class TermParser {
 public:
  explicit TermParser(Cursor& in) : in_(in) {}

  // A term, or a product, that is no part of another.
  Term whole_term();
  Term whole_product();

 private:
  Term binary(char op, Term left, Term right);
  Term term();
  Term product();
  Term factor();
  Term unnested_factor();
  Term power();
  void argument(Term& call);
  Term conditional();

  Cursor& in_;
  int nesting_ = 0, operators_ = 0;
};

}  // namespace adjoint

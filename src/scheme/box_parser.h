// Reads boxes and their statements from a cursor: the part of a document's grammar that models and
// optimizers share.
//   box       = name formal {"," formal} ":" newline { indented statement }
//   formal    = name [dtype] [ "[" term {"," term} "]" ]
//   statement = name {"," name} "=" value {"," value}
// Terms and values are term.h's.
#pragma once
#include "scheme/document.h"

namespace adjoint {

class BoxParser {
 public:
  explicit BoxParser(Cursor& in) : in_(in) {}

  Box box(std::string_view wanted);
  Statement statement();

 private:
  Formal formal();
  void refuse_habit(const Statement& statement);

  Cursor& in_;
  TermParser terms_{in_};
};

}  // namespace adjoint

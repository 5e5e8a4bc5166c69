#include "scheme/box_parser.h"

namespace adjoint {

Box BoxParser::box(std::string_view wanted) {
  Box box;
  box.at = in_.position();
  box.name = in_.take_name(wanted);
  do {
    box.formals.push_back(formal());
  } while (in_.accept(","));
  in_.expect(":", "after the head of a box");
  in_.expect_line_end();
  for (in_.skip_blank_lines(); !in_.at_end() && in_.position().column > 1; in_.skip_blank_lines()) {
    box.body.push_back(statement());
  }
  if (box.body.empty()) in_.fail_at(box.at, "box '" + box.name + "' has no statement");
  return box;
}

Formal BoxParser::formal() {
  Formal formal;
  in_.skip_blank();
  formal.at = in_.position();
  formal.name = in_.take_name("the name of an object");
  if (in_.at_name()) {
    const Position at = in_.position();
    const std::string word = in_.take_name("a dtype");
    formal.dtype = dtype_named(word);
    if (!formal.dtype) in_.fail_at(at, "wanted a dtype or '[', found '" + word + "'");
  }
  if (in_.accept("[")) {
    in_.open_bracket();
    do {
      formal.axes.push_back(terms_.whole_term());
    } while (in_.accept(","));
    in_.close_bracket();
    in_.expect("]", "after the axes of an object");
  }
  return formal;
}

Statement BoxParser::statement() {
  Statement statement;
  statement.at = in_.position();
  do {
    statement.names.push_back(in_.take_name("the name of a result"));
  } while (in_.accept(","));
  in_.expect("=", "after the names of the results");
  do {
    statement.values.push_back(terms_.whole_value());
  } while (in_.accept(","));
  in_.expect_line_end();
  return statement;
}

}  // namespace adjoint

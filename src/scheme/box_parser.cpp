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
  formal.end = in_.last();
  return formal;
}

Statement BoxParser::statement() {
  Statement statement;
  statement.at = in_.position();
  do {
    statement.names.push_back(in_.take_name("the name of a result"));
  } while (in_.accept(","));
  if (!in_.looking_at("=")) refuse_habit(statement);
  in_.expect("=", "after the names of the results");
  do {
    statement.values.push_back(terms_.whole_value());
  } while (in_.accept(","));
  in_.skip_blank();
  const Position at = in_.position();
  if (in_.accept_word("if")) {
    in_.fail_at(at, "wanted 'when', found 'if'; a choice is written a when condition else b");
  }
  in_.expect_line_end();
  return statement;
}

// What other languages write at the beginning of a line, told by what is written here.
void BoxParser::refuse_habit(const Statement& statement) {
  const std::string& first = statement.names[0];
  for (const char* op : {"+", "-", "*", "/"}) {
    const std::string updates = std::string(op) + "=";
    if (!in_.looking_at(updates)) continue;
    in_.fail_at(in_.position(), "wanted '=' after the names of the results, found '" + updates +
                                    "'; write " + first + " = " + first + " " + op + " ...");
  }
  const auto refuse = [&](std::string_view instead) {
    in_.fail_at(statement.at,
                "wanted the name of a result, found '" + first + "'; " + std::string(instead));
  };
  if (first == "return") refuse("a box gives what its last statement names");
  if (first == "if") refuse("a choice is a value: y = a when condition else b");
  if (first == "for" || first == "while") refuse("repeat a box: y = box^layers(x)");
}

}  // namespace adjoint

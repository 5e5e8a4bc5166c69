// Reads text token by token and knows where it is, so that every complaint can name file, line,
// column, what was wanted and what was found. Both notations are read through it. Written by hand:
// the messages of generated parsers do not say what was wanted.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace adjoint {

// A place in a text. Places never make two parsed things differ.
struct Position {
  int line = 0, column = 0;
  const std::string* file = nullptr;  // where the text says that it comes from another file
  bool operator==(const Position&) const { return true; }
};

// From the first character of something to behind its last. Lines count in the text that `file`
// says, columns in bytes; scheme/lines.h makes offsets of them.
struct TextSpan {
  Position from = {}, to = {};
  bool operator==(const TextSpan&) const = default;
};

// What a text says where a piece of another file begins, and where it goes on itself ("" is the
// text's own file): the lines that follow count from `line` of `file`. A comment to everyone but
// the cursor.
std::string origin_line(std::string_view file, int line);
// What such a line says; nothing if it is another one.
struct Origin {
  int line = 0;
  std::string_view file = {};
};
std::optional<Origin> origin_of(std::string_view line);

class Cursor {
 public:
  Cursor(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  // Spaces and comments; newlines too while inside brackets.
  void skip_blank();
  void skip_blank_lines();  // up to the first character of the next line that has something
  bool at_end() const { return at_ >= text_.size(); }
  bool at_line_end();
  Position position() const { return {line_, column_, origin_}; }
  Position last() const { return last_; }  // behind the last character that was no blank

  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  bool looking_at(std::string_view token);
  bool accept(std::string_view token);  // after blanks
  bool accept_word(std::string_view word);
  void expect(std::string_view token, std::string_view why);
  void expect_line_end();

  bool at_name();
  bool at_number();
  // A word that begins with a digit, as 1f1b does; a number does not end in letters.
  bool at_digit_word();
  std::string take_name(std::string_view wanted);
  std::string take_word(std::string_view wanted);  // a name, or such a word
  double take_number(std::string_view wanted);
  int64_t take_integer(std::string_view wanted);
  std::string take_text();  // "..."
  // The longest run of characters that `allowed` holds.
  std::string take_run(std::string_view allowed, std::string_view wanted);

  void open_bracket() { ++depth_; }
  void close_bracket() { --depth_; }

  [[noreturn]] void fail_wanted(std::string_view wanted);
  [[noreturn]] void fail_at(Position where, std::string_view message) const;

 private:
  void advance();
  void consume();  // a character of a token
  void skip_comment();
  std::string found();
  std::string_view text_;
  std::string file_;
  const std::string* origin_ = nullptr;  // the other file that this piece comes from
  Position last_ = {};
  size_t at_ = 0;
  int line_ = 1, column_ = 1, depth_ = 0;
};

}  // namespace adjoint

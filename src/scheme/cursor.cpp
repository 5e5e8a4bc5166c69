#include "scheme/cursor.h"

#include <cctype>
#include <charconv>
#include <mutex>
#include <set>

#include "base/error.h"

namespace adjoint {

namespace {
bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

constexpr std::string_view kOrigin = "#from line ";

// Positions outlive the texts that they speak of; there are few files.
const std::string* kept(std::string_view file) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> files;
  const std::lock_guard lock(mutex);
  return &*files.emplace(file).first;
}
}  // namespace

std::string origin_line(std::string_view file, int line) {
  const std::string of = file.empty() ? "" : " of " + std::string(file);
  return std::string(kOrigin) + std::to_string(line) + of + "\n";
}

std::optional<Origin> origin_of(std::string_view line) {
  if (!line.starts_with(kOrigin)) return std::nullopt;
  line.remove_prefix(kOrigin.size());
  Origin origin;
  const char* past = line.data() + line.size();
  const auto [end, error] = std::from_chars(line.data(), past, origin.line);
  constexpr std::string_view kOf = " of ";
  const std::string_view rest(end, static_cast<size_t>(past - end));
  if (error != std::errc() || (!rest.empty() && !rest.starts_with(kOf))) return std::nullopt;
  if (!rest.empty()) origin.file = rest.substr(kOf.size());
  return origin;
}

void Cursor::advance() {
  if (text_[at_++] == '\n') {
    ++line_;
    column_ = 1;
  } else {
    ++column_;
  }
}

void Cursor::consume() {
  advance();
  last_ = position();
}

void Cursor::skip_blank() {
  while (!at_end()) {
    const char c = peek();
    if (c == '#') {
      skip_comment();
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && depth_ > 0)) {
      advance();
    } else {
      return;
    }
  }
}

void Cursor::skip_comment() {
  const size_t begin = at_;
  const bool at_margin = column_ == 1;
  while (!at_end() && peek() != '\n') advance();
  if (!at_margin) return;
  const auto origin = origin_of(text_.substr(begin, at_ - begin));
  if (!origin) return;
  line_ = origin->line - 1;  // the newline that follows makes it `line`
  origin_ = origin->file.empty() ? nullptr : kept(origin->file);
}

void Cursor::skip_blank_lines() {
  for (skip_blank(); !at_end() && peek() == '\n'; skip_blank()) advance();
}

bool Cursor::at_line_end() {
  skip_blank();
  return at_end() || peek() == '\n';
}

bool Cursor::looking_at(std::string_view token) {
  skip_blank();
  return text_.substr(at_).starts_with(token);
}

bool Cursor::accept(std::string_view token) {
  if (!looking_at(token)) return false;
  for (size_t i = 0; i < token.size(); ++i) consume();
  return true;
}

bool Cursor::accept_word(std::string_view word) {
  if (!looking_at(word) || in_name(peek(word.size()))) return false;
  return accept(word);
}

void Cursor::expect(std::string_view token, std::string_view why) {
  if (!accept(token)) fail_wanted("'" + std::string(token) + "' " + std::string(why));
}

void Cursor::expect_line_end() {
  if (!at_line_end()) fail_wanted("the end of the line");
}

bool Cursor::at_name() {
  skip_blank();
  return starts_name(peek());
}

bool Cursor::at_number() {
  skip_blank();
  const auto digit = [&](size_t i) { return std::isdigit(static_cast<unsigned char>(peek(i))); };
  return digit(0) || (peek() == '.' && digit(1));
}

std::string Cursor::take_name(std::string_view wanted) {
  if (!at_name()) fail_wanted(wanted);
  std::string name;
  while (in_name(peek())) {
    name += peek();
    consume();
  }
  return name;
}

bool Cursor::at_digit_word() {
  skip_blank();
  size_t digits = 0;
  while (std::isdigit(static_cast<unsigned char>(peek(digits)))) ++digits;
  // 1e-5 is a number.
  const bool exponent = peek(digits) == 'e' && !starts_name(peek(digits + 1));
  return digits > 0 && starts_name(peek(digits)) && !exponent;
}

std::string Cursor::take_word(std::string_view wanted) {
  if (!at_digit_word()) return take_name(wanted);
  std::string word;
  while (in_name(peek())) {
    word += peek();
    consume();
  }
  return word;
}

double Cursor::take_number(std::string_view wanted) {
  skip_blank();
  double number = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
  if (error != std::errc() || (!at_number() && peek() != '-')) fail_wanted(wanted);
  while (text_.data() + at_ < end) consume();
  return number;
}

int64_t Cursor::take_integer(std::string_view wanted) {
  skip_blank();
  int64_t number = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
  if (error != std::errc()) fail_wanted(wanted);
  while (text_.data() + at_ < end) consume();
  return number;
}

std::string Cursor::take_text() {
  expect("\"", "to begin a text");
  std::string text;
  while (!at_end() && peek() != '"' && peek() != '\n') {
    text += peek();
    consume();
  }
  if (peek() != '"') fail_wanted("'\"' to end the text");
  consume();
  return text;
}

std::string Cursor::take_run(std::string_view allowed, std::string_view wanted) {
  skip_blank();
  std::string run;
  while (!at_end() && (in_name(peek()) || allowed.find(peek()) != std::string_view::npos)) {
    run += peek();
    consume();
  }
  if (run.empty()) fail_wanted(wanted);
  return run;
}

std::string Cursor::found() {
  skip_blank();
  if (at_end()) return "the end of the text";
  if (peek() == '\n') return "the end of the line";
  std::string token(1, peek());
  if (in_name(peek())) {
    for (size_t i = 1; in_name(peek(i)); ++i) token += peek(i);
  }
  // A character of several bytes (UTF-8) is shown whole.
  for (size_t i = token.size(); (peek(i) & 0xC0) == 0x80; ++i) token += peek(i);
  return "'" + token + "'";
}

void Cursor::fail_wanted(std::string_view wanted) {
  const std::string what = found();
  fail_at(position(), "wanted " + std::string(wanted) + ", found " + what);
}

void Cursor::fail_at(Position where, std::string_view message) const {
  fail(where.file ? *where.file : file_, ":", where.line, ":", where.column, ": ", message);
}

}  // namespace adjoint

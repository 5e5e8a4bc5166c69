// A model's text as edits see it: its bytes, the document that was parsed from them, and every term
// of it with the place where it stands.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "edit/edit.h"
#include "models/reads.h"
#include "scheme/document.h"
#include "scheme/lines.h"

namespace adjoint {

// The fields of an edit; a complaint names the field.
class Wish {
 public:
  explicit Wish(const nlohmann::json& edit);

  bool has(std::string_view field) const;
  std::string text(std::string_view field) const;
  std::string text(std::string_view field, std::string otherwise) const;
  // A name, as the notation has them.
  std::string name(std::string_view field) const;
  int64_t whole(std::string_view field) const;
  int64_t whole(std::string_view field, int64_t otherwise) const;
  const nlohmann::json& operator[](std::string_view field) const;

 private:
  const nlohmann::json& edit_;
};

// A term and where it stands.
struct TermSlot {
  const Term* term;
  const Term* parent = nullptr;    // null: the value of a statement or setting, an axis of a formal
  Binding needs = Binding::kWhen;  // a term that binds less stands here in brackets
  bool inside = false;             // inside brackets, where a term may go on over lines
  bool chosen = false;             // part of `a when condition else b`, so not always computed
  bool power = false;              // of a repetition: brackets around all but names and numbers
  const Box* box = nullptr;        // of terms in statements
  size_t statement = 0;
  std::vector<nlohmann::json> path = {};  // [value, argument or "keyword" or "^", ...]
};

// The slot and those of all terms inside its term.
void add_slot(const TermSlot& slot, std::vector<TermSlot>& slots);

// A term that the edit itself wrote, without blanks and comments around it.
struct NewTerm {
  std::string text;
  Term term;
};
NewTerm new_term(const std::string& text, std::string_view field);

// As the first line of a text ends: "\n" or "\r\n".
std::string_view newline_of(std::string_view text);

class WrittenText {
 public:
  WrittenText(const std::string& text, const std::string& file);
  WrittenText(const WrittenText&) = delete;  // slots point into the document
  WrittenText& operator=(const WrittenText&) = delete;

  const std::string& text() const { return text_; }
  const std::string& file() const { return file_; }
  const Document& document() const { return document_; }
  const TextLines& lines() const { return lines_; }
  const std::vector<TermSlot>& slots() const { return slots_; }

  // Where something stands; an Error if another file says it.
  TextRange range(const TextSpan& span, std::string_view what) const;
  std::string_view slice(TextRange range) const;
  TextRange line_of(size_t offset) const { return lines_.line_around(offset); }
  std::string_view newline() const { return newline_of(text_); }

  // The slot that an edit means: {"from", "to"} or {"box", "statement", "path"}.
  const TermSlot& slot(const nlohmann::json& at) const;
  const Box& box(std::string_view name) const;
  // Its number as "statement" says it.
  size_t statement(const Box& box, int64_t number) const;
  // The text of a term for another place, in brackets if it needs them there.
  std::string for_slot(const TermSlot& slot, const std::string& text, const Term& term) const;
  std::string moved(const TermSlot& to, const Term& term) const;

 private:
  void add_slots();
  std::string text_, file_;
  Document document_;
  TextLines lines_;
  std::vector<TermSlot> slots_;
};

// An argument by name that a call does not have yet.
Change added_keyword(const WrittenText& text, const Term& call, const std::string& keyword,
                     const std::string& value);

// Whether no box, op, word or section can be confused with a box of this name; an Error says what.
void check_new_box(const Document& document, const std::string& name);
// Whether the box has no use for this name yet.
void check_new_value(const Document& document, const Box& box, const std::string& name);

// The edits of a model's text, by kind; each gives what becomes of the text.
using SchemeEdit = std::vector<Change> (*)(const WrittenText& text, const Wish& wish);
std::vector<Change> insert_call(const WrittenText& text, const Wish& wish);
std::vector<Change> delete_piece(const WrittenText& text, const Wish& wish);
std::vector<Change> set_value(const WrittenText& text, const Wish& wish);
std::vector<Change> connect(const WrittenText& text, const Wish& wish);
std::vector<Change> repeat_call(const WrittenText& text, const Wish& wish);
std::vector<Change> rename_piece(const WrittenText& text, const Wish& wish);
std::vector<Change> fold(const WrittenText& text, const Wish& wish);
std::vector<Change> unfold(const WrittenText& text, const Wish& wish);
std::vector<Change> add_box(const WrittenText& text, const Wish& wish);
std::vector<Change> add_statement(const WrittenText& text, const Wish& wish);

std::vector<Change> edit_functor(const std::string& text, const std::string& file,
                                 const Wish& wish);

// Where a new box is written: above this one and the comment that belongs to it.
size_t above(const WrittenText& text, const Box& box);

}  // namespace adjoint

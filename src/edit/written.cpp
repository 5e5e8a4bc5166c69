#include "edit/written.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "edit/document_json.h"
#include "models/library.h"
#include "models/settings.h"
#include "ops/words.h"

namespace adjoint {

Wish::Wish(const nlohmann::json& edit) : edit_(edit) {
  if (!edit.is_object()) fail("the edit must be an object {\"kind\": ...}");
}

bool Wish::has(std::string_view field) const {
  return edit_.contains(field) && !edit_[std::string(field)].is_null();
}

const nlohmann::json& Wish::operator[](std::string_view field) const {
  if (!edit_.contains(field)) fail("the edit has no '", field, "'");
  return edit_[std::string(field)];
}

std::string Wish::text(std::string_view field) const {
  const nlohmann::json& value = (*this)[field];
  // A number is as good as its text.
  if (value.is_number_unsigned()) return std::to_string(value.get<uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_number()) return shortest(value.get<double>());
  if (!value.is_string()) fail("the edit's '", field, "' must be a text");
  return value.get<std::string>();
}

std::string Wish::text(std::string_view field, std::string otherwise) const {
  return has(field) ? text(field) : std::move(otherwise);
}

std::string Wish::name(std::string_view field) const {
  const std::string word = text(field);
  if (!is_name(word)) fail("the edit's '", field, "' must be a name, found '", word, "'");
  for (const std::string_view kept : {"when", "else", "and", "or", "not", "in", "mod", "if"}) {
    if (word == kept) fail("'", word, "' is a word of the notation and no name");
  }
  return word;
}

int64_t Wish::whole(std::string_view field) const {
  const nlohmann::json& value = (*this)[field];
  if (!value.is_number_integer()) fail("the edit's '", field, "' must be a whole number");
  return value.get<int64_t>();
}

int64_t Wish::whole(std::string_view field, int64_t otherwise) const {
  return has(field) ? whole(field) : otherwise;
}

NewTerm new_term(const std::string& text, std::string_view field) {
  const Term term = parse_term(text, join_parts("the edit's '", field, "'"));
  const TextLines lines(text);
  const auto range = lines.range(term.whole), inner = lines.range(term.span);
  if (!range || !inner) fail("the edit's '", field, "' must be a term, found '", text, "'");
  // A comment is not taken over; anything else would be dropped without a word.
  const char* const blanks = " \t\r\n";
  size_t more = text.find_first_not_of(blanks, range->to);
  while (more != text.npos && text[more] == '#') {
    more = text.find_first_not_of(blanks, std::min(text.find('\n', more), text.size()));
  }
  if (more != text.npos) {
    fail("the edit's '", field, "' must be one term and nothing else, found '", text.substr(more),
         "' behind it");
  }
  return {text.substr(inner->from, inner->to - inner->from), term};
}

void add_slot(const TermSlot& slot, std::vector<TermSlot>& slots) {
  const Term& term = *slot.term;
  slots.push_back(slot);
  const Binding own = binding(term);
  TermSlot inner = slot;
  inner.parent = &term;
  const bool bracketed = term.whole.from.line != term.span.from.line ||
                         term.whole.from.column != term.span.from.column;
  const bool encloses = term.kind == Term::Kind::kCall || term.kind == Term::Kind::kList;
  inner.inside = slot.inside || bracketed || encloses;
  inner.chosen = slot.chosen || term.kind == Term::Kind::kWhen;
  for (size_t i = 0; i < term.args.size(); ++i) {
    inner.term = &term.args[i];
    inner.needs = Binding::kWhen;
    inner.power = false;
    switch (term.kind) {
      case Term::Kind::kNegate:
        inner.needs = Binding::kFactor;
        break;
      case Term::Kind::kNot:
        inner.needs = Binding::kNot;
        break;
      case Term::Kind::kBinary:
        inner.needs = i == 1 || own == Binding::kComparison ? above(own) : own;
        break;
      case Term::Kind::kWhen:
        inner.needs = i < 2 ? Binding::kOr : Binding::kWhen;
        break;
      default:
        break;
    }
    inner.path = slot.path;
    inner.path.emplace_back(i);
    add_slot(inner, slots);
  }
  inner.needs = Binding::kWhen;
  inner.power = false;
  for (const auto& [word, value] : term.keywords) {
    inner.term = &value;
    inner.path = slot.path;
    inner.path.emplace_back(word);
    add_slot(inner, slots);
  }
  for (const Term& times : term.repeat) {
    inner.term = &times;
    inner.power = true;
    inner.path = slot.path;
    inner.path.emplace_back("^");
    add_slot(inner, slots);
  }
}

WrittenText::WrittenText(const std::string& text, const std::string& file)
    : text_(text), file_(file), lines_(text_) {
  // Lines that only a text has whose uses were replaced: places would be those of other texts.
  for (size_t begin = 0; begin < text_.size();) {
    const size_t end = std::min(text_.find('\n', begin), text_.size());
    if (origin_of(std::string_view(text_).substr(begin, end - begin))) {
      fail(file, ": this text has pieces of other files in it, so it cannot be edited");
    }
    begin = end + 1;
  }
  document_ = parse_document(with_uses(text_, file_), file_);
  add_slots();
}

TextRange WrittenText::range(const TextSpan& span, std::string_view what) const {
  if (span.from.file) {
    fail(what, " is written in ", *span.from.file, ", so it is edited there");
  }
  const auto range = lines_.range(span);
  CHECK(range, "a place of the text's own file is in the text");
  return *range;
}

std::string_view WrittenText::slice(TextRange range) const {
  return std::string_view(text_).substr(range.from, range.to - range.from);
}

std::string_view newline_of(std::string_view text) {
  const size_t end = text.find('\n');
  return end != text.npos && end > 0 && text[end - 1] == '\r' ? "\r\n" : "\n";
}

void WrittenText::add_slots() {
  const auto setting = [&](const Setting& s) {
    add_slot({.term = &s.value, .needs = Binding::kProduct}, slots_);
  };
  for (const Setting& s : document_.axes) setting(s);
  for (const Setting& s : document_.numbers) setting(s);
  for (const Preset& p : document_.presets) {
    for (const Setting& s : p.settings) setting(s);
  }
  for (const Box& b : document_.boxes) {
    for (const Formal& f : b.formals) {
      for (const Term& axis : f.axes)
        add_slot({.term = &axis, .needs = Binding::kSum, .inside = true}, slots_);
    }
    for (size_t i = 0; i < b.body.size(); ++i) {
      for (size_t k = 0; k < b.body[i].values.size(); ++k) {
        add_slot({.term = &b.body[i].values[k], .box = &b, .statement = i, .path = {k}}, slots_);
      }
    }
  }
}

const TermSlot& WrittenText::slot(const nlohmann::json& at) const {
  const Wish place(at);
  if (place.has("box")) {
    const Box& in = box(place.text("box"));
    const size_t number = statement(in, place.whole("statement"));
    nlohmann::json path = place.has("path") ? place["path"] : nlohmann::json::array({0});
    for (const TermSlot& slot : slots_) {
      if (slot.box == &in && slot.statement == number && nlohmann::json(slot.path) == path) {
        return slot;
      }
    }
    fail("statement ", number, " of '", in.name, "' has no term at ", path.dump());
  }
  const int64_t from = place.whole("from"), to = place.whole("to");
  for (const TermSlot& slot : slots_) {
    for (const TextSpan& span : {slot.term->span, slot.term->whole}) {
      const auto range = lines_.range(span);
      if (range && static_cast<int64_t>(range->from) == from &&
          static_cast<int64_t>(range->to) == to) {
        return slot;
      }
    }
  }
  fail("there is no term from byte ", from, " to byte ", to);
}

const Box& WrittenText::box(std::string_view name) const {
  if (const Box* found = document_.box(name)) return *found;
  std::vector<std::string> known;
  for (const Box& b : document_.boxes) known.push_back(b.name);
  fail("there is no box '", name, "'", did_you_mean(name, known));
}

size_t WrittenText::statement(const Box& box, int64_t number) const {
  if (number < 0 || number >= static_cast<int64_t>(box.body.size())) {
    fail("'", box.name, "' has statements 0 to ", box.body.size() - 1, ", found ", number);
  }
  return static_cast<size_t>(number);
}

std::string WrittenText::for_slot(const TermSlot& slot, const std::string& text,
                                  const Term& term) const {
  const bool plain = term.kind == Term::Kind::kName || term.kind == Term::Kind::kNumber;
  // Outside brackets a line's end would end the term.
  const bool torn =
      !slot.inside && text.find('\n') != text.npos && binding(term) < Binding::kFactor;
  const bool brackets = slot.power ? !plain : binding(term) < slot.needs || torn;
  return brackets ? "(" + text + ")" : text;
}

std::string WrittenText::moved(const TermSlot& to, const Term& term) const {
  return for_slot(to, std::string(slice(range(term.span, "this term"))), term);
}

// Behind the last argument, on its line.
Change added_keyword(const WrittenText& text, const Term& call, const std::string& keyword,
                     const std::string& value) {
  const bool first = call.args.empty() && call.keywords.empty();
  size_t at = text.range(call.span, "this call").to - 1;
  if (!first) {
    const Term& last = call.keywords.empty() ? call.args.back() : call.keywords.back().second;
    at = text.range(last.whole, "").to;
  }
  return {at, at, (first ? "" : ", ") + keyword + "=" + value};
}

void check_new_box(const Document& document, const std::string& name) {
  for (const std::string_view word : {"axes", "numbers", "preset", "format", "use"}) {
    if (name == word) fail("'", name, "' begins a section, so no box can be called so");
  }
  if (document.box(name)) fail("there is already a box '", name, "'");
  if (find_op(name) || find_word(name) || is_number_function(name)) {
    fail("'", name, "' is an op, so a box of that name would hide it");
  }
}

void check_new_value(const Document& document, const Box& box, const std::string& name) {
  const auto taken = [&] {
    fail("'", name, "' is already the name of something in '", box.name, "'");
  };
  if (is_known_number(document, name)) taken();
  for (const Formal& f : box.formals) {
    if (f.name == name) taken();
  }
  for (const Statement& s : box.body) {
    if (std::count(s.names.begin(), s.names.end(), name)) taken();
  }
  // A word such as `causal` would become the value.
  for (const NameUse& use : names_of(document, box)) {
    const bool free = use.kind == NameUse::Kind::kLabel ||
                      (use.kind == NameUse::Kind::kCallName && use.term->named.line > 0);
    if (use.term->word == name && !free) taken();
  }
}

size_t above(const WrittenText& text, const Box& box) {
  const TextRange head = text.range({box.at, box.at}, "box '" + box.name + "'");
  // A byte-order mark stays in front of everything.
  const size_t first = text.text().starts_with("\xef\xbb\xbf") ? 3 : 0;
  size_t begin = std::max(text.line_of(head.from).from, first);
  while (begin > first) {
    const size_t before = std::max(text.line_of(begin - 1).from, first);
    if (text.text()[before] != '#') break;
    begin = before;
  }
  return begin;
}

}  // namespace adjoint

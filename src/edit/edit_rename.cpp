// Other names: of a value in its box, of a box, an axis, a number or a preset. A value is renamed
// where it is made and where it is read, and not where another value has the same name.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "edit/document_json.h"
#include "edit/written.h"
#include "models/call_names.h"

namespace adjoint {

namespace {

class Renaming {
 public:
  Renaming(const WrittenText& text, std::string from, std::string to)
      : text_(text), from_(std::move(from)), to_(std::move(to)) {}

  // The first so many bytes of what stands here are the name.
  void name_at(Position at, const std::string& what) {
    TextSpan span{at, at};
    span.to.column += static_cast<int>(from_.size());
    const TextRange range = text_.range(span, what);
    add(range);
  }
  void add(TextRange range) { changes_.push_back({range.from, range.to, to_}); }
  void insert(size_t at, std::string text) { changes_.push_back({at, at, std::move(text)}); }

  // Every name of a term that is not among these: those mean something else.
  void names_in(const Term& term, const std::vector<const Term*>& others) {
    const bool other = std::find(others.begin(), others.end(), &term) != others.end();
    if (term.kind == Term::Kind::kName && term.word == from_ && !other) {
      name_at(term.span.from, "'" + from_ + "'");
    }
    for (const Term& t : term.args) names_in(t, others);
    for (const Term& t : term.repeat) names_in(t, others);
    for (const auto& [word, t] : term.keywords) names_in(t, others);
  }
  void names_in(const std::vector<Term>& terms) {
    for (const Term& term : terms) names_in(term, {});
  }

  std::vector<Change> take() { return std::move(changes_); }
  const std::string& from() const { return from_; }
  const std::string& to() const { return to_; }

 private:
  const WrittenText& text_;
  std::string from_, to_;
  std::vector<Change> changes_;
};

std::vector<Change> rename_value(const WrittenText& text, const Box& box, ValueId value,
                                 const std::string& to) {
  const std::string from = name_of(box, value);
  if (value.statement < 0 && box.name == "model") {
    fail("'", from, "' is an input of the model, and data are found by its name");
  }
  check_new_value(text.document(), box, to);
  Renaming names(text, from, to);
  if (value.statement < 0) {
    names.name_at(box.formals[value.index].at, "box '" + box.name + "'");
  } else {
    const Statement& s = box.body[static_cast<size_t>(value.statement)];
    text.range(span_of(s), "box '" + box.name + "'");
    names.add(name_ranges(text.lines(), text.text(), s)[value.index]);
  }
  for (const NameUse& use : names_of(text.document(), box)) {
    if (use.kind == NameUse::Kind::kValue && use.value == value) {
      names.name_at(use.term->span.from, "'" + from + "'");
    }
  }
  return names.take();
}

// "block[{l}].qkv": names of calls in a format's modules begin with the boxes around them.
void rename_in_module(const WrittenText& text, const FormatModule& module, Renaming& names) {
  const auto at = text.lines().offset(module.at);
  if (!at) return;
  size_t begin = *at + 1;  // behind the quote
  const std::string_view ours = module.ours;
  for (size_t from = 0; from <= ours.size();) {
    const size_t end = std::min(ours.find('.', from), ours.size());
    const std::string_view component = ours.substr(from, end - from);
    const std::string_view base = component.substr(0, component.find_first_of("[#"));
    if (base == names.from()) names.add({begin + from, begin + from + base.size()});
    from = end + 1;
  }
}

bool is_call_name(const Document& document, std::string_view name) {
  const auto has = [&](const auto& self, const Term& term) -> bool {
    for (const auto& [word, value] : term.keywords) {
      if (word == "name" && value.word == name) return true;
      if (self(self, value)) return true;
    }
    return std::any_of(term.args.begin(), term.args.end(),
                       [&](const Term& arg) { return self(self, arg); });
  };
  for (const Box& box : document.boxes) {
    for (const Statement& s : box.body) {
      for (const Term& value : s.values) {
        if (has(has, value)) return true;
      }
    }
  }
  return false;
}

std::vector<Change> rename_box(const WrittenText& text, const Box& box, const std::string& to) {
  if (box.name == "model") fail("the box 'model' is found by its name");
  const Document& document = text.document();
  check_new_box(document, to);
  Renaming names(text, box.name, to);
  names.name_at(box.at, "box '" + box.name + "'");
  for (const TermSlot& slot : text.slots()) {
    if (slot.term->kind == Term::Kind::kCall && slot.term->word == box.name) {
      names.name_at(slot.term->span.from, "a call of '" + box.name + "'");
      for (const auto& [word, value] : slot.term->keywords) {
        if (word != "name" || !is_numbered_name(value.word, box.name, true)) continue;
        Position inside = value.span.from;
        ++inside.column;  // behind the quote
        names.name_at(inside, "a call of '" + box.name + "'");
      }
    }
  }
  // A call without a name is called like its box.
  if (!is_call_name(document, box.name)) {
    for (const Box& each : document.boxes) {
      for (const NameUse& use : names_of(document, each)) {
        if (use.kind == NameUse::Kind::kCallName && use.term->word == box.name) {
          names.name_at(use.term->span.from, "a call of '" + box.name + "'");
        }
      }
    }
    for (const Format& format : document.formats) {
      for (const FormatModule& m : format.modules) rename_in_module(text, m, names);
    }
  }
  return names.take();
}

void rename_in_settings(const std::vector<Setting>& all, Renaming& names) {
  for (const Setting& s : all) {
    if (s.name == names.from()) names.name_at(s.at, "'" + s.name + "'");
    names.names_in(s.value, {});
  }
}

void rename_in_format(const Format& format, Renaming& names) {
  for (const FormatField& field : format.fields) {
    names.names_in(field.value, {});
    for (const auto* terms :
         {&field.each, &field.before, &field.null, &field.otherwise, &field.condition}) {
      names.names_in(*terms);
    }
  }
  for (const IgnoredTensor& tensor : format.ignored_tensors) names.names_in(tensor.when);
  rename_in_settings(format.set, names);
}

// embed(tokens, vocab) is as wide as the axis `hidden`, which its default names: it must say so
// once the axis is called otherwise.
void say_defaults(const WrittenText& text, const Box& box, Renaming& names) {
  for (const TermSlot& slot : text.slots()) {
    if (slot.box != &box || slot.term->kind != Term::Kind::kCall) continue;
    const auto values = values_before(box, slot.statement);
    for (const DefaultParam& param : defaults_of(text.document(), *slot.term, values)) {
      if (param.value != names.from()) continue;
      const TextRange call = text.range(slot.term->span, "a call of '" + slot.term->word + "'");
      names.insert(call.to - 1, ", " + param.name + "=" + names.to());
    }
  }
}

std::vector<Change> rename_number(const WrittenText& text, const std::string& from,
                                  const std::string& to) {
  const Document& document = text.document();
  if (from == "context") {
    fail("'context' is known by its name: it is how long a sequence is where nobody says 'seq'");
  }
  if (from == "vocab") {
    fail("'vocab' is known by its name: a run sets it to as many tokens as its tokenizer has");
  }
  if (is_known_number(document, to)) fail("'", to, "' is already an axis or a number");
  Renaming names(text, from, to);
  rename_in_settings(document.axes, names);
  rename_in_settings(document.numbers, names);
  for (const Preset& p : document.presets) rename_in_settings(p.settings, names);
  for (const Box& box : document.boxes) {
    for (const Formal& f : box.formals) names.names_in(f.axes);
    std::vector<const Term*> others;
    for (const NameUse& use : names_of(document, box)) {
      const bool number = use.kind == NameUse::Kind::kNumber || use.kind == NameUse::Kind::kLabel;
      if (!number) others.push_back(use.term);
      if (!number && use.term->word == to) {
        fail("'", to, "' is already the name of something in '", box.name, "'");
      }
    }
    for (const auto& [name, value] : values_before(box, box.body.size())) {
      if (name == to) fail("'", to, "' is already the name of something in '", box.name, "'");
    }
    for (const Statement& s : box.body) {
      for (const Term& value : s.values) names.names_in(value, others);
    }
    say_defaults(text, box, names);
  }
  for (const Format& format : document.formats) rename_in_format(format, names);
  return names.take();
}

std::vector<Change> rename_preset(const WrittenText& text, const Wish& wish) {
  const std::string from = wish.text("preset"), to = wish.text("to");
  const Preset* preset = text.document().preset(from);
  if (!preset) fail("there is no preset '", from, "'");
  if (!is_preset_name(to)) fail("the edit's 'to' must be a name of a preset, found '", to, "'");
  if (text.document().preset(to)) fail("there is already a preset '", to, "'");
  Renaming names(text, from, to);
  names.name_at(preset->at, "preset '" + from + "'");
  return names.take();
}

// What a name at this place is: a value where it is made or read, an axis, a number or a box.
std::vector<Change> rename_at(const WrittenText& text, const Wish& place, const std::string& to) {
  const TextRange at{static_cast<size_t>(place.whole("from")),
                     static_cast<size_t>(place.whole("to"))};
  const Document& document = text.document();
  const auto is_at = [&](Position from, const std::string& name) {
    TextSpan span{from, from};
    span.to.column += static_cast<int>(name.size());
    return text.lines().range(span) == at;
  };
  for (const auto* all : {&document.axes, &document.numbers}) {
    for (const Setting& s : *all) {
      if (is_at(s.at, s.name)) return rename_number(text, s.name, to);
    }
  }
  for (const Box& box : document.boxes) {
    if (is_at(box.at, box.name)) return rename_box(text, box, to);
    for (size_t i = 0; i < box.formals.size(); ++i) {
      if (is_at(box.formals[i].at, box.formals[i].name)) {
        return rename_value(text, box, {-1, i}, to);
      }
    }
    for (size_t s = 0; s < box.body.size(); ++s) {
      const auto ranges = name_ranges(text.lines(), text.text(), box.body[s]);
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (ranges[i] == at) return rename_value(text, box, {static_cast<int>(s), i}, to);
      }
    }
    for (const NameUse& use : names_of(document, box)) {
      if (!is_at(use.term->span.from, use.term->word)) continue;
      if (use.kind == NameUse::Kind::kValue) return rename_value(text, box, use.value, to);
      if (use.kind == NameUse::Kind::kNumber) return rename_number(text, use.term->word, to);
    }
  }
  fail("there is no name from byte ", at.from, " to byte ", at.to, " that could be another");
}

}  // namespace

std::vector<Change> rename_piece(const WrittenText& text, const Wish& wish) {
  if (wish.has("preset")) return rename_preset(text, wish);
  const std::string to = wish.name("to");
  if (wish.has("at")) return rename_at(text, Wish(wish["at"]), to);
  for (const auto& [field, all] :
       {std::pair("axis", &text.document().axes), std::pair("number", &text.document().numbers)}) {
    if (!wish.has(field)) continue;
    const std::string name = wish.text(field);
    const auto is_it = [&](const Setting& s) { return s.name == name; };
    if (std::none_of(all->begin(), all->end(), is_it)) fail("there is no ", field, " '", name, "'");
    return rename_number(text, name, to);
  }
  const Box& box = text.box(wish.text("box"));
  if (!wish.has("name")) return rename_box(text, box, to);
  const std::string name = wish.text("name");
  // A value that a statement gave this name, or the head.
  const int64_t number = wish.whole("statement", -1);
  const size_t statement = number < 0 ? 0 : text.statement(box, number);
  const auto values = values_before(box, number < 0 ? 0 : statement + 1);
  const auto found = values.find(name);
  if (found == values.end() || found->second.statement != number) {
    fail(number < 0 ? "the head" : "statement " + std::to_string(number), " of '", box.name,
         "' names no '", name, "'");
  }
  return rename_value(text, box, found->second, to);
}

}  // namespace adjoint

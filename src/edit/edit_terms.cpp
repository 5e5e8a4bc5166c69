// Edits of one term: an op put on an arrow, a call taken off it, another operand, another number.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "edit/document_json.h"
#include "edit/written.h"

namespace adjoint {

namespace {

constexpr std::string_view kHole = "_";

Change replaced(const WrittenText& text, const TermSlot& slot, const std::string& with,
                const Term& term) {
  return {text.range(slot.term->whole, "this term").from, text.range(slot.term->whole, "").to,
          text.for_slot(slot, with, term)};
}

// Writes text around `stays` in the place of a term, and leaves the bytes of `stays` as they are.
std::vector<Change> around(const WrittenText& text, const TermSlot& slot, const Term& stays,
                           const std::string& before, const std::string& behind,
                           const Term& whole) {
  const TextRange all = text.range(slot.term->whole, "this term");
  const TextRange inner = text.range(stays.span, "this term");
  const std::string said = before + std::string(text.slice(inner)) + behind;
  const bool brackets = text.for_slot(slot, said, whole).size() != said.size();
  return {{all.from, inner.from, (brackets ? "(" : "") + before},
          {inner.to, all.to, behind + (brackets ? ")" : "")}};
}

const Term& operand_of(const Term& term, const Wish& wish) {
  if (wish.has("operand") && wish["operand"].is_string()) {
    const std::string wanted = wish.text("operand");
    for (const auto& [word, value] : term.keywords) {
      if (word == wanted) return value;
    }
    fail("'", print(term), "' has no argument '", wanted, "'");
  }
  const int64_t wanted = wish.whole("operand", 0);
  if (wanted < 0 || wanted >= static_cast<int64_t>(term.args.size())) {
    if (term.args.empty()) fail("'", print(term), "' has no operand that could stay in its place");
    fail("'", print(term), "' has operands 0 to ", term.args.size() - 1, ", found ", wanted);
  }
  return term.args[static_cast<size_t>(wanted)];
}

// The statement that a delete means, if it means one.
struct Target {
  const Box* box;
  size_t statement;
};
std::optional<Target> statement_at(const WrittenText& text, const nlohmann::json& at) {
  const Wish place(at);
  if (place.has("box")) {
    if (place.has("path")) return std::nullopt;
    const Box& box = text.box(place.text("box"));
    return Target{&box, text.statement(box, place.whole("statement"))};
  }
  const int64_t from = place.whole("from"), to = place.whole("to");
  for (const Box& box : text.document().boxes) {
    for (size_t i = 0; i < box.body.size(); ++i) {
      const auto range = text.lines().range(span_of(box.body[i]));
      if (range && static_cast<int64_t>(range->from) == from &&
          static_cast<int64_t>(range->to) == to) {
        return Target{&box, i};
      }
    }
  }
  return std::nullopt;
}

// The lines of a statement go with it; a comment behind it stays in its place.
Change without_statement(const WrittenText& text, const Statement& s) {
  const TextRange range = text.range(span_of(s), "this statement");
  const size_t begin = text.line_of(range.from).from;
  const TextRange last = text.line_of(range.to);
  std::string_view behind = text.slice({range.to, last.to});
  const size_t rest = behind.find_first_not_of(" \t\r\n");
  if (rest != behind.npos) return {range.from, range.to + rest, ""};
  return {begin, last.to, ""};
}

// `a, b = f(a, b)` takes a and b.
bool takes_exactly(const Statement& s, const std::vector<std::string>& names) {
  if (names.size() < 2 || s.names.size() != names.size() || s.values.size() != 1) return false;
  const std::vector<Term>& args = s.values[0].args;
  return std::equal(args.begin(), args.end(), names.begin(), names.end(),
                    [](const Term& arg, const std::string& name) {
                      return arg.kind == Term::Kind::kName && arg.word == name;
                    });
}

std::vector<Change> delete_statement(const WrittenText& text, const Target& target,
                                     const Wish& wish) {
  const Box& box = *target.box;
  const Statement& s = box.body[target.statement];
  const int number = static_cast<int>(target.statement);
  if (box.body.size() == 1) fail("'", box.name, "' has no other statement");
  const Term* operand = nullptr;
  if (s.names.size() == 1 && s.values.size() == 1 && !s.values[0].args.empty()) {
    operand = &operand_of(s.values[0], wish);
  }
  const bool named = operand && operand->kind == Term::Kind::kName;
  if (target.statement + 1 == box.body.size()) {
    // The box then gives what the statement before names, so that must be the operand, or all of
    // the operands.
    const Statement& before = box.body[target.statement - 1];
    const bool same = named && before.names == std::vector<std::string>{operand->word};
    if (!same && !takes_exactly(s, before.names)) {
      fail("what the last statement of '", box.name,
           "' names is what the box gives; delete the call in it instead");
    }
  }
  std::vector<Change> changes = {without_statement(text, s)};
  std::vector<const NameUse*> reads;
  const std::vector<NameUse> uses = names_of(text.document(), box);
  for (const NameUse& use : uses) {
    if (use.kind == NameUse::Kind::kValue && use.value.statement == number) reads.push_back(&use);
  }
  if (reads.empty()) return changes;
  const auto before = values_before(box, target.statement);
  const auto value = named ? before.find(operand->word) : before.end();
  if (value == before.end()) {
    fail("'", reads[0]->term->word, "' is read below, and nothing that '", print(s.values[0]),
         "' reads could stand for it");
  }
  for (const NameUse* use : reads) {
    auto now = values_before(box, use->statement);
    // What this statement named has the name that it had before.
    for (const std::string& name : s.names) {
      if (now[name] != ValueId{number, 0}) continue;
      if (const auto old = before.find(name); old != before.end()) now[name] = old->second;
    }
    const auto found = now.find(operand->word);
    if (found == now.end() || found->second != value->second) {
      fail("'", operand->word, "' is bound again before '", use->term->word,
           "' is read, so it cannot stand for it");
    }
    if (operand->word == use->term->word) continue;
    const TextRange at = text.range(use->term->span, "this use");
    changes.push_back({at.from, at.to, operand->word});
  }
  return changes;
}

Change added_setting(const WrittenText& text, const Preset& preset, const std::string& name,
                     const std::string& value) {
  Position end = preset.at;
  end.column += static_cast<int>(preset.name.size());
  if (!preset.settings.empty()) end = span_of(preset.settings.back()).to;
  size_t at = text.range({end, end}, "preset '" + preset.name + "'").from;
  if (preset.settings.empty()) at = text.text().find(':', at) + 1;
  return {at, at, " " + name + "=" + value};
}

const Setting* setting_named(const std::vector<Setting>& all, std::string_view name) {
  for (const Setting& s : all) {
    if (s.name == name) return &s;
  }
  return nullptr;
}

const TermSlot& slot_of(const WrittenText& text, const Term& term) {
  for (const TermSlot& slot : text.slots()) {
    if (slot.term == &term) return slot;
  }
  CHECK(false, "every term has a slot");
  std::abort();
}

// Of axes, numbers and presets: null if it is another kind of wish.
const Term* setting_wished(const WrittenText& text, const Wish& wish) {
  const Document& document = text.document();
  for (const auto& [field, all] :
       {std::pair("axis", &document.axes), std::pair("number", &document.numbers)}) {
    if (!wish.has(field)) continue;
    if (const Setting* s = setting_named(*all, wish.text(field))) return &s->value;
    std::vector<std::string> known;
    for (const Setting& s : *all) known.push_back(s.name);
    fail("there is no ", field, " '", wish.text(field), "'", did_you_mean(wish.text(field), known));
  }
  return nullptr;
}

const Preset& preset_named(const WrittenText& text, const std::string& name) {
  if (const Preset* preset = text.document().preset(name)) return *preset;
  std::vector<std::string> known;
  for (const Preset& p : text.document().presets) known.push_back(p.name);
  fail("there is no preset '", name, "'", did_you_mean(name, known));
}

}  // namespace

std::vector<Change> insert_call(const WrittenText& text, const Wish& wish) {
  const TermSlot& slot = text.slot(wish["at"]);
  const NewTerm call = new_term(wish.text("call"), "call");
  // Places of the term are those of the whole text of the call, which may have blanks around it.
  const NewTerm inner{call.text, parse_term(call.text, "the edit's 'call'")};
  const TextLines lines(inner.text);
  std::vector<TermSlot> places;
  add_slot({.term = &inner.term}, places);
  std::vector<Change> fillings;
  for (const TermSlot& place : places) {
    if (place.term->kind != Term::Kind::kName || place.term->word != kHole) continue;
    const TextRange hole = *lines.range(place.term->whole);
    fillings.push_back({hole.from, hole.to, text.moved(place, *slot.term)});
  }
  if (fillings.empty()) fail("the edit's 'call' has no '_' for what was there");
  if (fillings.size() == 1) {
    const auto [from, to, filling] = fillings[0];
    const bool brackets = filling.size() != text.slice(text.range(slot.term->span, "")).size();
    return around(text, slot, *slot.term, inner.text.substr(0, from) + (brackets ? "(" : ""),
                  (brackets ? ")" : "") + inner.text.substr(to), inner.term);
  }
  return {replaced(text, slot, changed(inner.text, fillings).text, inner.term)};
}

std::vector<Change> delete_piece(const WrittenText& text, const Wish& wish) {
  const nlohmann::json& at = wish["at"];
  if (const auto target = statement_at(text, at)) return delete_statement(text, *target, wish);
  const TermSlot& slot = text.slot(at);
  const Term& stays = operand_of(*slot.term, wish);
  return around(text, slot, stays, "", "", stays);
}

std::vector<Change> set_value(const WrittenText& text, const Wish& wish) {
  const NewTerm to = new_term(wish.text("to"), "to");
  const Term* term = setting_wished(text, wish);
  if (!term && wish.has("preset")) {
    const Preset& preset = preset_named(text, wish.text("preset"));
    const std::string name = wish.name("setting");
    const Setting* setting = setting_named(preset.settings, name);
    if (!setting) {
      if (!is_known_number(text.document(), name)) fail("there is no axis or number '", name, "'");
      const TermSlot value{.term = &to.term, .needs = Binding::kProduct};
      return {added_setting(text, preset, name, text.for_slot(value, to.text, to.term))};
    }
    term = &setting->value;
  }
  if (term) return {replaced(text, slot_of(text, *term), to.text, to.term)};
  const TermSlot& slot = text.slot(wish["at"]);
  if (!wish.has("keyword")) return {replaced(text, slot, to.text, to.term)};
  if (slot.term->kind != Term::Kind::kCall) {
    fail("'", print(*slot.term), "' is no call, so it has no arguments by name");
  }
  const std::string keyword = wish.name("keyword");
  for (const auto& [word, value] : slot.term->keywords) {
    if (word == keyword) return {replaced(text, slot_of(text, value), to.text, to.term)};
  }
  return {added_keyword(text, *slot.term, keyword, to.text)};
}

std::vector<Change> connect(const WrittenText& text, const Wish& wish) {
  const TermSlot& slot = text.slot(wish["at"]);
  if (!slot.box) fail("this is no operand of a call: '", print(*slot.term), "'");
  const std::string name = wish.name("value");
  const auto values = values_before(*slot.box, slot.statement);
  const auto found = values.find(name);
  if (found == values.end()) {
    std::vector<std::string> known;
    for (const auto& [value, id] : values) known.push_back(value);
    fail("there is no value '", name, "' before statement ", slot.statement, " of '",
         slot.box->name, "'", did_you_mean(name, known));
  }
  // Which of the values that have this name one after the other.
  if (wish.has("statement") || wish.has("formal")) {
    if (wish.whole("statement", -1) != found->second.statement) {
      fail("'", name, "' is bound again by statement ", found->second.statement, " of '",
           slot.box->name, "', so the earlier one cannot be read here");
    }
  }
  const Term term{.kind = Term::Kind::kName, .word = name};
  return {replaced(text, slot, name, term)};
}

std::vector<Change> repeat_call(const WrittenText& text, const Wish& wish) {
  const TermSlot& slot = text.slot(wish["at"]);
  const Term& call = *slot.term;
  if (call.kind != Term::Kind::kCall || !text.document().box(call.word)) {
    fail("only the call of a box can be repeated, found '", print(call), "'");
  }
  const size_t behind = text.range(call.span, "this call").from + call.word.size();
  const bool repeated = !call.repeat.empty();
  if (!wish.has("times")) {
    if (!repeated) fail("'", print(call), "' is not repeated");
    return {{behind, text.range(call.repeat[0].whole, "").to, ""}};
  }
  const NewTerm times = new_term(wish.text("times"), "times");
  const TermSlot power{.term = &times.term, .power = true};
  const std::string said = text.for_slot(power, times.text, times.term);
  if (!repeated) return {{behind, behind, "^" + said}};
  const TextRange old = text.range(call.repeat[0].whole, "");
  return {{old.from, old.to, said}};
}

}  // namespace adjoint

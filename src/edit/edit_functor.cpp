// Edits of a functor's text: the default of a parameter, a number or condition of a rule, and rules
// that are new, others or gone.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "edit/document_json.h"
#include "edit/written.h"
#include "functors/functor_text.h"

namespace adjoint {

namespace {

class FunctorEditor {
 public:
  FunctorEditor(const std::string& text, const std::string& file)
      : text_(text), functor_(parse_functor_text(text, file)), lines_(text_) {}

  std::vector<Change> edit(const Wish& wish) {
    const std::string kind = wish.text("kind");
    if (kind == "set") return set(wish);
    if (kind == "insert") return insert(wish);
    if (kind == "delete") return remove(wish);
    const std::vector<std::string> known = {"set", "insert", "delete"};
    fail("there is no edit '", kind, "' of a functor; there are ", join(known, ", "),
         did_you_mean(kind, known));
  }

 private:
  TextRange range(const TextSpan& span) const {
    const auto found = lines_.range(span);
    CHECK(found, "a place of a functor's text is in it");
    return *found;
  }

  const FunctorLine& line(int64_t number) const {
    if (number < 0 || number >= static_cast<int64_t>(functor_.lines.size())) {
      fail("'", functor_.name, "' has lines 0 to ", static_cast<int64_t>(functor_.lines.size()) - 1,
           ", found ", number);
    }
    return functor_.lines[static_cast<size_t>(number)];
  }

  // A default, a whole line, or any term of a rule by its place.
  std::vector<Change> set(const Wish& wish) const {
    if (wish.has("param")) return {set_default(wish)};
    if (wish.has("rule")) {
      const TextRange at = range(line(wish.whole("rule")).span);
      return {{at.from, at.to, one_line(wish.text("to"))}};
    }
    const Wish place(wish["at"]);
    const int64_t from = place.whole("from"), to = place.whole("to");
    const NewTerm term = new_term(wish.text("to"), "to");
    for (const TermSlot& slot : slots()) {
      const TextRange at = range(slot.term->whole), inner = range(slot.term->span);
      const auto is_at = [&](TextRange r) {
        return static_cast<int64_t>(r.from) == from && static_cast<int64_t>(r.to) == to;
      };
      if (!is_at(at) && !is_at(inner)) continue;
      const bool brackets = binding(term.term) < slot.needs;
      return {{at.from, at.to, brackets ? "(" + term.text + ")" : term.text}};
    }
    fail("there is no term from byte ", from, " to byte ", to);
  }

  Change set_default(const Wish& wish) const {
    const std::string name = wish.text("param");
    std::vector<std::string> known;
    for (size_t i = 0; i < functor_.params.size(); ++i) {
      const FunctorParam& p = functor_.params[i];
      known.push_back(p.name);
      if (p.name != name) continue;
      const NewTerm to = new_term(wish.text("to"), "to");
      const std::string text = binding(to.term) < Binding::kSum ? "(" + to.text + ")" : to.text;
      if (!p.otherwise.empty()) {
        const TextRange at = range(functor_.param_places[i].otherwise);
        return {at.from, at.to, text};
      }
      const size_t behind = range(functor_.param_places[i].whole).from + p.name.size();
      return {behind, behind, " = " + text};
    }
    fail("'", functor_.name, "' has no parameter '", name, "'", did_you_mean(name, known));
  }

  std::vector<Change> insert(const Wish& wish) const {
    if (!functor_.parts.empty()) fail("'", functor_.name, "' is a stack and has no rules");
    const std::string_view newline = newline_of(text_);
    const int64_t after = wish.whole("after");
    Position end = functor_.head_end;
    std::string indent = "  ";
    if (after >= 0) end = line(after).span.to;
    if (!functor_.lines.empty()) {
      const Position begin = functor_.lines[0].span.from;
      const size_t at = *lines_.offset(begin);
      indent = text_.substr(lines_.line_around(at).from, at - lines_.line_around(at).from);
    }
    const TextRange around = lines_.line_around(*lines_.offset(end));
    const std::string whole = indent + one_line(wish.text("text"));
    const bool ends =
        std::string_view(text_).substr(around.from, around.to - around.from).ends_with('\n');
    if (ends) return {{around.to, around.to, whole + std::string(newline)}};
    return {{around.to, around.to, std::string(newline) + whole}};
  }

  // A comment behind a line stays in its place.
  std::vector<Change> remove(const Wish& wish) const {
    const TextRange at = range(line(wish.whole("rule")).span);
    const TextRange last = lines_.line_around(at.to);
    const std::string_view behind = std::string_view(text_).substr(at.to, last.to - at.to);
    const size_t rest = behind.find_first_not_of(" \t\r\n");
    if (rest != behind.npos) return {{at.from, at.to + rest, ""}};
    return {{lines_.line_around(at.from).from, last.to, ""}};
  }

  // A line of a functor may go on over several.
  static std::string one_line(std::string text) {
    const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
    if (begin == text.npos) fail("a line of a functor says something");
    return text.substr(begin, end - begin + 1);
  }

  std::vector<TermSlot> slots() const {
    std::vector<TermSlot> all;
    const auto term = [&](const Term& t, Binding needs) {
      if (t.whole.to.line > 0) add_slot({.term = &t, .needs = needs}, all);
    };
    const auto condition = [&](const Condition& c) {
      if (c) term(*c, Binding::kOr);
    };
    const auto statements = [&](const std::vector<Statement>& body) {
      for (const Statement& s : body) {
        for (const Term& value : s.values) term(value, Binding::kWhen);
      }
    };
    if (functor_.against) term(*functor_.against, Binding::kFactor);
    condition(functor_.against_when);
    for (const StackPart& part : functor_.parts) term(part.call, Binding::kFactor);
    for (const Let& let : functor_.lets) {
      for (const auto& [value, when] : let.choices) term(value, Binding::kSum), condition(when);
    }
    for (const Requirement& r : functor_.requirements) term(r.condition, Binding::kOr);
    for (const MeshRule& m : functor_.mesh) term(m.size, Binding::kSum);
    if (functor_.order) term(functor_.order->chunks, Binding::kSum);
    for (const ObjectRule& rule : functor_.objects) {
      for (const Choice& choice : rule.choices) {
        for (const AttributeValue& value : choice.values) {
          for (const Term& number : value.number) term(number, Binding::kSum);
        }
        condition(choice.when);
      }
    }
    for (const MorphismRule& rule : functor_.morphisms) {
      condition(rule.when);
      statements(rule.statements);
      term(rule.replacement, Binding::kWhen);
    }
    for (const StateRule& rule : functor_.states) {
      for (const Term& number : rule.begins) term(number, Binding::kSum);
      for (const Term& number : rule.every) term(number, Binding::kSum);
      statements(rule.statements);
      term(rule.value, Binding::kWhen);
    }
    return all;
  }

  std::string text_;
  FunctorText functor_;
  TextLines lines_;
};

}  // namespace

std::vector<Change> edit_functor(const std::string& text, const std::string& file,
                                 const Wish& wish) {
  return FunctorEditor(text, file).edit(wish);
}

}  // namespace adjoint

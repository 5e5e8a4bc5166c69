// Boxes: statements or a term folded into a new one, a call unfolded into what its box says, and
// boxes and statements that are new.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "edit/document_json.h"
#include "edit/written.h"

namespace adjoint {

namespace {

// One formal, without blanks and comments around it; more would be more of the head, or another
// box.
std::string checked_formal(const std::string& text) {
  const std::string whole = "model " + text + ":\n  y = 0\n";
  Document parsed;
  try {
    parsed = parse_document(whole, "the new box");
  } catch (const Error&) {  // told below
  }
  const bool one = parsed.boxes.size() == 1 && parsed.boxes[0].formals.size() == 1;
  const auto range =
      one ? TextLines(whole).range({parsed.boxes[0].formals[0].at, parsed.boxes[0].formals[0].end})
          : std::nullopt;
  if (!range) {
    fail("wanted one object as a head has it, such as x[batch, hidden], found '", text, "'");
  }
  return whole.substr(range->from, range->to - range->from);
}

// x[batch, seq, hidden] where the request says the axes, which a text alone does not tell; else x,
// of any shape.
std::string formal_text(const std::string& name, const Wish& wish) {
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json& all = wish.has("axes") ? wish["axes"] : none;
  if (!all.is_object()) fail("'axes' must be an object: axes by name");
  if (!all.contains(name)) return name;
  const nlohmann::json& axes = all[name];
  if (axes.is_null()) return name;
  std::vector<std::string> labels;
  for (const nlohmann::json& label : axes.is_array() ? axes : nlohmann::json::array({axes})) {
    if (!label.is_string()) fail("the axes of '", name, "' must be texts");
    labels.push_back(label.get<std::string>());
  }
  return labels.empty() ? name : checked_formal(name + "[" + join(labels, ", ") + "]");
}

std::string box_text(const WrittenText& text, const std::string& name,
                     const std::vector<std::string>& formals, const std::string& body) {
  if (formals.empty()) fail("the new box would read nothing, and a box takes at least one object");
  return name + " " + join(formals, ", ") + ":" + std::string(text.newline()) + body +
         std::string(text.newline());
}

std::string indent_of(const WrittenText& text, const Statement& s) {
  const size_t at = text.range({s.at, s.at}, "this statement").from;
  return std::string(text.slice({text.line_of(at).from, at}));
}

// A line's end, which the last line of a text may lack.
std::string ended(const WrittenText& text, std::string_view lines) {
  return std::string(lines) + (lines.ends_with('\n') ? "" : std::string(text.newline()));
}

struct Selection {
  std::vector<std::string> reads, gives;
};

// What statements `first` to `last` read of the others, and what the others read of them.
Selection selected(const Document& document, const Box& box, size_t first, size_t last) {
  Selection found;
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  const auto inside = [&](int statement) {
    return statement >= static_cast<int>(first) && statement <= static_cast<int>(last);
  };
  std::set<ValueId> given;
  for (const NameUse& use : names_of(document, box)) {
    if (use.kind != NameUse::Kind::kValue) continue;
    const bool made_inside = inside(use.value.statement);
    const bool read_inside = inside(static_cast<int>(use.statement));
    if (read_inside && !made_inside) add(found.reads, use.term->word);
    if (!read_inside && made_inside) given.insert(use.value);
  }
  if (last + 1 == box.body.size()) {
    found.gives = box.body.back().names;
    return found;
  }
  for (const ValueId value : given) add(found.gives, name_of(box, value));
  return found;
}

std::vector<Change> fold_statements(const WrittenText& text, const Wish& wish) {
  const Box& box = text.box(wish.text("box"));
  const nlohmann::json& numbers = wish["statements"];
  if (!numbers.is_array() || numbers.empty() || numbers.size() > 2 ||
      !std::all_of(numbers.begin(), numbers.end(),
                   [](const auto& n) { return n.is_number_integer(); })) {
    fail("the edit's 'statements' must be the first and the last statement to fold");
  }
  const size_t first = text.statement(box, numbers.front().get<int64_t>());
  const size_t last = text.statement(box, numbers.back().get<int64_t>());
  if (last < first) fail("the edit's 'statements' must be in their order");
  const std::string name = wish.name("name");
  check_new_box(text.document(), name);
  const Selection all = selected(text.document(), box, first, last);
  if (all.gives.empty()) {
    fail("nothing below reads what these statements name, so a box of them would give nothing");
  }
  std::vector<std::string> formals;
  for (const std::string& read : all.reads) formals.push_back(formal_text(read, wish));
  const Statement &begin = box.body[first], &end = box.body[last];
  const TextRange range{text.range(span_of(begin), "this statement").from,
                        text.range(span_of(end), "this statement").to};
  const TextRange lines{text.line_of(range.from).from, text.line_of(range.to).to};
  const std::string indent = indent_of(text, begin);
  std::string body = ended(text, text.slice(lines));
  const std::string gives = join(all.gives, ", ");
  if (end.names != all.gives) {
    body += indent + gives + " = " + gives + std::string(text.newline());
  }
  const std::string call = indent + gives + " = " + name + "(" + join(all.reads, ", ") + ")";
  const std::string tail = text.slice(lines).ends_with('\n') ? std::string(text.newline()) : "";
  const size_t at = above(text, box);
  return {{at, at, box_text(text, name, formals, body)}, {lines.from, lines.to, call + tail}};
}

std::vector<Change> fold_term(const WrittenText& text, const Wish& wish) {
  const TermSlot& slot = text.slot(wish["at"]);
  if (!slot.box) fail("this term is no part of a box: '", print(*slot.term), "'");
  if (slot.term->kind == Term::Kind::kName) fail("'", print(*slot.term), "' is already a name");
  const std::string name = wish.name("name");
  check_new_box(text.document(), name);
  std::vector<TermSlot> inner;
  add_slot(slot, inner);
  std::vector<std::string> reads, formals;
  for (const NameUse& use : names_of(text.document(), *slot.box)) {
    const auto is_it = [&](const TermSlot& s) { return s.term == use.term; };
    if (use.kind != NameUse::Kind::kValue || std::none_of(inner.begin(), inner.end(), is_it)) {
      continue;
    }
    if (std::count(reads.begin(), reads.end(), use.term->word)) continue;
    reads.push_back(use.term->word);
    formals.push_back(formal_text(use.term->word, wish));
  }
  const TextRange whole = text.range(slot.term->whole, "this term");
  const std::string indent = indent_of(text, slot.box->body[slot.statement]);
  const TermSlot alone{.term = slot.term};
  std::string result = "y";
  while (mentions(*slot.term, result)) result += "_";
  const std::string body =
      indent + result + " = " + text.moved(alone, *slot.term) + std::string(text.newline());
  const size_t at = above(text, *slot.box);
  return {{at, at, box_text(text, name, formals, body)},
          {whole.from, whole.to, name + "(" + join(reads, ", ") + ")"}};
}

// The names of a box's own values for the place where it is unfolded.
class Unfolding {
 public:
  Unfolding(const WrittenText& text, const TermSlot& slot, const Box& box)
      : text_(text), slot_(slot), box_(box) {}

  std::vector<Change> changes() {
    const Term& call = *slot_.term;
    const Statement& s = slot_.box->body[slot_.statement];
    const TextRange statement = text_.range(span_of(s), "this statement");
    indent_ = indent_of(text_, s);
    const bool alone = &s.values[0] == &call && s.values.size() == 1;
    const Statement& last = box_.body.back();
    if (!alone && last.names.size() != 1) {
      fail("'", box_.name, "' gives several things, so its call is unfolded where it stands alone");
    }
    const bool each = alone && s.names.size() == last.names.size();
    choose_names(each ? s.names : std::vector<std::string>{});
    std::string lines;
    for (size_t i = 0; i < box_.formals.size(); ++i) lines += argument(i);
    lines += body();
    if (!alone) {
      const TextRange at = text_.range(call.whole, "this call");
      return {{statement.from - indent_.size(), statement.from - indent_.size(), lines},
              {at.from, at.to, name_for({static_cast<int>(box_.body.size()) - 1, 0})}};
    }
    // The last names of the box are those of the statement; the line's comment stays behind.
    const std::string trimmed = lines.substr(0, lines.find_last_not_of("\r\n") + 1);
    const bool same = last_names() == s.names;
    const std::string tail = same ? ""
                                  : std::string(text_.newline()) + indent_ + join(s.names, ", ") +
                                        " = " + join(last_names(), ", ");
    return {{statement.from - indent_.size(), statement.to, trimmed + tail}};
  }

 private:
  // A value keeps its name unless the caller has another use for it.
  void choose_names(const std::vector<std::string>& results) {
    std::set<std::string> taken;
    for (const auto& [name, value] : values_before(*slot_.box, slot_.box->body.size())) {
      taken.insert(name);
    }
    for (const NameUse& use : names_of(text_.document(), *slot_.box)) {
      if (use.kind != NameUse::Kind::kCallName) taken.insert(use.term->word);
    }
    const auto fresh = [&](const std::string& name) {
      std::string found = name;
      for (int i = 2; taken.count(found); ++i) found = name + "_" + std::to_string(i);
      taken.insert(found);
      return found;
    };
    // A formal is what the caller calls its operand: what binds its name again is another value.
    for (size_t i = 0; i < box_.formals.size(); ++i) {
      const Term& given = slot_.term->args[i];
      const ValueId id{-1, i};
      names_[id] = given.kind == Term::Kind::kName ? given.word : fresh(box_.formals[i].name);
    }
    for (size_t s = 0; s < box_.body.size(); ++s) {
      for (size_t i = 0; i < box_.body[s].names.size(); ++i) {
        const bool is_result = s + 1 == box_.body.size() && i < results.size();
        const ValueId id{static_cast<int>(s), i};
        names_[id] = is_result ? results[i] : fresh(box_.body[s].names[i]);
      }
    }
  }

  const std::string& name_for(ValueId id) const { return names_.at(id); }

  std::vector<std::string> last_names() const {
    std::vector<std::string> names;
    const int last = static_cast<int>(box_.body.size()) - 1;
    for (size_t i = 0; i < box_.body.back().names.size(); ++i) names.push_back(name_for({last, i}));
    return names;
  }

  std::string argument(size_t i) const {
    const Term& given = slot_.term->args[i];
    if (given.kind == Term::Kind::kName) return "";
    const TermSlot value{.term = &given};
    return indent_ + name_for({-1, i}) + " = " + text_.moved(value, given) +
           std::string(text_.newline());
  }

  // The lines of the box, comments among them, with the names that its values have here.
  std::string body() const {
    const Position head = box_.formals.back().end;
    const TextRange begin = text_.range({head, head}, "box '" + box_.name + "'");
    const TextRange end = text_.range(span_of(box_.body.back()), "box '" + box_.name + "'");
    const TextRange lines{text_.line_of(begin.from).to, text_.line_of(end.to).to};
    std::vector<Change> renamed;
    const auto rename = [&](TextRange at, const std::string& name) {
      if (text_.slice(at) != name)
        renamed.push_back({at.from - lines.from, at.to - lines.from, name});
    };
    for (const NameUse& use : names_of(text_.document(), box_)) {
      if (use.kind == NameUse::Kind::kValue) {
        rename(text_.range(use.term->span, "this use"), name_for(use.value));
      }
    }
    for (size_t s = 0; s < box_.body.size(); ++s) {
      const auto ranges = name_ranges(text_.lines(), text_.text(), box_.body[s]);
      for (size_t i = 0; i < ranges.size(); ++i) {
        rename(ranges[i], name_for({static_cast<int>(s), i}));
      }
    }
    // Numbers that calls say are those of this box.
    for (const TermSlot& slot : text_.slots()) {
      if (slot.box != &box_ || slot.term->kind != Term::Kind::kCall) continue;
      if (const auto change = without_numbered_name(*slot.term)) {
        renamed.push_back({change->from - lines.from, change->to - lines.from, ""});
      }
    }
    return indented(ended(text_, changed(text_.slice(lines), renamed).text));
  }

  // From the end of the argument before the name to the name's end.
  std::optional<TextRange> without_numbered_name(const Term& call) const {
    const Term* before = call.args.empty() ? nullptr : &call.args.back();
    for (const auto& [word, value] : call.keywords) {
      if (word == "name" && value.kind == Term::Kind::kText && before) {
        return TextRange{text_.range(before->whole, "").to, text_.range(value.whole, "").to};
      }
      before = &value;
    }
    return std::nullopt;
  }

  // Lines with the caller's indent instead of the box's. What goes on over lines keeps its shape.
  std::string indented(std::string_view lines) const {
    const std::string own = indent_of(text_, box_.body[0]);
    std::string out;
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
      std::string_view line = lines.substr(0, end);
      lines.remove_prefix(end);
      const size_t begin = line.find_first_not_of(" \t");
      if (begin != line.npos && line[begin] != '\n' && line[begin] != '\r') {
        line.remove_prefix(line.starts_with(own) ? own.size() : begin);
        out += indent_;
      }
      out += line;
    }
    return out;
  }

  const WrittenText& text_;
  const TermSlot& slot_;
  const Box& box_;
  std::string indent_;
  std::map<ValueId, std::string> names_;
};

std::vector<std::string> texts_of(const Wish& wish, std::string_view field) {
  const nlohmann::json& all = wish[field];
  if (!all.is_array() || all.empty() ||
      !std::all_of(all.begin(), all.end(), [](const auto& each) { return each.is_string(); })) {
    fail("the edit's '", field, "' must be a list of texts");
  }
  return all.get<std::vector<std::string>>();
}

// One statement, without blanks and comments around it; another line would be another statement.
std::string statement_text(const std::string& text) {
  const std::string whole = "model x:\n  " + text + "\n";
  const Document parsed = parse_document(whole, "the new statement");
  const Box& box = parsed.boxes[0];
  const auto range = TextLines(whole).range(span_of(box.body[0]));
  if (parsed.boxes.size() != 1 || box.body.size() != 1 || !range) {
    fail("wanted one statement, found '", text, "'");
  }
  return whole.substr(range->from, range->to - range->from);
}

}  // namespace

std::vector<Change> fold(const WrittenText& text, const Wish& wish) {
  return wish.has("at") ? fold_term(text, wish) : fold_statements(text, wish);
}

std::vector<Change> unfold(const WrittenText& text, const Wish& wish) {
  const TermSlot& slot = text.slot(wish["at"]);
  const Term& call = *slot.term;
  const Box* box = call.kind == Term::Kind::kCall ? text.document().box(call.word) : nullptr;
  if (!box || !slot.box) fail("wanted the call of a box to unfold, found '", print(call), "'");
  if (!call.repeat.empty()) fail("'", print(call), "' is repeated, so it cannot be unfolded");
  if (slot.chosen) {
    fail("'", print(call),
         "' is called only where a condition says so, and its statements would always run");
  }
  for (const auto& [word, value] : call.keywords) {
    if (word == "weights") fail("'", print(call), "' has the weights of another call");
  }
  if (call.args.size() != box->formals.size()) {
    fail("'", print(call), "' does not give each operand of '", box->name, "' by itself");
  }
  return Unfolding(text, slot, *box).changes();
}

std::vector<Change> add_box(const WrittenText& text, const Wish& wish) {
  const std::string name = wish.name("name");
  check_new_box(text.document(), name);
  std::string body;
  for (const std::string& s : texts_of(wish, "statements")) {
    body += "  " + statement_text(s) + std::string(text.newline());
  }
  const size_t at = above(text, text.box(wish.text("before", "model")));
  std::vector<std::string> formals;
  for (const std::string& each : texts_of(wish, "formals")) formals.push_back(checked_formal(each));
  return {{at, at, box_text(text, name, formals, body)}};
}

std::vector<Change> add_statement(const WrittenText& text, const Wish& wish) {
  const Box& box = text.box(wish.text("box"));
  const std::string added = statement_text(wish.text("text"));
  const std::string newline(text.newline());
  if (wish.whole("after") < 0) {
    const Statement& first = box.body[0];
    const size_t at = text.range(span_of(first), "box '" + box.name + "'").from;
    const size_t begin = text.line_of(at).from;
    return {{begin, begin, indent_of(text, first) + added + newline}};
  }
  const Statement& s = box.body[text.statement(box, wish.whole("after"))];
  const TextRange line = text.line_of(text.range(span_of(s), "box '" + box.name + "'").to);
  const std::string whole = indent_of(text, s) + added;
  if (text.slice(line).ends_with('\n')) return {{line.to, line.to, whole + newline}};
  return {{line.to, line.to, newline + whole}};
}

}  // namespace adjoint

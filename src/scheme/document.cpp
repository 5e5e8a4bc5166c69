// Grammar, in the order of the functions below:
//   document  = { "axes" settings | "numbers" settings | "preset" name ":" settings | box }
//   box       = name formal {"," formal} ":" newline { indented statement }
//   formal    = name [dtype] [ "[" term {"," term} "]" ]
//   statement = name {"," name} "=" term {"," term}
//   term      = product { ("+" | "-") product };  product = factor { ("*" | "/") factor }
//   factor    = number | text | "-" factor | "(" term ")" | name [ ["^" power] "(" arguments ")" ]
//   argument  = term | name "=" term [ "when" term ]
#include "scheme/document.h"

#include <cctype>
#include <set>

#include "base/text.h"

namespace adjoint {

const Box* Document::box(std::string_view name) const {
  for (const Box& b : boxes) {
    if (b.name == name) return &b;
  }
  return nullptr;
}

const Preset* Document::preset(std::string_view name) const {
  for (const Preset& p : presets) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

namespace {

// More than these in one term is a mistake, and its depth would end the stack.
constexpr int kDeepestNesting = 200;
constexpr int kMostOperators = 500;

class DocumentParser {
 public:
  DocumentParser(std::string_view text, std::string_view file) : in_(text, file) {}

  Document parse() {
    Document document;
    for (in_.skip_blank_lines(); !in_.at_end(); in_.skip_blank_lines()) {
      const Position at = in_.position();
      if (at.column != 1) in_.fail_at(at, "wanted a line that begins a section, found an indent");
      if (in_.accept_word("axes")) {
        settings(document.axes);
      } else if (in_.accept_word("numbers")) {
        settings(document.numbers);
      } else if (in_.accept_word("preset")) {
        preset(document);
      } else {
        box(document);
      }
    }
    if (!document.box("model")) {
      in_.fail_at(in_.position(), "wanted a box named 'model', found the end of the text");
    }
    return document;
  }

  Term parse_one() {
    Term one = whole(&DocumentParser::term);
    in_.expect_line_end();
    return one;
  }

 private:
  // A term that is no part of another.
  Term whole(Term (DocumentParser::*part)()) {
    operators_ = 0;
    return (this->*part)();
  }

  void settings(std::vector<Setting>& into) {
    while (!in_.at_line_end()) {
      Setting setting;
      setting.at = in_.position();
      setting.name = in_.take_name("the name of a setting");
      for (const Setting& earlier : into) {
        if (earlier.name == setting.name) {
          in_.fail_at(setting.at, "'" + setting.name + "' is set twice");
        }
      }
      in_.expect("=", "after the name of a setting");
      setting.value = whole(&DocumentParser::product);
      into.push_back(std::move(setting));
    }
  }

  void preset(Document& document) {
    Preset preset;
    in_.skip_blank();
    preset.at = in_.position();
    preset.name = in_.take_run("-.", "the name of a preset");
    if (document.preset(preset.name)) {
      in_.fail_at(preset.at, "preset '" + preset.name + "' is written twice");
    }
    in_.expect(":", "after the name of a preset");
    settings(preset.settings);
    document.presets.push_back(std::move(preset));
  }

  void box(Document& document) {
    Box box;
    box.at = in_.position();
    box.name = in_.take_name("'axes', 'numbers', 'preset' or the name of a box");
    if (document.box(box.name)) in_.fail_at(box.at, "box '" + box.name + "' is written twice");
    do {
      box.formals.push_back(formal());
    } while (in_.accept(","));
    in_.expect(":", "after the head of a box");
    in_.expect_line_end();
    for (in_.skip_blank_lines(); !in_.at_end() && in_.position().column > 1;
         in_.skip_blank_lines()) {
      box.body.push_back(statement());
    }
    if (box.body.empty()) in_.fail_at(box.at, "box '" + box.name + "' has no statement");
    document.boxes.push_back(std::move(box));
  }

  Formal formal() {
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
        formal.axes.push_back(whole(&DocumentParser::term));
      } while (in_.accept(","));
      in_.close_bracket();
      in_.expect("]", "after the axes of an object");
    }
    return formal;
  }

  Statement statement() {
    Statement statement;
    statement.at = in_.position();
    do {
      statement.names.push_back(in_.take_name("the name of a result"));
    } while (in_.accept(","));
    in_.expect("=", "after the names of the results");
    do {
      statement.values.push_back(whole(&DocumentParser::term));
    } while (in_.accept(","));
    in_.expect_line_end();
    return statement;
  }

  Term binary(char op, Term left, Term right) {
    if (++operators_ > kMostOperators) in_.fail_at(left.at, "this term is too long");
    Term term{.kind = Term::Kind::kBinary, .word = std::string(1, op), .at = left.at};
    term.args.push_back(std::move(left));
    term.args.push_back(std::move(right));
    return term;
  }

  Term term() {
    Term left = product();
    while (true) {
      if (in_.accept("+")) {
        left = binary('+', std::move(left), product());
      } else if (in_.accept("-")) {
        left = binary('-', std::move(left), product());
      } else {
        return left;
      }
    }
  }

  Term product() {
    Term left = factor();
    while (true) {
      if (in_.accept("*")) {
        left = binary('*', std::move(left), factor());
      } else if (in_.accept("/")) {
        left = binary('/', std::move(left), factor());
      } else {
        return left;
      }
    }
  }

  Term factor() {
    if (++nesting_ > kDeepestNesting) in_.fail_at(in_.position(), "this is nested too deeply");
    Term result = unnested_factor();
    --nesting_;
    return result;
  }

  Term unnested_factor() {
    in_.skip_blank();
    const Position at = in_.position();
    if (in_.accept("(")) {
      in_.open_bracket();
      Term inner = term();
      in_.close_bracket();
      in_.expect(")", "to close the bracket");
      return inner;
    }
    if (in_.accept("[")) {
      Term list{.kind = Term::Kind::kList, .at = at};
      in_.open_bracket();
      if (!in_.looking_at("]")) {
        do {
          list.args.push_back(term());
        } while (in_.accept(","));
      }
      in_.close_bracket();
      in_.expect("]", "to close the list");
      return list;
    }
    if (in_.accept("-")) {
      Term negated{.kind = Term::Kind::kNegate, .at = at};
      negated.args.push_back(factor());
      return negated;
    }
    if (in_.at_number()) {
      return {.kind = Term::Kind::kNumber, .number = in_.take_number("a number"), .at = at};
    }
    if (in_.peek() == '"') return {.kind = Term::Kind::kText, .word = in_.take_text(), .at = at};
    Term term{.kind = Term::Kind::kName, .at = at};
    term.word = in_.take_name("a name, a number or '('");
    if (in_.accept("^")) {
      term.repeat.push_back(in_.looking_at("(") ? factor() : power());
      if (!in_.looking_at("(")) in_.fail_wanted("'(' after a repetition");
    }
    if (in_.accept("(")) {
      term.kind = Term::Kind::kCall;
      in_.open_bracket();
      if (!in_.looking_at(")")) {
        do {
          argument(term);
        } while (in_.accept(","));
      }
      in_.close_bracket();
      in_.expect(")", "or ',' after an argument");
    }
    return term;
  }

  Term power() {
    const Position at = in_.position();
    if (in_.at_number()) {
      return {.kind = Term::Kind::kNumber, .number = in_.take_number("a count"), .at = at};
    }
    return {.kind = Term::Kind::kName, .word = in_.take_name("how often to repeat"), .at = at};
  }

  void argument(Term& call) {
    in_.skip_blank();
    const Position at = in_.position();
    Term value = term();
    if (value.kind == Term::Kind::kName && in_.accept("=")) {
      for (const auto& [word, earlier] : call.keywords) {
        if (word == value.word) in_.fail_at(at, "'" + word + "' is given twice");
      }
      call.keywords.emplace_back(value.word, conditional());
    } else if (!call.keywords.empty()) {
      in_.fail_at(at, "wanted name=value: arguments by position come before arguments by name");
    } else {
      call.args.push_back(std::move(value));
    }
  }

  Term conditional() {
    Term value = term();
    if (!in_.accept_word("when")) return value;
    Term given{.kind = Term::Kind::kWhen, .at = value.at};
    given.args.push_back(std::move(value));
    given.args.push_back(term());
    return given;
  }

  Cursor in_;
  int nesting_ = 0, operators_ = 0;
};

// Binding strength, so that print writes only the brackets that the grammar needs.
int strength(const Term& term) {
  if (term.kind != Term::Kind::kBinary) return 3;
  return term.word == "+" || term.word == "-" ? 1 : 2;
}

std::string print_inside(const Term& term, int at_least) {
  return strength(term) >= at_least ? print(term) : "(" + print(term) + ")";
}

std::string print_settings(const std::vector<Setting>& settings) {
  std::string out;
  for (const Setting& s : settings) out += " " + s.name + "=" + print_inside(s.value, 2);
  return out + "\n";
}

}  // namespace

Document parse_document(std::string_view text, std::string_view file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // what some editors put first
  return DocumentParser(text, file).parse();
}

Term parse_term(std::string_view text, std::string_view file) {
  return DocumentParser(text, file).parse_one();
}

std::string print(const Term& term) {
  switch (term.kind) {
    case Term::Kind::kNumber:
      return shortest(term.number);
    case Term::Kind::kText:
      return "\"" + term.word + "\"";
    case Term::Kind::kName:
      return term.word;
    case Term::Kind::kNegate:
      return "-" + print_inside(term.args[0], 3);
    case Term::Kind::kBinary: {
      const int own = strength(term);
      const std::string op = own == 1 ? " " + term.word + " " : term.word;
      return print_inside(term.args[0], own) + op + print_inside(term.args[1], own + 1);
    }
    case Term::Kind::kWhen:
      return print(term.args[0]) + " when " + print(term.args[1]);
    case Term::Kind::kCall:
    case Term::Kind::kList:
      break;
  }
  std::vector<std::string> parts;
  for (const Term& arg : term.args) parts.push_back(print(arg));
  if (term.kind == Term::Kind::kList) return "[" + join(parts, ", ") + "]";
  for (const auto& [word, value] : term.keywords) parts.push_back(word + "=" + print(value));
  std::string power;
  for (const Term& count : term.repeat) {
    const bool plain = count.kind == Term::Kind::kName || count.kind == Term::Kind::kNumber;
    power = "^" + (plain ? print(count) : "(" + print(count) + ")");
  }
  return term.word + power + "(" + join(parts, ", ") + ")";
}

std::string print(const Document& document) {
  std::string out;
  if (!document.axes.empty()) out += "axes" + print_settings(document.axes);
  if (!document.numbers.empty()) out += "numbers" + print_settings(document.numbers);
  for (const Preset& p : document.presets) {
    out += "preset " + p.name + ":" + print_settings(p.settings);
  }
  for (const Box& box : document.boxes) {
    std::vector<std::string> formals;
    for (const Formal& f : box.formals) {
      std::vector<std::string> axes;
      for (const Term& axis : f.axes) axes.push_back(print(axis));
      std::string text = f.name;
      if (f.dtype) text += " " + std::string(name(*f.dtype));
      if (!axes.empty()) text += "[" + join(axes, ", ") + "]";
      formals.push_back(text);
    }
    out += "\n" + box.name + " " + join(formals, ", ") + ":\n";
    for (const Statement& s : box.body) {
      std::vector<std::string> values;
      for (const Term& value : s.values) values.push_back(print(value));
      out += "  " + join(s.names, ", ") + " = " + join(values, ", ") + "\n";
    }
  }
  return out;
}

}  // namespace adjoint

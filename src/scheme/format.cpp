#include "scheme/format.h"

#include <algorithm>

namespace adjoint {

namespace {

class FormatParser {
 public:
  explicit FormatParser(Cursor& in) : in_(in) {}

  Format parse() {
    in_.skip_blank();
    format_.at = in_.position();
    format_.kind = in_.take_name("the name of a format");
    do {
      format_.architectures.push_back(in_.take_text());
    } while (!in_.looking_at(":") && in_.looking_at("\""));
    in_.expect(":", "after the architectures of a format");
    in_.expect_line_end();
    for (in_.skip_blank_lines(); !in_.at_end() && in_.position().column > 1;
         in_.skip_blank_lines()) {
      line();
    }
    if (format_.modules.empty()) in_.fail_at(format_.at, "this format names no module");
    return std::move(format_);
  }

 private:
  void line() {
    if (in_.accept_word("field")) {
      field();
    } else if (in_.accept_word("module")) {
      module();
    } else if (in_.accept_word("ignore")) {
      ignore();
    } else if (in_.accept_word("set")) {
      for (Setting& setting : parse_settings(in_)) format_.set.push_back(std::move(setting));
    } else {
      in_.fail_wanted("'field', 'module', 'ignore' or 'set'");
    }
    in_.expect_line_end();
  }

  std::string path() { return in_.take_run(".", "the name of a field"); }

  void field() {
    FormatField field;
    in_.skip_blank();
    field.at = in_.position();
    do {
      const std::string name = path();
      for (const FormatField& other : format_.fields) {
        if (std::count(other.paths.begin(), other.paths.end(), name)) {
          in_.fail_at(field.at, "field '" + name + "' is written twice");
        }
      }
      field.paths.push_back(name);
    } while (in_.accept_word("or"));
    if (in_.accept("[")) {
      if (!in_.accept_word("l")) in_.fail_wanted("'l', which counts the entries of a list");
      in_.expect("<", "before the length of a list");
      field.each.push_back(terms_.whole_term());
      in_.expect("]", "after the length of a list");
    }
    in_.expect("=", "after the name of a field");
    field.value = terms_.whole_value();
    while (!in_.at_line_end()) suffix(field);
    format_.fields.push_back(std::move(field));
  }

  void suffix(FormatField& field) {
    const Position at = in_.position();
    if (in_.accept_word("as")) {
      do {
        field.words.push_back(terms_.whole_product());
      } while (in_.looking_at("\"") || in_.looking_at("true") || in_.looking_at("false"));
    } else if (in_.accept_word("whole")) {
      field.whole = true;
    } else if (in_.accept_word("unwritten")) {
      field.unwritten = true;
    } else if (in_.accept_word("null")) {
      if (!field.null.empty()) in_.fail_at(at, "what null says is said twice");
      field.null.push_back(terms_.whole_term());
    } else if (in_.accept_word("from")) {
      field.before.push_back(terms_.whole_term());
    } else if (in_.accept_word("else")) {
      field.otherwise.push_back(terms_.whole_term());
    } else if (in_.accept_word("if")) {
      if (!field.condition.empty()) in_.fail_at(at, "the condition is said twice");
      field.condition.push_back(terms_.whole_value());
    } else {
      in_.fail_wanted(
          "'as', 'whole', 'from', 'null', 'else', 'if', 'unwritten' or the end of the line");
    }
  }

  void module() {
    FormatModule module;
    in_.skip_blank();
    module.at = in_.position();
    module.ours = in_.take_text();
    in_.expect("=", "after the name of a call");
    module.theirs = in_.take_text();
    module.transposed = in_.accept_word("transposed");
    for (const FormatModule& other : format_.modules) {
      if (other.ours == module.ours) {
        in_.fail_at(module.at, "module '" + module.ours + "' is written twice");
      }
    }
    format_.modules.push_back(std::move(module));
  }

  void ignore() {
    if (in_.accept_word("tensor")) {
      IgnoredTensor tensor{.name = in_.take_text()};
      if (in_.accept_word("when")) tensor.when.push_back(terms_.whole_value());
      format_.ignored_tensors.push_back(std::move(tensor));
      return;
    }
    do {
      format_.ignored.push_back(path());
    } while (!in_.at_line_end());
  }

  Cursor& in_;
  TermParser terms_{in_};
  Format format_;
};

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string print(const FormatField& field) {
  std::string out = "field ";
  for (size_t i = 0; i < field.paths.size(); ++i) out += (i ? " or " : "") + field.paths[i];
  if (!field.each.empty()) out += "[l < " + print(field.each[0]) + "]";
  out += " = " + print(field.value);
  if (!field.words.empty()) out += " as";
  for (const Term& word : field.words) out += " " + print_inside(word, Binding::kProduct);
  if (field.whole) out += " whole";
  for (const Term& term : field.before) out += " from " + print_inside(term, Binding::kSum);
  for (const Term& term : field.null) out += " null " + print_inside(term, Binding::kSum);
  for (const Term& term : field.otherwise) out += " else " + print_inside(term, Binding::kSum);
  for (const Term& term : field.condition) out += " if " + print(term);
  if (field.unwritten) out += " unwritten";
  return out;
}

}  // namespace

Format parse_format(Cursor& in) { return FormatParser(in).parse(); }

std::string print(const Format& format) {
  std::string out = "format " + format.kind;
  for (const std::string& name : format.architectures) out += " " + quoted(name);
  out += ":\n";
  for (const FormatField& field : format.fields) out += "  " + print(field) + "\n";
  for (const FormatModule& module : format.modules) {
    out += "  module " + quoted(module.ours) + " = " + quoted(module.theirs) +
           (module.transposed ? " transposed" : "") + "\n";
  }
  for (const std::string& field : format.ignored) out += "  ignore " + field + "\n";
  for (const IgnoredTensor& tensor : format.ignored_tensors) {
    out += "  ignore tensor " + quoted(tensor.name);
    for (const Term& when : tensor.when) out += " when " + print(when);
    out += "\n";
  }
  if (!format.set.empty()) out += "  set" + print_settings(format.set);
  return out;
}

std::vector<Setting> parse_settings(Cursor& in) {
  TermParser terms(in);
  std::vector<Setting> settings;
  while (!in.at_line_end()) {
    Setting setting;
    setting.at = in.position();
    setting.name = in.take_name("the name of a setting");
    in.expect("=", "after the name of a setting");
    setting.value = terms.whole_product();
    for (const Setting& other : settings) {
      if (other.name == setting.name) {
        in.fail_at(setting.at, "'" + setting.name + "' is set twice");
      }
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

std::string print_settings(const std::vector<Setting>& settings) {
  std::string out;
  for (const Setting& s : settings)
    out += " " + s.name + "=" + print_inside(s.value, Binding::kProduct);
  return out + "\n";
}

}  // namespace adjoint

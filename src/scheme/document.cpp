// Grammar, in the order of the functions below:
//   document  = { "axes" settings | "numbers" settings | "preset" name ":" settings
//               | "use" text | format | box }
// Formats are format.h's, boxes box_parser.h's, terms and values term.h's. A `use` has been
// replaced by the text that it names before a document is parsed (models/library.h): of such a
// piece the boxes are taken, and those settings that the text itself does not have.
#include "scheme/document.h"

#include <algorithm>

#include "base/text.h"
#include "scheme/box_parser.h"

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
      } else if (in_.accept_word("format")) {
        format(document);
      } else if (in_.accept_word("use")) {
        in_.fail_at(at, "a text that uses another is read from a file");
      } else {
        box(document);
      }
    }
    if (!document.box("model")) {
      in_.fail_at(in_.position(), "wanted a box named 'model', found the end of the text");
    }
    return document;
  }

 private:
  void settings(std::vector<Setting>& into) {
    for (Setting& setting : parse_settings(in_)) {
      const auto earlier = std::find_if(into.begin(), into.end(), [&](const Setting& other) {
        return other.name == setting.name;
      });
      if (earlier == into.end()) {
        into.push_back(std::move(setting));
      } else if (earlier->at.file == setting.at.file) {
        in_.fail_at(setting.at, "'" + setting.name + "' is set twice");
      } else if (!setting.at.file) {
        *earlier = std::move(setting);  // the text's own word
      }
    }
  }

  void preset(Document& document) {
    Preset preset;
    in_.skip_blank();
    preset.at = in_.position();
    preset.name = in_.take_run("-.", "the name of a preset");
    const bool of_another = preset.at.file != nullptr;
    if (!of_another && document.preset(preset.name)) {
      in_.fail_at(preset.at, "preset '" + preset.name + "' is written twice");
    }
    in_.expect(":", "after the name of a preset");
    settings(preset.settings);
    if (!of_another) document.presets.push_back(std::move(preset));
  }

  // Formats are of the text's own model, not of one whose boxes it uses.
  void format(Document& document) {
    Format format = parse_format(in_);
    if (format.at.file) return;
    for (const Format& other : document.formats) {
      for (const std::string& name : format.architectures) {
        const auto& theirs = other.architectures;
        if (other.kind == format.kind && std::count(theirs.begin(), theirs.end(), name)) {
          in_.fail_at(format.at,
                      "the " + format.kind + " format of \"" + name + "\" is written twice");
        }
      }
    }
    document.formats.push_back(std::move(format));
  }

  void box(Document& document) {
    Box box = boxes_.box("'axes', 'numbers', 'preset', 'format' or the name of a box");
    const bool is_left_out = box.at.file && box.name == "model";
    if (!is_left_out && document.box(box.name)) {
      in_.fail_at(box.at, "box '" + box.name + "' is written twice");
    }
    if (!is_left_out) document.boxes.push_back(std::move(box));
  }

  Cursor in_;
  BoxParser boxes_{in_};
};

}  // namespace

Document parse_document(std::string_view text, std::string_view file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // what some editors put first
  return DocumentParser(text, file).parse();
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
  for (const Format& format : document.formats) out += "\n" + print(format);
  return out;
}

}  // namespace adjoint

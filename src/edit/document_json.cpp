#include "edit/document_json.h"

#include "models/reads.h"

namespace adjoint {

namespace {

using nlohmann::json;

std::string_view kind_word(Term::Kind kind) {
  switch (kind) {
    case Term::Kind::kNumber:
      return "number";
    case Term::Kind::kName:
      return "name";
    case Term::Kind::kText:
      return "text";
    case Term::Kind::kCall:
      return "call";
    case Term::Kind::kBinary:
      return "binary";
    case Term::Kind::kNegate:
      return "negate";
    case Term::Kind::kNot:
      return "not";
    case Term::Kind::kWhen:
      return "when";
    case Term::Kind::kList:
      return "list";
  }
  return "";
}

// What each name of a box is, by its term.
using Names = std::map<const Term*, const NameUse*>;

json placed(const TextLines& lines, json out, const TextSpan& span) {
  if (span.from.file) {
    out["file"] = *span.from.file;
  } else {
    out["span"] = span_json(lines, span);
  }
  return out;
}

// What a name stands for, for arrows: a value by the statement that made it.
void say_read(json& out, const NameUse& use) {
  switch (use.kind) {
    case NameUse::Kind::kValue:
      if (use.value.statement < 0) {
        out["reads"] = {{"formal", use.value.index}};
      } else {
        out["reads"] = {{"statement", use.value.statement}, {"name", use.value.index}};
      }
      return;
    case NameUse::Kind::kNumber:
      out["is"] = "number";
      return;
    case NameUse::Kind::kLabel:
      out["is"] = "label";
      return;
    case NameUse::Kind::kCallName:
      out["is"] = "call";
      return;
    case NameUse::Kind::kWord:
      out["is"] = "word";
  }
}

json written(const TextLines& lines, const Document* document, const Names& names,
             const Term& term) {
  const auto inner = [&](const Term& part) { return written(lines, document, names, part); };
  json out = {{"kind", kind_word(term.kind)}, {"text", print(term)}};
  if (term.kind == Term::Kind::kNumber) {
    out["number"] = term.number;
  } else if (!term.word.empty()) {
    out["word"] = term.word;
  }
  for (const Term& arg : term.args) out["args"].push_back(inner(arg));
  for (const auto& [word, value] : term.keywords) {
    out["keywords"].push_back(
        placed(lines, {{"name", word}, {"value", inner(value)}}, {value.named, value.whole.to}));
  }
  if (!term.repeat.empty()) out["repeat"] = inner(term.repeat[0]);
  if (term.kind == Term::Kind::kCall && document && document->box(term.word)) out["box"] = true;
  if (const auto name = names.find(&term); name != names.end()) say_read(out, *name->second);
  return placed(lines, std::move(out), term.span);
}

class DocumentWriter {
 public:
  DocumentWriter(const Document& document, std::string_view text)
      : document_(document), text_(text), lines_(text) {}

  json write() {
    json presets = json::array(), boxes = json::array(), formats = json::array();
    for (const Preset& p : document_.presets) {
      TextSpan span{p.at, p.at};
      span.to.column += static_cast<int>(p.name.size());
      if (!p.settings.empty()) span.to = span_of(p.settings.back()).to;
      presets.push_back(
          placed(lines_, {{"name", p.name}, {"settings", settings(p.settings)}}, span));
    }
    for (const Box& b : document_.boxes) boxes.push_back(box(b));
    for (const Format& f : document_.formats) {
      formats.push_back(
          {{"kind", f.kind}, {"architectures", f.architectures}, {"line", f.at.line}});
    }
    return {{"axes", settings(document_.axes)},
            {"numbers", settings(document_.numbers)},
            {"presets", presets},
            {"boxes", boxes},
            {"formats", formats}};
  }

 private:
  json term(const Term& term) const { return written(lines_, &document_, names_, term); }

  json settings(const std::vector<Setting>& all) const {
    json out = json::array();
    for (const Setting& s : all) {
      out.push_back(placed(lines_, {{"name", s.name}, {"value", term(s.value)}}, span_of(s)));
    }
    return out;
  }

  json box(const Box& b) {
    const std::vector<NameUse> uses = names_of(document_, b);
    for (const NameUse& use : uses) names_[use.term] = &use;
    json formals = json::array(), statements = json::array();
    for (const Formal& f : b.formals) {
      json one = {{"name", f.name}, {"axes", json::array()}};
      if (f.dtype) one["dtype"] = name(*f.dtype);
      for (const Term& axis : f.axes) one["axes"].push_back(term(axis));
      formals.push_back(placed(lines_, std::move(one), {f.at, f.end}));
    }
    for (const Statement& s : b.body) {
      json one = {{"names", s.names}, {"values", json::array()}};
      for (const TextRange& r : name_ranges(lines_, text_, s)) {
        one["name_spans"].push_back({{"from", r.from}, {"to", r.to}});
      }
      for (const Term& value : s.values) one["values"].push_back(term(value));
      statements.push_back(placed(lines_, std::move(one), span_of(s)));
    }
    names_.clear();
    return placed(lines_, {{"name", b.name}, {"formals", formals}, {"statements", statements}},
                  span_of(b));
  }

  const Document& document_;
  std::string_view text_;
  TextLines lines_;
  Names names_;
};

}  // namespace

TextSpan span_of(const Statement& s) { return {s.at, s.values.back().whole.to}; }
TextSpan span_of(const Setting& s) { return {s.at, s.value.whole.to}; }
TextSpan span_of(const Box& b) { return {b.at, span_of(b.body.back()).to}; }

nlohmann::json span_json(const TextLines& lines, const TextSpan& span) {
  const auto range = lines.range(span);
  if (!range) return nullptr;
  return {{"from", range->from},
          {"to", range->to},
          {"line", span.from.line},
          {"column", span.from.column}};
}

std::vector<TextRange> name_ranges(const TextLines& lines, std::string_view text,
                                   const Statement& s) {
  const auto from = lines.offset(s.at);
  if (!from) return {};
  std::vector<TextRange> ranges;
  size_t at = *from;
  for (const std::string& name : s.names) {
    at = text.find(name, at);
    if (at == text.npos) return {};
    ranges.push_back({at, at + name.size()});
    at += name.size();
  }
  return ranges;
}

nlohmann::json term_json(const TextLines& lines, const Term& term) {
  return written(lines, nullptr, {}, term);
}

nlohmann::json document_json(const Document& document, std::string_view text) {
  return DocumentWriter(document, text).write();
}

}  // namespace adjoint

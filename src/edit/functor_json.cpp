#include "edit/functor_json.h"

#include "edit/document_json.h"

namespace adjoint {

namespace {

using nlohmann::json;

std::string clause_text(const Clause& c) {
  std::string out = c.negated ? "not " : "";
  switch (c.kind) {
    case Clause::Kind::kIs:
      break;
    case Clause::Kind::kOf:
      out += "of ";
      break;
    case Clause::Kind::kInside:
      out += "inside ";
      break;
    case Clause::Kind::kOutside:
      out += "outside ";
      break;
    case Clause::Kind::kChainState:
      return "in chain";
    case Clause::Kind::kMade:
      out += "made";
      break;
    case Clause::Kind::kMadeHere:
      out += c.word.empty() ? "made here" : "made here as ";
  }
  out += c.word;
  return c.variable.empty() ? out : out + "(" + c.variable + ")";
}

json clauses(const std::vector<Clause>& all) {
  json out = json::array();
  for (const Clause& c : all) out.push_back(clause_text(c));
  return out;
}

class FunctorWriter {
 public:
  FunctorWriter(const FunctorText& functor, std::string_view text)
      : functor_(functor), text_(text), lines_(text) {}

  json write() const {
    json params = json::array(), rules = json::array(), parts = json::array();
    for (size_t i = 0; i < functor_.params.size(); ++i) {
      const FunctorParam& p = functor_.params[i];
      const ParamPlace& place = functor_.param_places[i];
      json one = {{"name", p.name}, {"words", p.words}, {"span", span_json(lines_, place.whole)}};
      one["default"] = p.otherwise.empty() ? json() : json(p.otherwise);
      if (!p.otherwise.empty()) one["default_span"] = span_json(lines_, place.otherwise);
      params.push_back(std::move(one));
    }
    for (const FunctorLine& line : functor_.lines) rules.push_back(rule(line));
    for (const StackPart& part : functor_.parts) {
      parts.push_back({{"name", part.name},
                       {"off", part.off},
                       {"text", print(part.call)},
                       {"call", term_json(lines_, part.call)},
                       {"span", span_json(lines_, part.call.span)}});
    }
    json out = {{"name", functor_.name},
                {"summary", functor_.summary},
                {"default", functor_.by_default},
                {"params", params},
                {"rules", rules}};
    out["law"] = functor_.says_law ? json(name(functor_.law)) : json();
    std::string against = functor_.against ? print(*functor_.against) : "";
    if (functor_.against_when) against += " when " + print(*functor_.against_when);
    out["against"] = std::move(against);
    if (!parts.empty()) out["stack"] = parts;
    return out;
  }

 private:
  std::string slice(const TextSpan& span) const {
    const auto range = lines_.range(span);
    return range ? std::string(text_.substr(range->from, range->to - range->from)) : "";
  }

  json rule(const FunctorLine& line) const {
    json out = {{"kind", line.kind},
                {"index", line.index},
                {"text", slice(line.span)},
                {"span", span_json(lines_, line.span)}};
    if (line.right.to.line > 0) {
      out["left"] = {{"text", slice(line.left)}, {"span", span_json(lines_, line.left)}};
      out["right"] = {{"text", slice(line.right)}, {"span", span_json(lines_, line.right)}};
    }
    if (line.kind == "object") say(out, functor_.objects[line.index]);
    if (line.kind == "morphism") say(out, functor_.morphisms[line.index]);
    if (line.kind == "state") say(out, functor_.states[line.index]);
    if (line.kind == "let") say(out, functor_.lets[line.index]);
    if (line.kind == "require") {
      const Requirement& r = functor_.requirements[line.index];
      out["when"] = term_json(lines_, r.condition);
      out["message"] = r.message;
    }
    return out;
  }

  json condition(const Condition& when) const { return when ? term_json(lines_, *when) : json(); }

  void say(json& out, const ObjectRule& rule) const {
    out["selector"] = clauses(rule.selector);
    if (!rule.index.empty()) out["state_index"] = rule.index;
    for (const Choice& choice : rule.choices) {
      json values = json::array();
      for (const AttributeValue& value : choice.values) {
        json one = {{"attribute", value.attribute}, {"text", print(value)}};
        if (!value.number.empty()) one["number"] = term_json(lines_, value.number[0]);
        values.push_back(std::move(one));
      }
      out["choices"].push_back({{"values", values}, {"when", condition(choice.when)}});
    }
    if (!rule.refusal.empty()) out["refusal"] = rule.refusal;
  }

  void say(json& out, const MorphismRule& rule) const {
    out["result"] = rule.result;
    out["op"] = rule.op;
    out["operands"] = rule.operands;
    out["selector"] = clauses(rule.where);
    out["when"] = condition(rule.when);
    say_right(out, rule.statements, rule.replacement);
  }

  void say(json& out, const StateRule& rule) const {
    out["name"] = rule.name;
    out["selector"] = clauses(rule.selector);
    if (!rule.begins.empty()) out["begins"] = term_json(lines_, rule.begins[0]);
    if (!rule.every.empty()) out["every"] = term_json(lines_, rule.every[0]);
    say_right(out, rule.statements, rule.value);
  }

  void say(json& out, const Let& let) const {
    out["name"] = let.name;
    for (const auto& [value, when] : let.choices) {
      out["choices"].push_back({{"value", term_json(lines_, value)}, {"when", condition(when)}});
    }
  }

  void say_right(json& out, const std::vector<Statement>& statements, const Term& value) const {
    out["statements"] = json::array();
    for (const Statement& s : statements) {
      json one = {{"names", s.names}, {"span", span_json(lines_, span_of(s))}};
      for (const Term& term : s.values) one["values"].push_back(term_json(lines_, term));
      out["statements"].push_back(std::move(one));
    }
    out["becomes"] = term_json(lines_, value);
  }

  const FunctorText& functor_;
  std::string_view text_;
  TextLines lines_;
};

}  // namespace

nlohmann::json functor_json(const FunctorText& functor, std::string_view text) {
  return FunctorWriter(functor, text).write();
}

nlohmann::json functor_json(std::string_view text, std::string_view file) {
  return functor_json(parse_functor_text(text, file), text);
}

}  // namespace adjoint

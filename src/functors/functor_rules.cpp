// Rules of a functor's text: what they find, when, and what it becomes.
#include <algorithm>
#include <cctype>

#include "analysis/roles.h"
#include "base/text.h"
#include "functors/functor_parser.h"
#include "ops/op_def.h"
#include "ops/words.h"

namespace adjoint {

namespace {

struct AttributeWord {
  std::string_view word, attribute;
};
constexpr AttributeWord kAttributeWords[] = {
    {"kept", "residence"},  {"recomputed", "residence"},
    {"apart", "residence"}, {"bf16", "precision"},
    {"f16", "precision"},   {"f32", "precision"},
    {"tf32", "precision"},  {"host", "tier"},
    {"device", "tier"},     {"frozen", "frozen"},
    {"trained", "frozen"},  {"dyn8", "precision"},
};

}  // namespace

std::string_view mesh_axis_of(const AttributeValue& value) {
  constexpr std::string_view kPlacement = "placement/";
  std::string_view attribute = value.attribute;
  if (!attribute.starts_with(kPlacement)) return "";
  return attribute.substr(kPlacement.size());
}

std::vector<std::string> axis_words() {
  return {"samples", "positions", "heads", "classes", "out", "in"};
}

std::string print(const AttributeValue& value) {
  if (const std::string_view mesh = mesh_axis_of(value); !mesh.empty()) {
    const std::string along = value.along.empty() ? "" : " along " + value.along;
    return value.word + along + " over " + std::string(mesh);
  }
  if (value.attribute == "parts") return "in parts";
  if (value.attribute == "parts again") return "in parts again";
  if (value.attribute == "stage") return "on stage";
  if (value.attribute == "optimizer") return "optimizer " + value.word;
  if (value.attribute == "clipped") return "clipped as " + value.word;
  return value.number.empty() ? value.word : value.attribute + " " + print(value.number[0]);
}

// In a rule `l` is the block of what the rule finds, unless the functor has its own l.
void FunctorParser::begin_rule() {
  const std::vector<std::string> names = known_names();
  knows_block_ = std::find(names.begin(), names.end(), kBlockNumber) == names.end();
  speaks_of_block_ = false;
}

bool FunctorParser::end_rule() {
  knows_block_ = false;
  index_.clear();
  return speaks_of_block_;
}

void FunctorParser::object_rule(Position at) {
  ObjectRule rule{.selector = {}, .choices = {}, .at = at};
  begin_rule();
  // x_l in chain: the states of the chain, l the number of one.
  in_.skip_blank();
  if (in_.peek(1) == '_' && std::isalpha(static_cast<unsigned char>(in_.peek(2)))) {
    const Position where = in_.position();
    const std::string state = in_.take_name("a state");
    if (state.size() != 3) in_.fail_at(where, "wanted x_l, found '" + state + "'");
    rule.index = state.substr(2);
    if (!in_.accept_word("in") || !in_.accept_word("chain")) in_.fail_wanted("'in chain'");
    rule.selector.push_back({.kind = Clause::Kind::kChainState, .at = where});
    index_ = rule.index;
    knows_block_ = false;
  }
  selector("what an object is", rule.selector);
  arrow();
  do {
    if (!rule.choices.empty() && in_.accept_word("or")) {
      refusal(rule);
      break;
    }
    if (!rule.choices.empty()) expect_else();
    Choice choice;
    do {
      choice.values.push_back(attribute_value());
      check_once(choice.values);
    } while (in_.accept_word("and"));
    if (in_.accept_word("unless")) exceptions(rule.unless, choice.values.back());
    choice.when = when();
    rule.choices.push_back(std::move(choice));
  } while (in_.accept(","));
  rule.by_block = end_rule();
  result_.objects.push_back(std::move(rule));
}

// or refuse "a sentence", of states of the chain: for where another functor says otherwise.
void FunctorParser::refusal(ObjectRule& rule) {
  if (rule.index.empty()) in_.fail_wanted("'else': only a rule about x_l in chain may refuse");
  if (!in_.accept_word("refuse")) in_.fail_wanted("'refuse' and a sentence");
  in_.skip_blank();
  const Position at = in_.position();
  rule.refusal = in_.take_text();
  check_message(rule.refusal, at, {"other", "wanted", "kept", "segment", "most"});
}

// unless made or trained; unless made here; of what is trained, unless frozen; of what is kept,
// unless recomputed.
void FunctorParser::exceptions(Exceptions& unless, const AttributeValue& value) {
  const bool residence = value.attribute == "residence" && value.word == "kept";
  const std::string other = residence                     ? "recomputed"
                            : value.attribute != "frozen" ? ""
                            : value.word == "frozen"      ? "trained"
                                                          : "frozen";
  do {
    if (in_.accept_word("made")) {
      (in_.accept_word("here") ? unless.made_here : unless.made) = true;
    } else if (!other.empty() && in_.accept_word(other)) {
      unless.yields = true;
    } else {
      in_.fail_wanted("'made', 'made here'" + (other.empty() ? "" : " or '" + other + "'") +
                      " after 'unless'");
    }
  } while (in_.accept_word("or"));
}

// -> on this line or on the next.
void FunctorParser::arrow() {
  const Position left_end = in_.last();
  if (!in_.looking_at("->")) in_.skip_blank_lines();
  in_.expect("->", "and what it becomes");
  in_.skip_blank();
  arrow_ = {left_end, in_.position()};
}

void FunctorParser::check_once(const std::vector<AttributeValue>& values) const {
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    if (values[i].attribute != values.back().attribute) continue;
    in_.fail_at(values.back().at, "one rule says '" + print(values[i]) + "' and '" +
                                      print(values.back()) + "' of an object; say one of them");
  }
}

AttributeValue FunctorParser::attribute_value() {
  in_.skip_blank();
  const Position at = in_.position();
  for (const char* attribute : {"rate", "decay"}) {
    if (in_.accept_word(attribute)) return {attribute, "", {number_term()}, at};
  }
  if (in_.accept_word("optimizer")) {
    in_.skip_blank();
    const Position where = in_.position();
    const std::string word = in_.take_name("an optimizer");
    check_word(where, word, optimizer_names(), "an optimizer");
    for (const FunctorParam& p : result_.params) {
      if (p.name == word && p.list) {
        in_.fail_at(where, "wanted one optimizer, found '" + word + "', a list");
      }
    }
    return {"optimizer", word, {}, at};
  }
  if (in_.accept_word("clipped")) {
    if (!in_.accept_word("as")) in_.fail_wanted("'as' and the name of a group");
    return {"clipped", in_.take_name("the name of a group"), {}, at};
  }
  if (in_.accept_word("in")) {
    AttributeValue value{"parts", "", {number_term()}, at};
    if (!in_.accept_word("parts")) in_.fail_wanted("'parts'");
    if (in_.accept_word("again")) value.attribute = "parts again";
    return value;
  }
  if (in_.accept_word("on")) {
    if (!in_.accept_word("stage")) in_.fail_wanted("'stage' and its number");
    return {"stage", "", {number_term()}, at};
  }
  if (in_.accept_word("summed")) {
    const bool said = in_.accept_word("use") && in_.accept_word("by") && in_.accept_word("use");
    if (!said) in_.fail_wanted("'use by use'");
    return {"sums", "summed use by use", {}, at};
  }
  const std::string word = in_.take_name("what it becomes");
  if (word == "sharded" || word == "replicated") return placement(word, at);
  std::vector<std::string> known = {"in n parts",   "on stage",        "summed use by use",
                                    "sharded over", "replicated over", "rate",
                                    "decay",        "optimizer",       "clipped as"};
  if (word == "bf16" && in_.accept_word("stochastic")) {
    return {"precision", "bf16/stochastic", {}, at};
  }
  for (const AttributeWord& w : kAttributeWords) {
    if (w.word == word) return {std::string(w.attribute), word, {}, at};
    known.emplace_back(w.word);
  }
  in_.fail_at(at, "wanted what an object can become (" + join(known, ", ") + "), found '" + word +
                      "'" + did_you_mean(word, known));
}

// sharded [along samples] over data, replicated over data
AttributeValue FunctorParser::placement(const std::string& word, Position at) {
  AttributeValue value{.attribute = {}, .word = word, .at = at};
  if (word == "sharded" && in_.accept_word("along")) {
    in_.skip_blank();
    const Position where = in_.position();
    value.along = in_.take_name("an axis of the object");
    const std::vector<std::string> known = axis_words();
    if (std::find(known.begin(), known.end(), value.along) == known.end()) {
      in_.fail_at(where, "wanted an axis of the object (" + join(known, ", ") + "), found '" +
                             value.along + "'" + did_you_mean(value.along, known));
    }
  }
  if (!in_.accept_word("over")) {
    in_.fail_wanted(word == "sharded" && value.along.empty()
                        ? "'along' and an axis of the object, or 'over' and an axis of the mesh"
                        : "'over' and an axis of the mesh");
  }
  value.attribute = "placement/" + in_.take_name("an axis of the mesh");
  return value;
}

void FunctorParser::morphism_rule(Position at) {
  MorphismRule rule{.result = {}, .op = {}, .operands = {}, .replacement = {}, .at = at};
  std::vector<std::string> names;
  const auto variable = [&](std::string_view what) {
    in_.skip_blank();
    const Position where = in_.position();
    names.push_back(in_.take_name(what));
    if (std::count(names.begin(), names.end(), names.back()) > 1) {
      in_.fail_at(where, "'" + names.back() + "' is there twice in this rule");
    }
    return names.back();
  };
  rule.result = variable("the name of the result");
  in_.expect("=", "after the name of the result");
  in_.skip_blank();
  const Position where = in_.position();
  rule.op = in_.take_name("an op");
  if (!find_op(rule.op)) {
    if (find_word(rule.op)) {
      in_.fail_at(where, "'" + rule.op + "' is a word of models that is made of other ops, so no " +
                             "rule can match it; match those (adjoint show prints them)");
    }
    std::vector<std::string> ops;
    for (const OpDef* op : all_ops()) ops.emplace_back(op->name);
    in_.fail_at(where, "there is no op '" + rule.op + "'" + did_you_mean(rule.op, ops));
  }
  in_.expect("(", "after the op");
  do {
    rule.operands.push_back(variable("the name of an operand"));
  } while (in_.accept(","));
  in_.expect(")", "after the operands");
  if (in_.accept_word("where")) {
    do {
      rule.where.push_back(where_clause(rule));
    } while (in_.accept(","));
  }
  begin_rule();
  knows_training_ = true;
  rule.when = when();
  knows_training_ = false;
  const bool below = in_.at_line_end();
  if (below) rule.expectations = expectations(names);
  rule.replacement = right_side(rule.statements, names, below);
  rule.by_block = end_rule();
  result_.morphisms.push_back(std::move(rule));
}

// state average of trained, inside chain -> d*average + (1 - d)*parameter
void FunctorParser::state_rule(Position at) {
  StateRule rule{.name = {}, .at = at};
  begin_rule();
  in_.skip_blank();
  const Position where = in_.position();
  rule.name = in_.take_name("the name of the state");
  std::vector<std::string> names = {std::string(kParameterAfter), std::string(kStepsTaken)};
  std::vector<std::string> taken = names;
  for (const StateRule& earlier : result_.states) taken.push_back(earlier.name);
  check_is_free(where, rule.name, taken);
  names.push_back(rule.name);
  if (!in_.accept_word("of")) in_.fail_wanted("'of' and which parameters it follows");
  selector("which parameters it follows", rule.selector);
  if (in_.accept("=")) rule.begins.push_back(number_term());
  if (in_.accept_word("every")) rule.every.push_back(number_term());
  rule.value = right_side(rule.statements, names);
  rule.by_block = end_rule();
  result_.states.push_back(std::move(rule));
}

// Lines `expect rank <= width(x), else "..."` below the head of a rule.
std::vector<Requirement> FunctorParser::expectations(const std::vector<std::string>& variables) {
  std::vector<Requirement> all;
  std::vector<std::string> widths;
  for (const std::string& variable : variables) widths.push_back("width(" + variable + ")");
  sized_ = variables;
  for (in_.skip_blank_lines(); in_.accept_word("expect"); in_.skip_blank_lines()) {
    all.push_back(requirement(widths));
    in_.expect_line_end();
  }
  sized_.clear();
  return all;
}

// Statements, the arrow and the term behind it.
Term FunctorParser::right_side(std::vector<Statement>& before, std::vector<std::string>& names,
                               bool below) {
  before = statements(names, below);
  arrow();
  Term term = terms_.whole_value();
  note_blocks(term, names);
  check_statements_are_used(before, term);
  return term;
}

// Lines `V = W + ...` between the head of a rule and its arrow.
std::vector<Statement> FunctorParser::statements(std::vector<std::string>& names, bool below) {
  std::vector<Statement> all;
  if (in_.looking_at("->") || (!below && !in_.at_line_end())) return all;
  for (in_.skip_blank_lines(); at_statement(); in_.skip_blank_lines()) {
    Statement statement{.names = {}, .values = {}, .at = in_.position()};
    do {
      in_.skip_blank();
      const Position where = in_.position();
      const std::string name = in_.take_name("the name of a result");
      check_is_free(where, name, names);
      check_is_free(where, name, statement.names);
      statement.names.push_back(name);
    } while (in_.accept(","));
    in_.expect("=", "after the names of the results");
    do {
      statement.values.push_back(terms_.whole_value());
      note_blocks(statement.values.back(), names);
    } while (in_.accept(","));
    in_.expect_line_end();
    names.insert(names.end(), statement.names.begin(), statement.names.end());
    all.push_back(std::move(statement));
  }
  return all;
}

// A name and `=`, or a name and `,`.
bool FunctorParser::at_statement() const {
  size_t ahead = 0;
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  if (!in_name(in_.peek()) || in_.position().column == 1) return false;
  while (in_name(in_.peek(ahead))) ++ahead;
  while (in_.peek(ahead) == ' ') ++ahead;
  return in_.peek(ahead) == ',' || (in_.peek(ahead) == '=' && in_.peek(ahead + 1) != '=');
}

// A parameter that nothing reads could not be trained.
void FunctorParser::check_statements_are_used(const std::vector<Statement>& all,
                                              const Term& result) const {
  for (size_t i = 0; i < all.size(); ++i) {
    for (const std::string& name : all[i].names) {
      bool used = mentions(result, name);
      for (size_t k = i + 1; k < all.size(); ++k) {
        for (const Term& value : all[k].values) used = used || mentions(value, name);
      }
      if (!used) in_.fail_at(all[i].at, "nothing below uses '" + name + "'");
    }
  }
}

// Does a right side speak of the block? Its names are the rule's own variables first.
void FunctorParser::note_blocks(const Term& term, const std::vector<std::string>& variables) {
  const bool is_variable =
      std::find(variables.begin(), variables.end(), kBlockNumber) != variables.end();
  if (knows_block_ && !is_variable && mentions(term, kBlockNumber)) speaks_of_block_ = true;
}

// What objects a rule finds: clauses, with or without commas, up to the arrow or the line's end.
void FunctorParser::selector(std::string_view what, std::vector<Clause>& clauses) {
  const auto at_its_end = [&] {
    return in_.looking_at("->") || in_.at_line_end() || in_.looking_at("=") ||
           in_.looking_at("every ");
  };
  while (clauses.empty() || !at_its_end()) {
    if (!clauses.empty()) in_.accept(",");
    clauses.push_back(clause(what));
    check_clause(clauses.back(), object_words(), "what an object is");
  }
}

// [not] inside block, outside chain, of norm, or a word that says what it is.
Clause FunctorParser::clause(std::string_view what) {
  Clause c;
  in_.skip_blank();
  c.at = in_.position();
  c.negated = in_.accept_word("not");
  if (in_.accept_word("made")) {
    c.kind = in_.accept_word("here") ? Clause::Kind::kMadeHere : Clause::Kind::kMade;
    if (c.kind == Clause::Kind::kMadeHere && in_.accept_word("as"))
      c.word = in_.take_name("the name of what the functor made");
    return c;
  }
  if (in_.accept_word("inside")) {
    c.kind = Clause::Kind::kInside;
  } else if (in_.accept_word("outside")) {
    c.kind = Clause::Kind::kOutside;
  } else if (in_.accept_word("of")) {
    c.kind = Clause::Kind::kOf;
  }
  in_.skip_blank();
  if (c.negated || c.kind != Clause::Kind::kIs) c.at = in_.position();
  c.word = in_.take_name(what);
  return c;
}

void FunctorParser::check_clause(const Clause& c, std::vector<std::string> words,
                                 std::string_view what) const {
  switch (c.kind) {
    case Clause::Kind::kInside:
    case Clause::Kind::kOutside:
      return check_word(c.at, c.word, region_words(), "a region");
    case Clause::Kind::kOf: {
      const std::vector<std::string> uses = of_words();
      words.insert(words.begin(), uses.begin(), uses.end());
      return check_word(c.at, c.word, words, "what it belongs to");
    }
    case Clause::Kind::kMade:
    case Clause::Kind::kMadeHere:
      return;
    default:
      check_is_not_of(c, words, what);
      return check_word(c.at, c.word, words, what);
  }
}

// `object parameter, attention`: what something belongs to, without its `of`.
void FunctorParser::check_is_not_of(const Clause& c, const std::vector<std::string>& words,
                                    std::string_view what) const {
  const auto is_in = [&](const std::vector<std::string>& all) {
    return std::find(all.begin(), all.end(), c.word) != all.end();
  };
  const auto is_it = [&](const FunctorParam& p) { return p.name == c.word; };
  const bool is_param = std::any_of(result_.params.begin(), result_.params.end(), is_it);
  if (is_param || is_in(words) || !is_in(of_words())) return;
  in_.fail_at(c.at, "wanted " + std::string(what) + " (" + join(words, ", ") + "), found '" +
                        c.word + "'; did you mean 'of " + c.word + "'?");
}

// inside chain, attention_in, or parameter(W), which speaks of an operand.
Clause FunctorParser::where_clause(const MorphismRule& rule) {
  Clause c = clause("what it is");
  if (c.kind == Clause::Kind::kMadeHere) {
    in_.fail_at(c.at,
                "wanted what a morphism is, found 'made here': a rule never finds what its "
                "own functor made");
  }
  if (c.kind == Clause::Kind::kMade && !in_.looking_at("(")) {
    in_.fail_wanted("'(' and an operand after 'made'");
  }
  if (!in_.accept("(")) {
    check_clause(c, morphism_words(), "what a morphism is");
    return c;
  }
  check_clause(c, object_words(), "what an operand is");
  in_.skip_blank();
  const Position at = in_.position();
  c.variable = in_.take_name("an operand");
  const auto& names = rule.operands;
  if (std::find(names.begin(), names.end(), c.variable) == names.end()) {
    in_.fail_at(at, "there is no operand '" + c.variable + "' in this rule" +
                        did_you_mean(c.variable, names));
  }
  in_.expect(")", "after the operand");
  return c;
}

// A word of a vocabulary, or the name of a parameter whose values are words of it.
void FunctorParser::check_word(Position at, const std::string& word,
                               const std::vector<std::string>& known, std::string_view what) const {
  std::vector<std::string> all = known;
  for (const FunctorParam& p : result_.params) {
    all.push_back(p.name);
    if (p.name != word) continue;
    if (p.words.empty()) {
      in_.fail_at(at, "wanted " + std::string(what) + ", found '" + word + "', a number");
    }
    for (const std::string& value : p.words) {
      if (value == "all" || std::find(known.begin(), known.end(), value) != known.end()) continue;
      in_.fail_at(at, "'" + word + "' may be '" + value + "', which is not " + std::string(what) +
                          " (" + join(known, ", ") + ")" + did_you_mean(value, known));
    }
  }
  if (std::find(all.begin(), all.end(), word) == all.end()) {
    in_.fail_at(at, "wanted " + std::string(what) + " (" + join(known, ", ") + "), found '" + word +
                        "'" + did_you_mean(word, all));
  }
}

}  // namespace adjoint

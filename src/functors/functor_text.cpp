#include "functors/functor_text.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "analysis/roles.h"
#include "base/text.h"
#include "models/settings.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// How strongly a condition binds: `or` least, then `and`, then `not`. A list of one is its element.
int strength_of(const Condition& c) {
  const bool joins = c.kind == Condition::Kind::kAny || c.kind == Condition::Kind::kAll;
  if (joins && c.parts.size() == 1) return strength_of(c.parts[0]);
  return c.kind == Condition::Kind::kAny ? 1 : c.kind == Condition::Kind::kAll ? 2 : 3;
}

}  // namespace

bool mentions(const Term& term, std::string_view name) {
  const auto in = [&](const Term& part) { return mentions(part, name); };
  return (term.kind == Term::Kind::kName && term.word == name) ||
         std::any_of(term.args.begin(), term.args.end(), in) ||
         std::any_of(term.keywords.begin(), term.keywords.end(),
                     [&](const auto& keyword) { return in(keyword.second); });
}

std::string print(const Condition& c) {
  const int own = c.kind == Condition::Kind::kNot ? 3 : strength_of(c);
  std::vector<std::string> parts;
  for (const Condition& part : c.parts) {
    parts.push_back(strength_of(part) < own ? "(" + print(part) + ")" : print(part));
  }
  switch (c.kind) {
    case Condition::Kind::kAll:
      return join(parts, " and ");
    case Condition::Kind::kAny:
      return join(parts, " or ");
    case Condition::Kind::kNot:
      return "not " + parts[0];
    case Condition::Kind::kNumber:
      return "number(" + print(c.terms[0]) + ")";
    case Condition::Kind::kIn:
      return print(c.terms[0]) + " in " + print(c.terms[1]);
    case Condition::Kind::kCompare:
      break;
  }
  return print(c.terms[0]) + " " + c.relation + " " + print(c.terms[1]);
}

std::string print(const AttributeValue& value) {
  if (value.attribute == "parts") return "in parts";
  if (value.attribute == "optimizer") return "optimizer " + value.word;
  if (value.attribute == "clipped") return "clipped as " + value.word;
  return value.number.empty() ? value.word : value.attribute + " " + print(value.number[0]);
}

namespace {

constexpr int kDeepestCondition = 100;  // brackets and nots: more is a mistake

struct Word {
  std::string_view word, attribute;
};
constexpr Word kValues[] = {
    {"kept", "residence"},  {"recomputed", "residence"},
    {"apart", "residence"}, {"bf16", "precision"},
    {"f16", "precision"},   {"f32", "precision"},
    {"tf32", "precision"},  {"host", "tier"},
    {"device", "tier"},     {"frozen", "frozen"},
    {"trained", "frozen"},  {"dyn8", "precision"},
};

class FunctorParser {
 public:
  FunctorParser(std::string_view text, std::string_view file) : in_(text, file), whole_(text) {
    result_.file = file;
  }

  FunctorText parse() {
    in_.skip_blank_lines();
    result_.summary = comment_above();
    if (!in_.accept_word("functor")) in_.fail_wanted("'functor' to begin a functor");
    result_.name = in_.take_name("the name of the functor");
    if (in_.accept("(")) params();
    if (in_.accept("=")) return stack_of_others();
    in_.expect(":", "or '=' after the head of a functor");
    in_.expect_line_end();
    for (in_.skip_blank_lines(); !in_.at_end(); in_.skip_blank_lines()) {
      const Position at = in_.position();
      if (at.column == 1) in_.fail_at(at, "wanted an indented line of the functor");
      if (in_.accept_word("law")) {
        law(at);
      } else if (in_.accept_word("default")) {
        result_.by_default = true;
      } else if (in_.accept_word("let")) {
        let();
      } else if (in_.accept_word("require")) {
        requirement();
      } else if (in_.accept_word("object")) {
        object_rule(at);
      } else if (in_.accept_word("morphism")) {
        morphism_rule(at);
      } else if (in_.accept_word("state")) {
        state_rule(at);
      } else {
        in_.fail_wanted("law, default, let, require, object, morphism or state");
      }
      in_.expect_line_end();
    }
    if (!result_.says_law)
      in_.fail_wanted("a line 'law exact', 'law reassociating' or 'law approximating'");
    if (result_.objects.empty() && result_.morphisms.empty() && result_.states.empty()) {
      in_.fail_wanted("a rule: a line that begins with 'object', 'morphism' or 'state'");
    }
    return std::move(result_);
  }

 private:
  // = quantize(nf4) | lora(rank) | -fuse, on one line or several; then a law, or nothing.
  FunctorText stack_of_others() {
    do {
      in_.skip_blank_lines();
      result_.parts.push_back(part());
      if (in_.at_line_end()) in_.skip_blank_lines();
    } while (in_.accept("|"));
    for (; !in_.at_end(); in_.skip_blank_lines()) {
      const Position at = in_.position();
      if (at.column == 1) in_.fail_at(at, "wanted an indented line of the functor");
      if (!in_.accept_word("law")) in_.fail_wanted("'|' and a functor, or a law");
      law(at);
      in_.expect_line_end();
    }
    return std::move(result_);
  }

  StackPart part() {
    in_.skip_blank();
    StackPart part{.name = {}, .file = result_.file, .at = in_.position()};
    if (part.at.column == 1) in_.fail_at(part.at, "wanted an indented line of the functor");
    part.off = in_.accept("-");
    if (!in_.at_name()) in_.fail_wanted("a functor");
    part.call = terms_.whole_term();
    part.name = part.call.word;
    const bool is_item = part.call.kind == Term::Kind::kName || part.call.kind == Term::Kind::kCall;
    if (!is_item || !part.call.repeat.empty()) {
      in_.fail_at(part.at, "wanted a functor, found '" + print(part.call) + "'");
    }
    if (in_.peek() == '.' || in_.peek() == '/') {
      in_.fail_at(part.at,
                  "a stack inside a functor names functors that travel with the program, "
                  "found a file");
    }
    if (part.off && part.call.kind == Term::Kind::kCall) {
      in_.fail_at(part.at, "what is switched off has no arguments");
    }
    if (part.name == result_.name) {
      in_.fail_at(part.at, "'" + part.name + "' cannot have itself in its stack");
    }
    return part;
  }

  // The first sentence of the comment that the text begins with, without the file's name.
  std::string comment_above() const {
    std::string line(whole_.substr(0, whole_.find_first_of("\r\n")));
    if (line.empty() || line[0] != '#') return "";
    line.erase(0, line.find_first_not_of("# "));
    const size_t named = line.find(".functor: ");
    if (named != std::string::npos) line.erase(0, named + 10);
    return line;
  }

  void params() {
    in_.open_bracket();
    if (!in_.looking_at(")")) {
      do {
        param();
      } while (in_.accept(","));
    }
    in_.close_bracket();
    in_.expect(")", "or ',' after a parameter");
  }

  // name [= default] [: kind | kind]: count, number, list, or words.
  void param() {
    FunctorParam p;
    in_.skip_blank();
    const Position at = in_.position();
    p.name = in_.take_name("the name of a parameter");
    for (const FunctorParam& earlier : result_.params) {
      if (earlier.name == p.name) in_.fail_at(at, "parameter '" + p.name + "' is there twice");
    }
    std::optional<Term> otherwise;
    if (in_.accept("=")) {
      otherwise = terms_.whole_term();
      p.otherwise = print(*otherwise);
    }
    bool numbers = true;
    if (in_.accept(":")) {
      numbers = false;
      do {
        const std::string kind = in_.take_name("count, number, list or a word");
        if (kind == "count" || kind == "number") {
          numbers = true;
          p.whole = kind == "count";
          if (!p.whole) p.least = 0;
        } else if (kind == "list") {
          p.list = numbers = true;
          p.least = 0;
        } else if (kind == "several") {
          p.list = true;
        } else {
          p.words.push_back(kind);
        }
      } while (in_.accept("|"));
    }
    if (!numbers) p.least = 1, p.most = 0;  // words only
    if (otherwise) check_default(p, *otherwise);
    result_.params.push_back(std::move(p));
  }

  // A default refers to earlier parameters only, so that none can refer to itself.
  void check_default(const FunctorParam& p, const Term& otherwise) {
    const std::vector<std::string> earlier = known_names();
    const bool is_name = otherwise.kind == Term::Kind::kName;
    const bool names_earlier =
        is_name && std::find(earlier.begin(), earlier.end(), otherwise.word) != earlier.end();
    if (otherwise.kind == Term::Kind::kBinary || otherwise.kind == Term::Kind::kCall ||
        names_earlier || (is_name && p.words.empty())) {
      return check_names(otherwise);
    }
    const Term call{.kind = Term::Kind::kCall, .args = {otherwise}};
    try {
      Arguments("its default", {p}, call);
    } catch (const Error& e) {
      in_.fail_at(otherwise.at, e.what());
    }
  }

  // The names that a number or a condition may use here.
  std::vector<std::string> known_names() const {
    std::vector<std::string> names = {"L"};
    if (!index_.empty()) names.push_back(index_);
    if (knows_block_) names.emplace_back(kBlockNumber);
    if (knows_training_) names.emplace_back(kTraining);
    for (const FunctorParam& p : result_.params) names.push_back(p.name);
    for (const Let& l : result_.lets) names.push_back(l.name);
    return names;
  }

  // An unknown name would make a condition silently false. The words that a parameter may be
  // compared with are names, too.
  void check_names(const Term& term) {
    std::vector<std::string> known;
    if (term.kind == Term::Kind::kName) {
      speaks_of_block_ = speaks_of_block_ || (knows_block_ && term.word == kBlockNumber);
      known = known_names();
      for (const FunctorParam& p : result_.params) {
        known.insert(known.end(), p.words.begin(), p.words.end());
      }
    } else if (term.kind == Term::Kind::kCall) {
      known = number_functions();
      known.insert(known.end(), {"largest", "number"});
    }
    if (!known.empty() && std::find(known.begin(), known.end(), term.word) == known.end()) {
      in_.fail_at(term.at, "there is no number or word '" + term.word + "' here (there are " +
                               join(known, ", ") + ")" + did_you_mean(term.word, known));
    }
    for (const Term& t : term.args) check_names(t);
  }

  Term number_term() {
    Term term = terms_.whole_term();
    check_names(term);
    return term;
  }

  void law(Position line) {
    if (result_.says_law) in_.fail_at(line, "the law is there twice");
    result_.says_law = true;
    in_.skip_blank();
    const Position at = in_.position();
    const std::string word = in_.take_name("exact, reassociating or approximating");
    for (const Law law : {Law::kExact, Law::kReassociating, Law::kApproximating}) {
      if (adjoint::name(law) == word) {
        result_.law = law;
        return;
      }
    }
    in_.fail_at(at, "wanted exact, reassociating or approximating, found '" + word + "'");
  }

  void let() {
    Let let;
    in_.skip_blank();
    const Position at = in_.position();
    let.name = in_.take_name("a name");
    const std::vector<std::string> taken = known_names();
    if (std::find(taken.begin(), taken.end(), let.name) != taken.end()) {
      in_.fail_at(at, "'" + let.name + "' is already the name of something");
    }
    in_.expect("=", "after the name");
    do {
      if (!let.choices.empty()) expect_else();
      Term value = number_term();
      let.choices.emplace_back(std::move(value), when());
    } while (in_.accept(","));
    result_.lets.push_back(std::move(let));
  }

  void requirement() {
    Requirement r;
    r.condition = condition();
    in_.expect(",", "after the condition");
    if (!in_.accept_word("else")) in_.fail_wanted("'else' and what to say");
    in_.skip_blank();
    const Position at = in_.position();
    r.message = in_.take_text();
    check_message(r.message, at);
    result_.requirements.push_back(std::move(r));
  }

  // Names in braces are replaced by their values.
  void check_message(std::string_view message, Position at) const {
    const std::vector<std::string> names = known_names();
    for (size_t open = message.find('{'); open != message.npos;
         open = message.find('{', open + 1)) {
      const size_t close = message.find('}', open);
      const std::string name(message.substr(open + 1, close - open - 1));
      if (close == message.npos || std::find(names.begin(), names.end(), name) == names.end()) {
        in_.fail_at(at, "wanted a name between '{' and '}' (" + join(names, ", ") + "), found '" +
                            name + "'" + did_you_mean(name, names));
      }
    }
  }

  void expect_else() {
    if (!in_.accept_word("else")) in_.fail_wanted("'else' after ','");
  }

  Condition when() { return in_.accept_word("when") ? condition() : Condition{}; }

  // In a rule `l` is the block of what the rule finds, unless the functor has its own l.
  void begin_rule() {
    const std::vector<std::string> names = known_names();
    knows_block_ = std::find(names.begin(), names.end(), kBlockNumber) == names.end();
    speaks_of_block_ = false;
  }
  bool end_rule() {
    knows_block_ = false;
    index_.clear();
    return speaks_of_block_;
  }

  Condition condition() {
    if (++nesting_ > kDeepestCondition) in_.fail_at(in_.position(), "this is nested too deeply");
    Condition any{.kind = Condition::Kind::kAny};
    do {
      Condition all{.kind = Condition::Kind::kAll};
      do {
        all.parts.push_back(negation());
      } while (in_.accept_word("and"));
      any.parts.push_back(std::move(all));
    } while (in_.accept_word("or"));
    --nesting_;
    return any;
  }

  Condition negation() {
    if (in_.accept_word("not")) {
      if (++nesting_ > kDeepestCondition) in_.fail_at(in_.position(), "this is nested too deeply");
      Condition c{.kind = Condition::Kind::kNot};
      c.parts.push_back(negation());
      --nesting_;
      return c;
    }
    if (!at_bracketed_condition()) return comparison();
    in_.accept("(");
    in_.open_bracket();
    Condition inner = condition();
    in_.close_bracket();
    in_.expect(")", "to close the condition");
    return inner;
  }

  // A bracket may begin a term, (l + 1) mod 2 == 0, or a condition, (l == 0 or l == L - 1): one
  // that compares or joins inside is a condition.
  bool at_bracketed_condition() {
    if (!in_.looking_at("(")) return false;
    int depth = 0;
    std::string word;
    for (size_t ahead = 0; in_.peek(ahead); ++ahead) {
      const char c = in_.peek(ahead), next = in_.peek(ahead + 1);
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
        word += c;
        continue;
      }
      if (word == "and" || word == "or" || word == "not" || word == "in") return true;
      word.clear();
      if (c == '<' || c == '>' || ((c == '=' || c == '!') && next == '=')) return true;
      depth += (c == '(') - (c == ')');
      if (depth == 0) return false;
    }
    return false;
  }

  Condition comparison() {
    Condition c{.kind = Condition::Kind::kCompare};
    in_.skip_blank();
    const Position at = in_.position();
    c.terms.push_back(number_term());
    const Term& left = c.terms[0];
    if (left.kind == Term::Kind::kCall && left.word == "number" && left.args.size() == 1) {
      c.kind = Condition::Kind::kNumber;
      c.terms = {left.args[0]};
      return c;
    }
    if (knows_training_ && left.kind == Term::Kind::kName && left.word == kTraining &&
        !at_relation()) {
      c.relation = "!=";
      c.terms.push_back({.kind = Term::Kind::kNumber, .number = 0, .at = at});
      return c;
    }
    if (in_.accept_word("in")) {
      c.kind = Condition::Kind::kIn;
    } else {
      for (const char* relation : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (!in_.accept(relation)) continue;
        c.relation = relation;
        break;
      }
      if (c.relation.empty()) in_.fail_at(at, "wanted a comparison such as l mod every == 0");
    }
    c.terms.push_back(number_term());
    return c;
  }

  bool at_relation() {
    return in_.looking_at("=") || in_.looking_at("!") || in_.looking_at("<") ||
           in_.looking_at(">") || in_.looking_at("in ");
  }

  // A word of a vocabulary, or the name of a parameter whose values are words of it.
  void check_word(Position at, const std::string& word, const std::vector<std::string>& known,
                  std::string_view what) const {
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
      in_.fail_at(at, "wanted " + std::string(what) + " (" + join(known, ", ") + "), found '" +
                          word + "'" + did_you_mean(word, all));
    }
  }

  // [not] inside block, outside chain, of norm, or a word that says what it is.
  Clause clause(std::string_view what) {
    Clause c;
    in_.skip_blank();
    c.at = in_.position();
    c.negated = in_.accept_word("not");
    if (in_.accept_word("made")) {
      if (!in_.accept_word("here")) in_.fail_wanted("'here' after 'made'");
      c.kind = Clause::Kind::kMadeHere;
      if (in_.accept_word("as")) c.word = in_.take_name("the name of what the functor made");
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

  void check_clause(const Clause& c, std::vector<std::string> words, std::string_view what) const {
    switch (c.kind) {
      case Clause::Kind::kInside:
      case Clause::Kind::kOutside:
        return check_word(c.at, c.word, region_words(), "a region");
      case Clause::Kind::kOf: {
        const std::vector<std::string> uses = of_words();
        words.insert(words.begin(), uses.begin(), uses.end());
        return check_word(c.at, c.word, words, "what it belongs to");
      }
      case Clause::Kind::kMadeHere:
        return;
      default:
        return check_word(c.at, c.word, words, what);
    }
  }

  void object_rule(Position at) {
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
    while (rule.selector.empty() || !(in_.looking_at("->") || in_.at_line_end())) {
      if (!rule.selector.empty()) in_.accept(",");
      rule.selector.push_back(clause("what an object is"));
      check_clause(rule.selector.back(), object_words(), "what an object is");
    }
    arrow();
    do {
      if (!rule.choices.empty()) expect_else();
      Choice choice;
      do {
        choice.values.push_back(attribute_value());
        check_once(choice.values);
      } while (in_.accept_word("and"));
      if (in_.accept_word("unless")) {
        if (!in_.accept_word("made") || !in_.accept_word("here")) in_.fail_wanted("'made here'");
        rule.unless_made_here = true;
      }
      choice.when = when();
      rule.choices.push_back(std::move(choice));
    } while (in_.accept(","));
    rule.by_block = end_rule();
    result_.objects.push_back(std::move(rule));
  }

  // -> on this line or on the next.
  void arrow() {
    if (!in_.looking_at("->")) in_.skip_blank_lines();
    in_.expect("->", "and what it becomes");
  }

  void check_once(const std::vector<AttributeValue>& values) const {
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      if (values[i].attribute != values.back().attribute) continue;
      in_.fail_at(values.back().at, "one rule says '" + print(values[i]) + "' and '" +
                                        print(values.back()) + "' of an object; say one of them");
    }
  }

  AttributeValue attribute_value() {
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
      return value;
    }
    const std::string word = in_.take_name("what it becomes");
    if (word == "sharded" || word == "replicated") {
      if (!in_.accept_word("over")) in_.fail_wanted("'over' and an axis of the mesh");
      return {"placement/" + word, in_.take_name("an axis of the mesh"), {}, at};
    }
    std::vector<std::string> known = {"in n parts", "sharded over", "replicated over", "rate",
                                      "decay",      "optimizer",    "clipped as"};
    if (word == "bf16" && in_.accept_word("stochastic")) {
      return {"precision", "bf16/stochastic", {}, at};
    }
    for (const Word& w : kValues) {
      if (w.word == word) return {std::string(w.attribute), word, {}, at};
      known.emplace_back(w.word);
    }
    in_.fail_at(at, "wanted what an object can become (" + join(known, ", ") + "), found '" + word +
                        "'" + did_you_mean(word, known));
  }

  void morphism_rule(Position at) {
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
    rule.statements = statements(names);
    arrow();
    rule.replacement = terms_.whole_value();
    note_blocks(rule.replacement, names);
    check_statements_are_used(rule.statements, rule.replacement);
    rule.by_block = end_rule();
    result_.morphisms.push_back(std::move(rule));
  }

  // state average of trained, inside chain -> d*average + (1 - d)*parameter
  void state_rule(Position at) {
    StateRule rule{.name = {}, .at = at};
    begin_rule();
    in_.skip_blank();
    const Position where = in_.position();
    rule.name = in_.take_name("the name of the state");
    std::vector<std::string> names = {std::string(kParameterAfter), std::string(kStepsTaken)};
    std::vector<std::string> taken = known_names();
    taken.insert(taken.end(), names.begin(), names.end());
    for (const StateRule& earlier : result_.states) taken.push_back(earlier.name);
    if (std::find(taken.begin(), taken.end(), rule.name) != taken.end()) {
      in_.fail_at(where, "'" + rule.name + "' is already the name of something");
    }
    names.push_back(rule.name);
    if (!in_.accept_word("of")) in_.fail_wanted("'of' and which parameters it follows");
    while (rule.selector.empty() || !(in_.looking_at("->") || in_.at_line_end())) {
      if (!rule.selector.empty()) in_.accept(",");
      rule.selector.push_back(clause("which parameters it follows"));
      check_clause(rule.selector.back(), object_words(), "what an object is");
    }
    rule.statements = statements(names);
    arrow();
    rule.value = terms_.whole_value();
    note_blocks(rule.value, names);
    check_statements_are_used(rule.statements, rule.value);
    rule.by_block = end_rule();
    result_.states.push_back(std::move(rule));
  }

  // Lines `V = W + ...` between the head of a rule and its arrow.
  std::vector<Statement> statements(std::vector<std::string>& names) {
    std::vector<Statement> all;
    if (in_.looking_at("->") || !in_.at_line_end()) return all;
    for (in_.skip_blank_lines(); at_statement(); in_.skip_blank_lines()) {
      Statement statement{.names = {}, .values = {}, .at = in_.position()};
      do {
        in_.skip_blank();
        const Position where = in_.position();
        statement.names.push_back(in_.take_name("the name of a result"));
        std::vector<std::string> taken = known_names();
        taken.insert(taken.end(), names.begin(), names.end());
        taken.insert(taken.end(), statement.names.begin(), statement.names.end() - 1);
        if (std::find(taken.begin(), taken.end(), statement.names.back()) != taken.end()) {
          in_.fail_at(where, "'" + statement.names.back() + "' is already the name of something");
        }
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
  bool at_statement() const {
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
  void check_statements_are_used(const std::vector<Statement>& all, const Term& result) const {
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
  void note_blocks(const Term& term, const std::vector<std::string>& variables) {
    const bool is_block =
        knows_block_ && term.kind == Term::Kind::kName && term.word == kBlockNumber &&
        std::find(variables.begin(), variables.end(), term.word) == variables.end();
    speaks_of_block_ = speaks_of_block_ || is_block;
    for (const Term& t : term.args) note_blocks(t, variables);
    for (const auto& [word, t] : term.keywords) note_blocks(t, variables);
  }

  // inside chain, attention_in, or parameter(W), which speaks of an operand.
  Clause where_clause(const MorphismRule& rule) {
    Clause c = clause("what it is");
    if (c.kind == Clause::Kind::kMadeHere) {
      in_.fail_at(c.at,
                  "wanted what a morphism is, found 'made here': a rule never finds what its "
                  "own functor made");
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

  Cursor in_;
  std::string_view whole_;
  TermParser terms_{in_};
  std::string index_;  // l, in a rule about x_l
  bool knows_block_ = false, speaks_of_block_ = false, knows_training_ = false;
  int nesting_ = 0;
  FunctorText result_;
};

}  // namespace

FunctorText parse_functor_text(std::string_view text, std::string_view file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return FunctorParser(text, file).parse();
}

Functor parse_functor(std::string_view text, std::string_view file) {
  Functor functor = functor_of(parse_functor_text(text, file));
  functor.text = text;
  return functor;
}

}  // namespace adjoint

// Grammar:
//   file      = { box } "optimizer" name [ "(" param {"," param} ")" ] ":" newline
//               { indented line } { case } { box }
//   param     = name "=" term
//   line      = "state" name "like" term [ "=" term ] | statement
//   case      = "when" condition ":" newline { line, indented further }
//             | "otherwise" ":" newline { line, indented further }
//             | "otherwise" optimizer
// Boxes and statements are box_parser.h's. A text with cases ends with `otherwise`.
#include "functors/optimizer_text.h"

#include <algorithm>
#include <limits>

#include "base/file.h"
#include "base/text.h"
#include "models/settings.h"
#include "scheme/box_parser.h"

namespace adjoint {

namespace {

constexpr std::string_view kOptimizerEnding = ".optimizer";
// What the rules of a text speak of beside its own names.
constexpr std::string_view kGiven[] = {"p", "g", "rate", "decay", "step"};

class OptimizerParser {
 public:
  OptimizerParser(std::string_view text, std::string_view file) : in_(text, file), whole_(text) {
    result_.file = file;
  }

  OptimizerText parse() {
    bool found = false;
    for (in_.skip_blank_lines(); !in_.at_end(); in_.skip_blank_lines()) {
      const Position at = in_.position();
      if (at.column != 1) in_.fail_at(at, "wanted a line that begins a section, found an indent");
      if (in_.accept_word("optimizer")) {
        if (found) in_.fail_at(at, "a file has one optimizer, and this is its second");
        found = true;
        optimizer(at);
      } else {
        Box box = boxes_.box("'optimizer' or the name of a box");
        const auto same = [&](const Box& other) { return other.name == box.name; };
        if (box.name == "model" || std::any_of(result_.boxes.begin(), result_.boxes.end(), same)) {
          in_.fail_at(box.at, "the name of box '" + box.name + "' is taken");
        }
        result_.boxes.push_back(std::move(box));
      }
    }
    if (!found) in_.fail_wanted("'optimizer' to begin an optimizer");
    return std::move(result_);
  }

 private:
  void optimizer(Position at) {
    result_.summary = comment_above();
    result_.name = in_.take_name("the name of the optimizer");
    if (in_.accept("(")) params();
    in_.expect(":", "after the head of an optimizer");
    in_.expect_line_end();
    const std::vector<OptimizerCase>& cases = result_.cases;
    for (in_.skip_blank_lines(); !in_.at_end() && in_.position().column > 1;
         in_.skip_blank_lines()) {
      const Position here = in_.position();
      if (!cases.empty() && !cases.back().when) {
        in_.fail_at(here, "wanted nothing after 'otherwise'");
      }
      if (in_.accept_word("when")) {
        in_.skip_blank();
        OptimizerCase one{.when = terms_.whole_value(), .at = here};
        block(one);
      } else if (in_.accept_word("otherwise")) {
        OptimizerCase one{.at = here};
        if (in_.looking_at(":")) {
          block(one);
        } else {
          otherwise(std::move(one));
        }
      } else if (!cases.empty()) {
        in_.fail_wanted("'when' or 'otherwise': lines for all parameters come before the cases");
      } else {
        line(result_.always);
      }
    }
    if (!cases.empty() && cases.back().when) {
      in_.fail_at(cases.back().at,
                  "wanted 'otherwise' after the last case: every parameter is "
                  "updated by something");
    }
    if (cases.empty()) check(result_.always, at);
  }

  // The first line of the comment that the text begins with.
  std::string comment_above() const {
    std::string line(whole_.substr(0, whole_.find_first_of("\r\n")));
    if (line.empty() || line[0] != '#') return "";
    return line.erase(0, std::min(line.find_first_not_of("# "), line.size()));
  }

  void params() {
    in_.open_bracket();
    do {
      in_.skip_blank();
      const Position at = in_.position();
      FunctorParam p{.name = in_.take_name("the name of a number"),
                     .whole = false,
                     .least = -std::numeric_limits<double>::infinity()};
      check_new(p.name, at);
      in_.expect("=", "and what it is unless said");
      p.otherwise = print(terms_.whole_term());
      result_.params.push_back(std::move(p));
    } while (in_.accept(","));
    in_.close_bracket();
    in_.expect(")", "or ',' after a number");
  }

  void check_new(const std::string& name, Position at) {
    const auto same = [&](const auto& other) { return other.name == name; };
    const auto& states = result_.always.states;
    if (std::find(std::begin(kGiven), std::end(kGiven), name) != std::end(kGiven) ||
        std::any_of(result_.params.begin(), result_.params.end(), same) ||
        std::any_of(states.begin(), states.end(), same) ||
        (open_ && std::any_of(open_->states.begin(), open_->states.end(), same))) {
      in_.fail_at(at, "'" + name + "' is already the name of something");
    }
  }

  void block(OptimizerCase& one) {
    in_.expect(":", "after a case");
    in_.expect_line_end();
    open_ = &one.rule;
    for (in_.skip_blank_lines(); !in_.at_end() && in_.position().column > one.at.column;
         in_.skip_blank_lines()) {
      line(one.rule);
    }
    open_ = nullptr;
    if (one.rule.body.empty()) in_.fail_at(one.at, "wanted lines that are indented below this one");
    OptimizerRule all = result_.always;
    all.states.insert(all.states.end(), one.rule.states.begin(), one.rule.states.end());
    all.body.insert(all.body.end(), one.rule.body.begin(), one.rule.body.end());
    check(all, one.at);
    one.rule = std::move(all);
    result_.cases.push_back(std::move(one));
  }

  void otherwise(OptimizerCase one) {
    const Term call = terms_.whole_term();
    if (call.kind != Term::Kind::kName && call.kind != Term::Kind::kCall) {
      in_.fail_at(call.at, "wanted ':' or the name of another optimizer, found " + print(call));
    }
    const std::vector<std::string> known = known_optimizers();
    if (std::find(known.begin(), known.end(), call.word) == known.end()) {
      in_.fail_at(call.at, "there is no optimizer '" + call.word + "' (there are " +
                               join(known, ", ") + ")" + did_you_mean(call.word, known));
    }
    in_.expect_line_end();
    one.instead = print(call);
    result_.cases.push_back(std::move(one));
  }

  void line(OptimizerRule& rule) {
    if (!in_.accept_word("state")) {
      rule.body.push_back(boxes_.statement());
      return;
    }
    in_.skip_blank();
    const Position at = in_.position();
    OptimizerState state{.name = in_.take_name("the name of a state"), .like = {}, .at = at};
    check_new(state.name, state.at);
    if (!in_.accept_word("like")) in_.fail_wanted("'like' and a term that has the state's shape");
    state.like = terms_.whole_term();
    if (in_.accept("=")) state.start = terms_.whole_term();
    in_.expect_line_end();
    rule.states.push_back(std::move(state));
  }

  // p and every state get a new value, and what is given stays what it is.
  void check(const OptimizerRule& rule, Position at) {
    const auto assigned = [&](std::string_view name) {
      return std::any_of(rule.body.begin(), rule.body.end(), [&](const Statement& s) {
        return std::count(s.names.begin(), s.names.end(), name) > 0;
      });
    };
    if (!assigned("p")) in_.fail_at(at, "wanted a line 'p = ...': this updates no parameter");
    for (const OptimizerState& state : rule.states) {
      if (assigned(state.name)) continue;
      in_.fail_at(state.at, "state '" + state.name + "' is never written: wanted a line '" +
                                state.name + " = ...'");
    }
  }

  Cursor in_;
  std::string_view whole_;
  TermParser terms_{in_};
  BoxParser boxes_{in_};
  OptimizerText result_;
  const OptimizerRule* open_ = nullptr;  // the case that is being read
};

struct OptimizerCall {
  std::string name, rest;
  bool from_file() const { return name.ends_with(kOptimizerEnding); }
};

OptimizerCall split_call(const std::string& call) {
  // A path may have brackets of its own.
  const size_t file_end = call.find(kOptimizerEnding);
  const size_t bracket = call.find('(', file_end == std::string::npos ? 0 : file_end);
  std::string name = call.substr(0, bracket);
  name.erase(name.find_last_not_of(" \t\n") + 1);
  name.erase(0, std::min(name.find_first_not_of(" \t\n"), name.size()));
  return {name, bracket == std::string::npos ? "" : call.substr(bracket)};
}

// What an optimizer's op can be told, and what the run says.
std::vector<FunctorParam> params_of(const OpDef& op, const StepOptions& options) {
  const std::pair<std::string_view, double> numbers[] = {{"beta1", options.beta1},
                                                         {"beta2", options.beta2},
                                                         {"eps", options.eps},
                                                         {"momentum", options.momentum}};
  std::vector<FunctorParam> params;
  for (const std::string_view name : op.update->numbers) {
    const auto number = std::find_if(std::begin(numbers), std::end(numbers),
                                     [&](const auto& n) { return n.first == name; });
    CHECK(number != std::end(numbers), "an optimizer's number is an option: " + std::string(name));
    params.push_back({.name = std::string(name),
                      .otherwise = shortest(number->second),
                      .whole = false,
                      .least = 0});
  }
  return params;
}

std::string file_of(const OptimizerFile& file) { return "optimizers/" + std::string(file.name); }
std::string name_of(const OptimizerFile& file) {
  return std::string(file.name.substr(0, file.name.size() - kOptimizerEnding.size()));
}

std::shared_ptr<const OptimizerText> text_named(const OptimizerCall& call) {
  if (call.from_file()) {
    return std::make_shared<OptimizerText>(parse_optimizer(read_file(call.name), call.name));
  }
  for (const OptimizerFile& file : optimizer_files()) {
    if (name_of(file) != call.name) continue;
    return std::make_shared<OptimizerText>(parse_optimizer(file.text, file_of(file)));
  }
  const std::vector<std::string> names = known_optimizers();
  fail("optimizer '", call.name, "' is not known (there are ", join(names, ", "),
       ", and files that end in ", kOptimizerEnding, ")", did_you_mean(call.name, names));
}

}  // namespace

OptimizerText parse_optimizer(std::string_view text, std::string_view file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // what some editors put first
  return OptimizerParser(text, file).parse();
}

std::vector<std::string> known_optimizers() {
  std::vector<std::string> names = optimizer_names();
  for (const OptimizerFile& file : optimizer_files()) names.push_back(name_of(file));
  return names;
}

Optimizer find_optimizer(const std::string& call, const StepOptions& options) {
  const OptimizerCall parts = split_call(call);
  const Term term = parse_term("_" + (parts.rest.empty() ? "()" : parts.rest), "optimizer");
  if (term.kind != Term::Kind::kCall) fail("wanted an optimizer, found '", call, "'");
  const OpDef* op = find_op(parts.name);
  if (op && op->update) {
    const std::vector<FunctorParam> params = params_of(*op, options);
    return {.name = parts.name, .params = params, .op = op, .args = {op->name, params, term}};
  }
  const std::shared_ptr<const OptimizerText> text = text_named(parts);
  return {.name = text->name,
          .params = text->params,
          .text = text,
          .args = {text->name, text->params, term}};
}

std::string with_optimizer_file(const std::string& call,
                                const std::function<std::string(const std::string&)>& renamed) {
  const OptimizerCall parts = split_call(call);
  return parts.from_file() ? renamed(parts.name) + parts.rest : call;
}

}  // namespace adjoint

#include "functors/functor_text.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "functors/functor_parser.h"

namespace adjoint {

FunctorText FunctorParser::parse() {
  in_.skip_blank_lines();
  result_.summary = comment_above();
  if (!in_.accept_word("functor")) in_.fail_wanted("'functor' to begin a functor");
  result_.name = in_.take_name("the name of the functor");
  if (in_.accept("(")) params();
  if (in_.accept("=")) return stack_of_others();
  in_.expect(":", "or '=' after the head of a functor");
  result_.head_end = in_.last();
  in_.expect_line_end();
  for (in_.skip_blank_lines(); !in_.at_end(); in_.skip_blank_lines()) {
    const Position at = in_.position();
    std::string_view kind;
    for (const std::string_view word : {"law", "elsewhere", "default", "let", "require", "mesh",
                                        "order", "object", "morphism", "state"}) {
      if (in_.looking_at(word)) kind = word;
    }
    arrow_ = {};
    if (at.column == 1) in_.fail_at(at, "wanted an indented line of the functor");
    if (in_.accept_word("law")) {
      law(at);
    } else if (in_.accept_word("elsewhere")) {
      do {
        result_.elsewhere.push_back(in_.take_name("what other programs call it"));
      } while (in_.accept(","));
    } else if (in_.accept_word("default")) {
      result_.by_default = true;
    } else if (in_.accept_word("let")) {
      let();
    } else if (in_.accept_word("require")) {
      result_.requirements.push_back(requirement());
    } else if (in_.accept_word("mesh")) {
      mesh(at);
    } else if (in_.accept_word("order")) {
      order(at);
    } else if (in_.accept_word("object")) {
      object_rule(at);
    } else if (in_.accept_word("morphism")) {
      morphism_rule(at);
    } else if (in_.accept_word("state")) {
      state_rule(at);
    } else {
      in_.fail_wanted(
          "law, elsewhere, default, let, require, mesh, order, object, morphism or state");
    }
    line(kind, at);
    in_.expect_line_end();
  }
  if (!result_.says_law)
    in_.fail_wanted("a line 'law exact', 'law reassociating' or 'law approximating'");
  if (result_.objects.empty() && result_.morphisms.empty() && result_.states.empty()) {
    in_.fail_wanted("a rule: a line that begins with 'object', 'morphism' or 'state'");
  }
  return std::move(result_);
}

// Notes where a line stands that was read up to here.
void FunctorParser::line(std::string_view kind, Position from) {
  FunctorLine line{.kind = std::string(kind), .span = {from, in_.last()}};
  for (const FunctorLine& other : result_.lines) line.index += other.kind == kind;
  if (arrow_.to.line > 0) {
    Position left = from;
    left.column += static_cast<int>(kind.size()) + 1;
    line.left = {left, arrow_.from};
    line.right = {arrow_.to, line.span.to};
  }
  result_.lines.push_back(std::move(line));
}

// = quantize(nf4) | lora(rank) | -fuse, on one line or several; then a law, or nothing.
FunctorText FunctorParser::stack_of_others() {
  do {
    in_.skip_blank_lines();
    result_.parts.push_back(part());
    if (in_.at_line_end()) in_.skip_blank_lines();
  } while (in_.accept("|"));
  result_.head_end = in_.last();
  for (; !in_.at_end(); in_.skip_blank_lines()) {
    const Position at = in_.position();
    if (at.column == 1) in_.fail_at(at, "wanted an indented line of the functor");
    if (!in_.accept_word("law")) in_.fail_wanted("'|' and a functor, or a law");
    law(at);
    line("law", at);
    in_.expect_line_end();
  }
  return std::move(result_);
}

StackPart FunctorParser::part() {
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
std::string FunctorParser::comment_above() const {
  std::string line(whole_.substr(0, whole_.find_first_of("\r\n")));
  if (line.empty() || line[0] != '#') return "";
  line.erase(0, line.find_first_not_of("# "));
  const size_t named = line.find(".functor: ");
  if (named != std::string::npos) line.erase(0, named + 10);
  return line;
}

void FunctorParser::params() {
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
void FunctorParser::param() {
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
      const std::string kind = in_.take_word("count, number, list, text or a word");
      if (kind == "count" || kind == "number") {
        numbers = true;
        p.whole = kind == "count";
        if (!p.whole) p.least = 0;
      } else if (kind == "list") {
        p.list = numbers = true;
        p.least = 0;
      } else if (kind == "several") {
        p.list = true;
      } else if (kind == "text") {
        p.text = true;
      } else {
        p.words.push_back(kind);
      }
    } while (in_.accept("|"));
  }
  if (!numbers) p.least = 1, p.most = 0;  // words only
  if (otherwise) check_default(p, *otherwise);
  result_.param_places.push_back(
      {.whole = {at, in_.last()}, .otherwise = otherwise ? otherwise->whole : TextSpan{}});
  result_.params.push_back(std::move(p));
}

// A default refers to earlier parameters only, so that none can refer to itself.
void FunctorParser::check_default(const FunctorParam& p, const Term& otherwise) {
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

void FunctorParser::law(Position line) {
  if (result_.says_law) in_.fail_at(line, "the law is there twice");
  result_.says_law = true;
  in_.skip_blank();
  const Position at = in_.position();
  const std::string word = in_.take_name("exact, reassociating or approximating");
  for (const Law law : {Law::kExact, Law::kReassociating, Law::kApproximating}) {
    if (adjoint::name(law) == word) {
      result_.law = law;
      if (law == Law::kExact && in_.accept_word("against")) against();
      return;
    }
  }
  in_.fail_at(at, "wanted exact, reassociating or approximating, found '" + word + "'");
}

// What another functor of the stack is told in the stack that the law compares with.
void FunctorParser::against() {
  in_.skip_blank();
  const Position at = in_.position();
  if (!in_.at_name()) in_.fail_wanted("a functor and what it is told");
  result_.against = terms_.whole_term();
  const Term& call = *result_.against;
  if (call.kind != Term::Kind::kCall || call.keywords.empty() || !call.args.empty()) {
    in_.fail_at(at,
                "wanted a functor and what it is told by name, such as "
                "data_parallel(reduce=part), found '" +
                    print(call) + "'");
  }
  result_.against_when = when();
}

void FunctorParser::let() {
  Let let;
  in_.skip_blank();
  const Position at = in_.position();
  let.name = in_.take_name("a name");
  check_is_free(at, let.name, {});
  in_.expect("=", "after the name");
  do {
    if (!let.choices.empty()) expect_else();
    Term value = number_term();
    let.choices.emplace_back(std::move(value), when());
  } while (in_.accept(","));
  result_.lets.push_back(std::move(let));
}

// CONDITION, else "..."; the message may also fill in `names`.
Requirement FunctorParser::requirement(const std::vector<std::string>& names) {
  Requirement r;
  r.condition = condition();
  in_.expect(",", "after the condition");
  if (!in_.accept_word("else")) in_.fail_wanted("'else' and what to say");
  in_.skip_blank();
  const Position at = in_.position();
  r.message = in_.take_text();
  check_message(r.message, at, names);
  return r;
}

// mesh data = n
void FunctorParser::mesh(Position at) {
  MeshRule rule{.axis = in_.take_name("an axis of the mesh"), .size = {}, .at = at};
  for (const MeshRule& earlier : result_.mesh) {
    if (earlier.axis == rule.axis) in_.fail_at(at, "the mesh has '" + rule.axis + "' twice");
  }
  in_.expect("=", "and how many ranks the axis has");
  rule.size = number_term();
  result_.mesh.push_back(std::move(rule));
}

// order by schedule in chunks chunks
void FunctorParser::order(Position at) {
  if (result_.order) in_.fail_at(at, "the order of parts is there twice");
  if (!in_.accept_word("by")) in_.fail_wanted("'by' and a schedule");
  OrderRule rule{.word = in_.take_word("a schedule"), .at = at};
  if (in_.accept_word("in")) {
    rule.chunks = number_term();
    if (!in_.accept_word("chunks")) in_.fail_wanted("'chunks'");
  }
  result_.order = std::move(rule);
}

// Names in braces are replaced by their values.
void FunctorParser::check_message(std::string_view message, Position at,
                                  std::vector<std::string> names) const {
  for (std::string& known : known_names()) names.push_back(std::move(known));
  for (size_t open = message.find('{'); open != message.npos; open = message.find('{', open + 1)) {
    const size_t close = message.find('}', open);
    const std::string name(message.substr(open + 1, close - open - 1));
    if (close == message.npos || std::find(names.begin(), names.end(), name) == names.end()) {
      in_.fail_at(at, "wanted a name between '{' and '}' (" + join(names, ", ") + "), found '" +
                          name + "'" + did_you_mean(name, names));
    }
  }
}

void FunctorParser::expect_else() {
  if (!in_.accept_word("else")) in_.fail_wanted("'else' after ','");
}

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

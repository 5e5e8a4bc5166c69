#include "data/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace adjoint {

namespace {

constexpr std::string_view kSaid = "{}", kSystem = "{system}", kEnd = "{end}",
                           kEnding = ".template";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == text.npos;
}

// The two sides of a mark that stands in the text once.
std::pair<std::string, std::string> cut_at(std::string_view text, std::string_view mark,
                                           const std::string& place) {
  const size_t at = text.find(mark);
  if (at == text.npos || text.find(mark, at + mark.size()) != text.npos) {
    fail(place, ": wanted ", mark, " once, found '", text, "'");
  }
  return {std::string(text.substr(0, at)), std::string(text.substr(at + mark.size()))};
}

void add_piece(std::vector<TextPiece>& pieces, std::string_view text, bool trained, bool markup) {
  if (!text.empty()) {
    pieces.push_back({.text = std::string(text), .trained = trained, .markup = markup});
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string file, std::string_view text)
    : file_(std::move(file)), text_(text) {
  int number = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::string place = file_ + ":" + std::to_string(number);
    const size_t equals = line.find('=');
    const std::string name(trimmed(line.substr(0, equals)));
    if (equals == line.npos || !is_name(name)) {
      fail(place, ": wanted ROLE = \"TEXT\", found '", line, "'");
    }
    const std::string_view quoted = trimmed(line.substr(equals + 1));
    const auto value = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
    if (!value.is_string()) {
      fail(place, ": wanted a string in double quotes behind '", name, " =', found '", quoted, "'");
    }
    const std::string said = value.get<std::string>();
    if (name == "mark") {
      mark_ = said;
    } else if (name == "begin") {
      begin_ = said;
    } else {
      add_role(name, said, place);
    }
  }
  for (const char* needed : {"user", "assistant"}) {
    if (!roles_.count(needed)) fail(file_, ": a chat template has a line for '", needed, "'");
  }
  for (const auto& [name, role] : roles_) system_waits_ |= role.takes_system;
}

void ChatTemplate::add_role(const std::string& name, std::string_view text,
                            const std::string& place) {
  if (roles_.count(name)) fail(place, ": the role '", name, "' is there twice");
  Role role;
  role.writes = name == "assistant";
  std::tie(role.before, role.behind) = cut_at(text, kSaid, place);
  if (role.before.find(kSystem) != std::string::npos) {
    role.takes_system = true;
    std::tie(role.prelude, role.before) = cut_at(role.before, kSystem, place);
  }
  if (role.writes) {
    auto [written, rest] = cut_at(role.behind, kEnd, place);
    role.written = written.size();
    role.behind = written + rest;
    stop_ = trimmed(written);
  }
  for (const std::string* part : {&role.prelude, &role.before, &role.behind}) {
    for (const std::string_view mark : {kSystem, kEnd}) {
      if (part->find(mark) == std::string::npos) continue;
      fail(place, ": ", mark, " has no place here in '", text, "': {system} comes before {}, and ",
           "{end} behind {} of the assistant");
    }
  }
  roles_[name] = std::move(role);
}

const ChatTemplate::Role& ChatTemplate::role_of(const ChatMessage& message) const {
  const auto found = roles_.find(message.role);
  if (found != roles_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, role] : roles_) names.push_back(name);
  fail("the template ", file_, " has no role '", message.role, "', only ", join(names, ", "),
       did_you_mean(message.role, names));
}

std::vector<TextPiece> ChatTemplate::render(std::span<const ChatMessage> messages) const {
  std::vector<TextPiece> pieces;
  add_piece(pieces, begin_, false, true);
  const ChatMessage* waiting = nullptr;
  const auto say = [&](const Role& role, const ChatMessage& message) {
    const bool trained = message.trained.value_or(role.writes);
    if (trained && !role.writes) {
      fail("a message of the role '", message.role,
           "' says that it is trained, and only what the assistant says is: leave that out");
    }
    add_piece(pieces, role.before, false, true);
    add_piece(pieces, message.content, trained, false);
    add_piece(pieces, role.behind.substr(0, role.written), trained, true);
    add_piece(pieces, role.behind.substr(role.written), false, true);
  };
  for (const ChatMessage& message : messages) {
    const Role& role = role_of(message);
    if (system_waits_ && message.role == "system") {
      if (waiting) fail("two system messages come one after another");
      waiting = &message;
      continue;
    }
    if (role.takes_system) {
      add_piece(pieces, role.prelude, false, true);
      if (waiting) say(role_of(*waiting), *waiting);
      waiting = nullptr;
    }
    if (waiting)
      fail("a user's message must follow the system's, found one of '", message.role, "'");
    say(role, message);
  }
  if (waiting) fail("a user's message must follow the system's, found none");
  return pieces;
}

std::vector<TextPiece> ChatTemplate::prompt(std::span<const ChatMessage> messages) const {
  std::vector<TextPiece> pieces = render(messages);
  add_piece(pieces, roles_.at("assistant").before, false, true);
  return pieces;
}

ChatTemplate find_chat_template(const std::string& name) {
  if (name.ends_with(kEnding)) return {name, read_file(name)};
  for (const ChatTemplateFile& file : chat_template_files()) {
    if (file.name == name + std::string(kEnding)) return {name, file.text};
  }
  const std::vector<std::string> names = known_chat_templates();
  fail("there is no chat template '", name, "', only ", join(names, ", "),
       " and files that end in .template", did_you_mean(name, names));
}

namespace {

bool is_one_token(const Tokenizer& tokenizer, const std::string& text) {
  try {
    return tokenizer.encode_with_specials(text).size() == 1;
  } catch (const Error&) {
    return false;  // it has symbols that the tokenizer does not know
  }
}

// Adds the "<word>" of a text, but for those in further brackets: "<<SYS>>" is text of Llama 2.
void add_marks(std::string_view text, std::vector<std::string>& marks) {
  for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
    const size_t end = text.find_first_of("<> \t\n", at + 1);
    if (end == text.npos || text[end] != '>' || end == at + 1) continue;
    if (at > 0 && text[at - 1] == '<') continue;
    const std::string mark(text.substr(at, end + 1 - at));
    if (std::find(marks.begin(), marks.end(), mark) == marks.end()) marks.push_back(mark);
  }
}

}  // namespace

std::vector<std::string> ChatTemplate::marks() const {
  std::vector<std::string> marks;
  if (!mark_.empty()) marks.push_back(mark_);
  add_marks(begin_, marks);
  for (const auto& [name, role] : roles_) {
    for (const std::string* part : {&role.prelude, &role.before, &role.behind}) {
      add_marks(*part, marks);
    }
  }
  return marks;
}

std::vector<std::string> marks_spelled_out(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  if (learns_tokenizer(tokenizer.kind())) return {};
  std::vector<std::string> marks = chat.marks();
  std::erase_if(marks, [&](const std::string& mark) { return is_one_token(tokenizer, mark); });
  return marks;
}

ChatTemplate chat_template_for(const Tokenizer& tokenizer) {
  for (const std::string& name : known_chat_templates()) {
    ChatTemplate known = find_chat_template(name);
    if (!known.mark().empty() && is_one_token(tokenizer, known.mark())) return known;
  }
  fail("this model's tokenizer (", tokenizer.kind(), ") has the mark of none of the templates ",
       join(known_chat_templates(), ", "),
       "; say how its conversations are written with --template");
}

std::vector<int32_t> encode_piece(const Tokenizer& tokenizer, const TextPiece& piece) {
  return piece.markup ? tokenizer.encode_with_specials(piece.text) : tokenizer.encode(piece.text);
}

std::vector<std::string> known_chat_templates() {
  std::vector<std::string> names;
  for (const ChatTemplateFile& file : chat_template_files()) {
    names.emplace_back(file.name.substr(0, file.name.size() - kEnding.size()));
  }
  return names;
}

}  // namespace adjoint

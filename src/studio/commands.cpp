#include "studio/commands.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "studio/api_error.h"
#include "studio/folder.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr size_t kMostArguments = 512, kLongestArgument = 64 * 1024;
constexpr int kSignal = 128;  // what a shell adds to a signal's number
constexpr std::string_view kName = "adjoint: ";

// What a line on standard error says beside errors: a note or a warning (base/note.h).
std::optional<std::string> note_in(const std::string& line) {
  for (const std::string_view begin : {"adjoint: note: ", "adjoint: warning: "}) {
    if (line.starts_with(begin)) return line.substr(begin.size());
  }
  return std::nullopt;
}

const std::vector<std::string>& commands_for(Asked asked) {
  static const std::vector<std::string> questions = {
      "show", "plan", "models", "functors", "ops", "help", "edit", "verify", "eval", "tokenizer"};
  static const std::vector<std::string> jobs = {"train", "verify",  "profile",  "generate",
                                                "eval",  "bench",   "plan",     "quantize",
                                                "merge", "convert", "tokenizer"};
  return asked == Asked::kQuestion ? questions : jobs;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

std::optional<int> number_at(std::string_view text, size_t& at) {
  const size_t begin = at;
  int number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at - begin < 8) {
    number = number * 10 + (text[at++] - '0');
  }
  return at > begin ? std::optional(number) : std::nullopt;
}

// "my.scheme:3:7: wanted ...": file, line and column become entries, the sentence stays.
void take_place(json& error) {
  const std::string message = error["message"];
  for (size_t colon = message.find(':'); colon != message.npos && colon > 0;
       colon = message.find(':', colon + 1)) {
    size_t at = colon + 1;
    const auto line = number_at(message, at);
    if (!line || at >= message.size() || message[at++] != ':') continue;
    const auto column = number_at(message, at);
    if (!column || message.compare(at, 2, ": ") != 0) continue;
    error["file"] = message.substr(0, colon);
    error["line"] = *line;
    error["column"] = *column;
    error["message"] = message.substr(at + 2);
    return;
  }
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Why `verify` says that a law is broken or a stack is refused; nothing where it says no such
// thing.
std::string reason_in(const std::string& standard_output) {
  const json verdict = json::parse(standard_output, nullptr, false);
  if (!verdict.is_object()) return "";
  std::string reason = text_at(verdict, "reason");
  const std::string smallest = text_at(verdict, "smallest_broken_stack");
  if (!smallest.empty()) reason += "; the smallest stack that breaks it: " + smallest;
  if (!reason.empty()) return reason;
  for (const char* stacks : {"pairs", "stacks"}) {
    for (const json& each : verdict.value(stacks, json::array())) {
      const json broken = each.is_object() ? each.value("broken", json::array()) : json();
      if (!broken.is_array() || broken.empty() || !broken[0].is_string()) continue;
      return "'" + text_at(each, "stack") + "': " + broken[0].get<std::string>();
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> checked_arguments(const json& request, Asked asked) {
  const auto found = request.find("args");
  if (found == request.end() || !found->is_array() || found->empty()) {
    refuse(400,
           "\"args\": wanted the words of a command, such as [\"show\", \"--model\", \"char\"]");
  }
  if (found->size() > kMostArguments) refuse(400, "\"args\": these are too many words");
  std::vector<std::string> arguments;
  for (const json& word : *found) {
    if (!word.is_string()) refuse(400, "\"args\": wanted texts, found ", word.type_name());
    arguments.push_back(word.get<std::string>());
    const std::string& text = arguments.back();
    if (text.size() > kLongestArgument || text.find('\0') != text.npos) {
      refuse(400, "\"args\": a word is too long, or has a NUL");
    }
  }
  const std::vector<std::string>& known = commands_for(asked);
  if (std::find(known.begin(), known.end(), arguments[0]) == known.end()) {
    refuse(400, "'", arguments[0].substr(0, 40), "' is no command that ",
           asked == Asked::kQuestion ? "answers a question" : "runs as a job", " (",
           join(known, ", "), ")");
  }
  return arguments;
}

// `edit` speaks nothing but JSON, and has no flag for it.
std::vector<std::string> with_json(std::vector<std::string> arguments) {
  if (arguments[0] == "edit") return arguments;
  if (std::find(arguments.begin(), arguments.end(), "--json") == arguments.end()) {
    arguments.emplace_back("--json");
  }
  return arguments;
}

std::optional<std::string> option_of(const std::vector<std::string>& arguments,
                                     const std::string& flag) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == flag && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with(flag + "=")) return arguments[i].substr(flag.size() + 1);
  }
  return std::nullopt;
}

json error_of(const std::string& standard_error, int code, const std::string& standard_output) {
  std::string message;
  for (const std::string& line : lines_of(standard_error)) {
    if (note_in(line)) continue;
    message += message.empty() ? "" : "\n";
    message += line.starts_with(kName) ? line.substr(kName.size()) : line;
  }
  if (code > kSignal && code < kSignal + 65) {
    message = std::string("the command was ended by a signal (") + ::strsignal(code - kSignal) +
              ")" + (message.empty() ? "" : ": " + message);
  }
  if (message.empty()) message = reason_in(standard_output);
  if (message.empty()) {
    message = "the command ended with code " + std::to_string(code);
  }
  json error = {{"message", message}};
  take_place(error);
  return error;
}

std::vector<std::string> notes_of(const std::string& standard_error) {
  std::vector<std::string> notes;
  for (const std::string& line : lines_of(standard_error)) {
    if (auto note = note_in(line)) notes.push_back(std::move(*note));
  }
  return notes;
}

}  // namespace adjoint

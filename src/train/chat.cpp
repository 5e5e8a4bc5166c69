#include "train/chat.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

namespace {

constexpr std::string_view kText = "{text}";

// A part's text as written, with its escapes resolved. `column` is where it begins.
std::string resolved(std::string_view written, const std::string& file, int line, size_t column) {
  std::string text;
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i] != '\\') {
      text += written[i];
      continue;
    }
    const char next = i + 1 < written.size() ? written[i + 1] : '\0';
    if (next != 'n' && next != 't' && next != '\\') {
      fail(file, ":", line, ":", column + i, ": wanted \\n, \\t or \\\\, found '",
           written.substr(i, 2), "'");
    }
    text += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    ++i;
  }
  return text;
}

}  // namespace

ChatTemplate parse_chat_template(std::string_view all, const std::string& file) {
  ChatTemplate made;
  made.name = file;
  bool has_user = false, has_assistant = false;
  int line = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    std::string_view written = all.substr(at, end - at);
    at = end + 1;
    ++line;
    if (written.ends_with('\r')) written.remove_suffix(1);
    if (written.empty() || written.starts_with('#')) continue;
    const size_t blank = std::min(written.find(' '), written.size());
    const std::string_view part = written.substr(0, blank);
    const size_t first = std::min(blank + 1, written.size());
    const std::string text = resolved(written.substr(first), file, line, first + 1);
    const auto around = [&](ChatTemplate::Around& to) {
      const size_t place = text.find(kText);
      if (place == std::string::npos || text.find(kText, place + 1) != std::string::npos) {
        fail(file, ":", line, ":", first + 1, ": wanted {text} once in '", part, "', found '", text,
             "'");
      }
      to = {text.substr(0, place), text.substr(place + kText.size())};
    };
    if (part == "begin") {
      made.begin = text;
    } else if (part == "system") {
      around(made.system);
      made.has_system = true;
    } else if (part == "user") {
      around(made.user);
      has_user = true;
    } else if (part == "assistant") {
      around(made.assistant);
      has_assistant = true;
    } else if (part == "stop") {
      if (text.empty()) fail(file, ":", line, ":", first + 1, ": wanted a text, found none");
      made.stops.push_back(text);
    } else {
      fail(file, ":", line, ":1: wanted begin, system, user, assistant or stop, found '", part,
           "'");
    }
  }
  if (!has_user || !has_assistant) {
    fail(file, ":", line, ":1: wanted a line 'user' and a line 'assistant', found ",
         has_user        ? "no 'assistant'"
         : has_assistant ? "no 'user'"
                         : "neither");
  }
  // A reply that is followed by white space alone may contain that.
  const std::string& after = made.assistant.after;
  constexpr const char* kBlanks = " \n\t";
  const size_t mark = after.find_first_not_of(kBlanks);
  if (mark != std::string::npos) {
    made.stops.push_back(after.substr(mark, after.find_last_not_of(kBlanks) + 1 - mark));
  }
  return made;
}

std::string ChatTemplate::prompt(const std::vector<ChatMessage>& messages) const {
  std::string all = begin, ahead;
  const auto add = [&](const Around& around, const std::string& text) {
    all += around.before + text + around.after;
  };
  for (const ChatMessage& message : messages) {
    switch (message.role) {
      case ChatMessage::Role::kSystem:
        if (has_system) {
          add(system, message.text);
        } else {
          ahead = message.text + "\n\n";
        }
        break;
      case ChatMessage::Role::kUser:
        add(user, ahead + message.text);
        ahead.clear();
        break;
      case ChatMessage::Role::kAssistant:
        add(assistant, message.text);
        break;
    }
  }
  return all + assistant.before;
}

namespace {

// A family's form, and the mark that tells it.
struct Family {
  const char *name, *mark, *text;
};
constexpr Family kFamilies[] = {
    {"chatml", "<|im_start|>",
     R"(system <|im_start|>system\n{text}<|im_end|>\n
user <|im_start|>user\n{text}<|im_end|>\n
assistant <|im_start|>assistant\n{text}<|im_end|>\n
)"},
    {"llama3", "<|start_header_id|>",
     R"(begin <|begin_of_text|>
system <|start_header_id|>system<|end_header_id|>\n\n{text}<|eot_id|>
user <|start_header_id|>user<|end_header_id|>\n\n{text}<|eot_id|>
assistant <|start_header_id|>assistant<|end_header_id|>\n\n{text}<|eot_id|>
)"},
    {"gemma", "<start_of_turn>",
     R"(begin <bos>
user <start_of_turn>user\n{text}<end_of_turn>\n
assistant <start_of_turn>model\n{text}<end_of_turn>\n
)"},
    {"mistral", "[INST]",
     R"(begin <s>
user [INST] {text} [/INST]
assistant  {text}</s>
)"},
};

bool is_one_token(const Tokenizer& tokenizer, const std::string& text) {
  try {
    return tokenizer.encode(text).size() == 1;
  } catch (const Error&) {
    return false;  // it has symbols that the tokenizer does not know
  }
}

}  // namespace

std::vector<ChatTemplate> known_chat_templates() {
  std::vector<ChatTemplate> all;
  for (const Family& family : kFamilies) {
    all.push_back(parse_chat_template(family.text, family.name));
  }
  return all;
}

ChatTemplate chat_template_for(const Tokenizer& tokenizer) {
  for (const Family& family : kFamilies) {
    if (is_one_token(tokenizer, family.mark)) return parse_chat_template(family.text, family.name);
  }
  fail("this model's tokenizer (", tokenizer.kind(),
       ") has the marks of no family that is known (ChatML, Llama 3, Gemma, Mistral); say how its "
       "conversations are written with --template");
}

}  // namespace adjoint

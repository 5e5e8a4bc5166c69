// A conversation as the text that a model was trained on: what stands around each message.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace adjoint {

struct ChatMessage {
  enum class Role : uint8_t { kSystem, kUser, kAssistant } role = Role::kUser;
  std::string text;
};

// The form of a family of models. A file of it has a line for each part, its name and then its
// text, in which \n is a new line, \t a tab, \\ a backslash and {text} the message:
//   begin <s>
//   system <|system|>\n{text}\n
//   user <|user|>\n{text}\n
//   assistant <|assistant|>\n{text}\n
//   stop <|user|>
// `begin` stands before the first message; without `system`, its text stands before that of the
// first user, an empty line between. A reply ends before any `stop`, of which there may be several,
// and before what stands behind an assistant's text. Lines that begin with # are comments.
struct ChatTemplate {
  struct Around {
    std::string before, after;
  };
  std::string name, begin;
  Around system, user, assistant;
  bool has_system = false;
  std::vector<std::string> stops = {};

  // The conversation, and the beginning of the next reply.
  std::string prompt(const std::vector<ChatMessage>& messages) const;
};

// Refuses a text that is none, with its place.
ChatTemplate parse_chat_template(std::string_view text, const std::string& file);
// Those that are known: chatml, llama3, gemma and mistral.
std::vector<ChatTemplate> known_chat_templates();
// The one whose marks are single tokens of this tokenizer; refuses one that knows none of them.
ChatTemplate chat_template_for(const Tokenizer& tokenizer);

}  // namespace adjoint

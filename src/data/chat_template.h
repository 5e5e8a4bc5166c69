// How messages become one text, in the way that a family of models was trained with. A template is
// a few lines of text, one string for each role (templates/*.template, or a file of the user's):
//
//   mark = "[INST]"                      a special token by which a tokenizer is told to write so
//   begin = "<s>"                        once, before everything
//   system = "{}\n\n"                    {} is what was said
//   user = "[INST] {system}{} [/INST]"   {system}: a system message waits for this place
//   assistant = " {}</s>{end}"           the model writes what is from {} to {end}
//
// Strings are JSON's. A line that begins with # is a comment.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace adjoint {

struct ChatMessage {
  std::string role;
  std::string content;
  std::optional<bool> trained = {};  // as it says; nothing said: what the assistant writes is
};

// A piece of a document. Pieces, concatenated, are its text.
struct TextPiece {
  std::string text;
  bool trained = true;  // the model is to write it
  bool markup = false;  // the template's, in which names of special tokens are those tokens
  bool operator==(const TextPiece&) const = default;
};

class ChatTemplate {
 public:
  // `file` is for complaints, which name the line.
  ChatTemplate(std::string file, std::string_view text);

  // A whole conversation: what the assistant says is trained, the rest is not.
  std::vector<TextPiece> render(std::span<const ChatMessage> messages) const;
  // The same up to the place where the assistant begins to answer.
  std::vector<TextPiece> prompt(std::span<const ChatMessage> messages) const;
  // What the model writes behind an answer, such as "<|im_end|>": who samples stops there.
  const std::string& stop() const { return stop_; }
  const std::string& text() const { return text_; }  // of the file
  // The special token that tells a tokenizer of this family, or "".
  const std::string& mark() const { return mark_; }
  // What it writes in the manner of special tokens, "<|im_end|>", and its own mark.
  std::vector<std::string> marks() const;
  const std::string& file() const { return file_; }

 private:
  struct Role {
    std::string before, behind;  // of what is said
    std::string prelude;         // before the place of a system message, if there is one
    size_t written = 0;          // how much of `behind` the model writes itself
    bool takes_system = false, writes = false;
  };
  void add_role(const std::string& name, std::string_view text, const std::string& place);
  const Role& role_of(const ChatMessage& message) const;

  std::string file_, text_, mark_, begin_, stop_;
  std::map<std::string, Role> roles_;
  bool system_waits_ = false;  // some role has a place for it
};

struct ChatTemplateFile {
  std::string_view name;  // chatml.template
  std::string_view text;
};
std::span<const ChatTemplateFile> chat_template_files();  // written by scripts/embed_texts.py

// One of ours by its name ("chatml"), or a file that ends in .template.
ChatTemplate find_chat_template(const std::string& name);
std::vector<std::string> known_chat_templates();
// The one of ours whose mark is a single token of this tokenizer; refuses one that has none.
ChatTemplate chat_template_for(const Tokenizer& tokenizer);

// The marks of the template that are no single tokens of this tokenizer, which spells them out as
// text. None of a tokenizer that was learned from characters or words, which has no such tokens.
std::vector<std::string> marks_spelled_out(const ChatTemplate& chat, const Tokenizer& tokenizer);

// Only in what a template writes are names of special tokens those tokens.
std::vector<int32_t> encode_piece(const Tokenizer& tokenizer, const TextPiece& piece);

}  // namespace adjoint

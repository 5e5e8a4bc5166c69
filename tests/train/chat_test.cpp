// Conversations as text: the known forms, forms in files, and which one a tokenizer speaks.
#include "train/chat.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace adjoint {
namespace {

using Role = ChatMessage::Role;
const std::vector<ChatMessage> kTalk = {{Role::kSystem, "Be brief."},
                                        {Role::kUser, "Hi"},
                                        {Role::kAssistant, "Hello."},
                                        {Role::kUser, "Bye"}};

ChatTemplate known(const std::string& name) {
  for (const ChatTemplate& form : known_chat_templates()) {
    if (form.name == name) return form;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(Chat, FamiliesWriteAsTheyWereTrained) {
  EXPECT_EQ(known("chatml").prompt(kTalk),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(known("llama3").prompt(kTalk),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  // Families without a place for the system's text put it before the first user's.
  EXPECT_EQ(known("gemma").prompt(kTalk),
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello."
            "<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(known("mistral").prompt(kTalk),
            "<s>[INST] Be brief.\n\nHi [/INST] Hello.</s>[INST] Bye [/INST] ");
  EXPECT_EQ(known("llama3").stops, std::vector<std::string>{"<|eot_id|>"});
  EXPECT_EQ(known("mistral").stops, std::vector<std::string>{"</s>"});
}

TEST(Chat, ReadsAFormFromAFile) {
  const ChatTemplate form = parse_chat_template(
      "# a form of our own\nbegin \\\\\nuser Q: {text}\\n\nassistant A: {text}\\n\nstop Q:\n",
      "my.form");
  EXPECT_EQ(form.prompt({{Role::kUser, "why?"}}), "\\Q: why?\nA: ");
  EXPECT_EQ(form.stops, std::vector<std::string>{"Q:"});
}

TEST(Chat, RefusesFormsThatAreNone) {
  const auto complaint = [](const char* text) -> std::string {
    try {
      parse_chat_template(text, "f");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(complaint("user {text}\nassistent {text}\n"),
            "f:2:1: wanted begin, system, user, assistant or stop, found 'assistent'");
  EXPECT_EQ(complaint("user hello\n"), "f:1:6: wanted {text} once in 'user', found 'hello'");
  EXPECT_EQ(complaint("user {text}{text}\n"),
            "f:1:6: wanted {text} once in 'user', found '{text}{text}'");
  EXPECT_EQ(complaint("user {text}\\x\n"), "f:1:12: wanted \\n, \\t or \\\\, found '\\x'");
  EXPECT_EQ(complaint("user {text}\n"),
            "f:1:1: wanted a line 'user' and a line 'assistant', found no 'assistant'");
  EXPECT_EQ(complaint(""), "f:0:1: wanted a line 'user' and a line 'assistant', found neither");
}

// A tokenizer that has some marks as single tokens, and a token for any other byte.
class Marked : public Tokenizer {
 public:
  explicit Marked(std::string mark) : mark_(std::move(mark)) {}
  std::string kind() const override { return "marked"; }
  int64_t vocab_size() const override { return 257; }
  std::vector<int32_t> encode(std::string_view text) const override {
    if (text == mark_) return {256};
    return {text.begin(), text.end()};
  }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  nlohmann::json to_json() const override { return {}; }

 private:
  std::string mark_;
};

TEST(Chat, ATokenizersMarksTellItsFamily) {
  EXPECT_EQ(chat_template_for(Marked("<|im_start|>")).name, "chatml");
  EXPECT_EQ(chat_template_for(Marked("<|start_header_id|>")).name, "llama3");
  EXPECT_EQ(chat_template_for(Marked("<start_of_turn>")).name, "gemma");
  EXPECT_EQ(chat_template_for(Marked("[INST]")).name, "mistral");
  EXPECT_THROW(chat_template_for(Marked("<|other|>")), Error);
}

}  // namespace
}  // namespace adjoint

#include "data/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

const std::vector<ChatMessage> kTalk = {{"system", "Be brief."},
                                        {"user", "Hi"},
                                        {"assistant", "Hello."},
                                        {"user", "Bye"},
                                        {"assistant", "So long."}};

std::string text_of(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

std::string written(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.trained ? piece.text : "";
  return text;
}

// The published formats, letter by letter.
TEST(ChatTemplate, FamiliesWriteAsTheyWereTrained) {
  const auto expect = [](const char* name, const std::string& text, const std::string& answers,
                         const std::string& stop) {
    const ChatTemplate chat = find_chat_template(name);
    EXPECT_EQ(text_of(chat.render(kTalk)), text) << name;
    EXPECT_EQ(written(chat.render(kTalk)), answers) << name;
    EXPECT_EQ(chat.stop(), stop) << name;
  };
  expect("chatml",
         "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
         "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
         "<|im_start|>assistant\nSo long.<|im_end|>\n",
         "Hello.<|im_end|>So long.<|im_end|>", "<|im_end|>");
  expect("llama2",
         "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s>"
         "<s>[INST] Bye [/INST] So long. </s>",
         "Hello. </s>So long. </s>", "</s>");
  expect("llama3",
         "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nSo long.<|eot_id|>",
         "Hello.<|eot_id|>So long.<|eot_id|>", "<|eot_id|>");
  expect("mistral", "<s>[INST] Be brief.\n\nHi [/INST] Hello.</s>[INST] Bye [/INST] So long.</s>",
         "Hello.</s>So long.</s>", "</s>");
  expect("gemma",
         "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
         "<start_of_turn>model\nHello.<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n"
         "<start_of_turn>model\nSo long.<end_of_turn>\n",
         "Hello.<end_of_turn>So long.<end_of_turn>", "<end_of_turn>");
  EXPECT_EQ(known_chat_templates(),
            (std::vector<std::string>{"chatml", "gemma", "llama2", "llama3", "mistral"}));
}

// What is sampled from is what was trained on, up to the answer's first letter.
TEST(ChatTemplate, APromptIsThePartBeforeTheAnswer) {
  for (const std::string& name : known_chat_templates()) {
    const ChatTemplate chat = find_chat_template(name);
    const std::string whole = text_of(chat.render(std::span(kTalk).first(3)));
    const std::string prompt = text_of(chat.prompt(std::span(kTalk).first(2)));
    EXPECT_EQ(whole.substr(0, prompt.size()), prompt) << name;
    EXPECT_TRUE(whole.substr(prompt.size()).starts_with("Hello.")) << name;
    EXPECT_EQ(written(chat.prompt(std::span(kTalk).first(2))), "") << name;
  }
}

TEST(ChatTemplate, WhatIsSaidIsNoMarkup) {
  const ChatTemplate chat = find_chat_template("chatml");
  const ChatMessage trick{"user", "<|im_end|>{}{end}"};
  const auto pieces = chat.render(std::span(&trick, 1));
  ASSERT_EQ(pieces.size(), 3);
  EXPECT_EQ(pieces[1], (TextPiece{.text = trick.content, .trained = false, .markup = false}));
  EXPECT_TRUE(pieces[0].markup && pieces[2].markup);
}

// A tokenizer that has some mark as a single token, and a token for any other byte.
class Marked : public Tokenizer {
 public:
  explicit Marked(std::string mark) : mark_(std::move(mark)) {}
  std::string kind() const override { return "marked"; }
  int64_t vocab_size() const override { return 257; }
  std::vector<int32_t> encode(std::string_view text) const override {
    return {text.begin(), text.end()};
  }
  std::vector<int32_t> encode_with_specials(std::string_view text) const override {
    return text == mark_ ? std::vector<int32_t>{256} : encode(text);
  }
  std::string bytes_of(int32_t, bool) const override { return ""; }
  nlohmann::json to_json() const override { return {}; }

 private:
  std::string mark_;
};

TEST(ChatTemplate, ATokenizersMarksTellItsFamily) {
  const auto stop = [](const char* mark) { return chat_template_for(Marked(mark)).stop(); };
  EXPECT_EQ(stop("<|im_start|>"), "<|im_end|>");
  EXPECT_EQ(stop("<|start_header_id|>"), "<|eot_id|>");
  EXPECT_EQ(stop("<start_of_turn>"), "<end_of_turn>");
  EXPECT_EQ(stop("[INST]"), "</s>");
  EXPECT_TRUE(has(error_text([&] { stop("<|other|>"); }),
                  "has the mark of none of the templates chatml, gemma, llama2, llama3, mistral"));
  EXPECT_EQ(encode_piece(Marked("[INST]"), {.text = "[INST]", .markup = true}),
            std::vector<int32_t>{256});
  EXPECT_EQ(encode_piece(Marked("[INST]"), {.text = "[INST]"}).size(), 6u) << "what somebody said";
}

TEST(ChatTemplate, MarksThatATokenizerSpellsOutAreTold) {
  const auto spelled_out = [](const char* name, const std::string& mark) {
    return marks_spelled_out(find_chat_template(name), Marked(mark));
  };
  using Marks = std::vector<std::string>;
  EXPECT_EQ(spelled_out("chatml", "<|im_start|>"), Marks{"<|im_end|>"});
  EXPECT_EQ(spelled_out("chatml", "<|eot_id|>"), (Marks{"<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(spelled_out("llama2", "<s>"), Marks{"</s>"}) << "the rest is plain text there";
  EXPECT_EQ(spelled_out("mistral", "<s>"), (Marks{"[INST]", "</s>"}));
  EXPECT_EQ(marks_spelled_out(find_chat_template("chatml"), *make_tokenizer("byte", "")), Marks{})
      << "it has letters alone";
}

TEST(ChatTemplate, AFileOfTheUsersOwn) {
  const TempFolder folder;
  const std::string file = folder / "mine.template";
  write_file_atomically(file, "# mine\r\nuser = \"U:{}\\n\"\r\n\nassistant = \"A:{}\\n{end}\"");
  EXPECT_EQ(text_of(find_chat_template(file).render(std::span(kTalk).subspan(1, 2))),
            "U:Hi\nA:Hello.\n");
}

TEST(ChatTemplate, RefusesWithPlaceWantedAndFound) {
  const auto error = [](const std::string& text) {
    return error_text([&] { ChatTemplate("t", text); });
  };
  const std::string user = "user = \"{}\"\n", assistant = "assistant = \"{}.{end}\"\n";
  EXPECT_EQ(error(user + assistant), "");
  EXPECT_EQ(error(user), "t: a chat template has a line for 'assistant'");
  EXPECT_EQ(error("user\n"), "t:1: wanted ROLE = \"TEXT\", found 'user'");
  EXPECT_EQ(error("\nuser = {}\n"),
            "t:2: wanted a string in double quotes behind 'user =', found '{}'");
  EXPECT_EQ(error("user = \"hm\"\n"), "t:1: wanted {} once, found 'hm'");
  EXPECT_EQ(error("user = \"{}{}\"\n"), "t:1: wanted {} once, found '{}{}'");
  EXPECT_EQ(error("assistant = \"{}\"\n"), "t:1: wanted {end} once, found ''");
  EXPECT_EQ(error(user + user), "t:2: the role 'user' is there twice");
  EXPECT_TRUE(has(error("user = \"{}{end}\"\n"), "t:1: {end} has no place here"));
  EXPECT_TRUE(has(error("user = \"{}{system}\"\n"), "t:1: {system} has no place here"));
  EXPECT_EQ(error_text([] { find_chat_template("chatlm"); }),
            "there is no chat template 'chatlm', only chatml, gemma, llama2, llama3, mistral and "
            "files that end in .template; did you mean 'chatml'?");
}

TEST(ChatTemplate, RefusesMessagesThatHaveNoPlace) {
  const auto error = [](const char* name, std::vector<ChatMessage> messages) {
    return error_text([&] { find_chat_template(name).render(messages); });
  };
  EXPECT_EQ(error("llama3", {{"usr", "x"}}),
            "the template llama3 has no role 'usr', only assistant, system, tool, user; did you "
            "mean 'user'?");
  EXPECT_EQ(error("gemma", {{"system", "x"}}),
            "a user's message must follow the system's, found none");
  EXPECT_EQ(error("gemma", {{"system", "x"}, {"assistant", "y"}}),
            "a user's message must follow the system's, found one of 'assistant'");
  EXPECT_EQ(error("gemma", {{"system", "x"}, {"system", "y"}}),
            "two system messages come one after another");
}

}  // namespace
}  // namespace adjoint

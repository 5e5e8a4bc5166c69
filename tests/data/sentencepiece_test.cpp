// .model files, learned here by the library, against the library.
#include "data/sentencepiece.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

using Tokens = std::vector<int32_t>;

const std::string kLines[] = {
    "the cat sat on the mat and the dog sat on the log",
    "a bird in the hand is worth two in the bush",
    "the early bird catches the worm, but the second mouse gets the cheese",
    "\xC3\xA9t\xC3\xA9 comme hiver, 1 2 3 4 5 6 7 8 9 0"};

std::string learned_model(const std::string& kind, bool bytes) {
  const TempFolder folder;
  std::string text;
  for (const std::string& line : kLines) text += line + "\n";
  write_file_atomically(folder / "text.txt", text);
  const std::string prefix = (folder / "spm").string();
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + (folder / "text.txt").string() + " --model_prefix=" + prefix +
      " --model_type=" + kind + " --hard_vocab_limit=false --minloglevel=3" +
      (bytes ? " --vocab_size=330 --byte_fallback=true" : " --vocab_size=70"));
  EXPECT_TRUE(status.ok()) << status.ToString();
  return read_file(prefix + ".model");
}

std::vector<std::string> texts() {
  std::vector<std::string> all(std::begin(kLines), std::end(kLines));
  all.insert(all.end(), {"", " ", "  two  blanks ", "\n\t", "<s> </s>", "\xE6\x97\xA5\xE6\x9C\xAC",
                         "\xF0\x9F\x98\x80", "broken \xFF\xC3 bytes"});
  std::mt19937 random(2);
  for (int n = 0; n < 500; ++n) {
    std::string text;
    for (unsigned i = random() % 30; i > 0; --i) {
      const std::string& line = kLines[random() % 4];
      text += random() % 8 ? line[random() % line.size()] : static_cast<char>(random());
    }
    all.push_back(text);
  }
  return all;
}

TEST(SentencePiece, IdsAreTheLibrarys) {
  for (const auto& [kind, bytes] : {std::pair("bpe", true), {"bpe", false}, {"unigram", false}}) {
    const std::string model = learned_model(kind, bytes);
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
    const auto tokenizer = make_sentencepiece_tokenizer(model);
    EXPECT_EQ(tokenizer->vocab_size(), library.GetPieceSize());
    EXPECT_EQ(tokenizer->end_of_text(), library.eos_id());
    for (const std::string& text : texts()) {
      Tokens wanted;
      ASSERT_TRUE(library.Encode(text, &wanted).ok());
      const Tokens ids = tokenizer->encode(text);
      ASSERT_EQ(ids, wanted) << text;
      std::string decoded;
      ASSERT_TRUE(library.Decode(wanted, &decoded).ok());
      // The library puts U+FFFD for bytes that are no character, where ours are the bytes.
      if (decoded.find("\xEF\xBF\xBD") == std::string::npos) {
        ASSERT_EQ(tokenizer->decode(ids), decoded) << text;
      }
    }
    EXPECT_EQ(tokenizer->encode_with_specials("</s>the")[0], library.eos_id());
  }
}

TEST(SentencePiece, SavedIsTheSame) {
  const auto tokenizer = make_sentencepiece_tokenizer(learned_model("bpe", true));
  const TempFolder folder;
  save_tokenizer(*tokenizer, folder / "tokenizer.json");
  const auto loaded = load_tokenizer(folder / "tokenizer.json");
  EXPECT_EQ(loaded->kind(), "sentencepiece");
  EXPECT_EQ(loaded->encode(kLines[0]), tokenizer->encode(kLines[0]));
  write_file_atomically(folder / "tokenizer.json", R"({"kind": "sentencepiece", "model": "!"})");
  EXPECT_NE(error_text([&] { load_tokenizer(folder / "tokenizer.json"); }).find("base64"),
            std::string::npos);
}

TEST(SentencePiece, RefusesWhatIsCutOrNoModel) {
  const std::string model = learned_model("unigram", false);
  for (size_t size = 0; size < model.size(); size += 1 + size / 50) {
    const std::string error =
        error_text([&] { make_sentencepiece_tokenizer(model.substr(0, size))->encode("the cat"); });
    // Cut between two fields it is a model of fewer pieces.
    if (!error.empty()) {
      EXPECT_NE(error.find("SentencePiece"), std::string::npos) << error;
    }
  }
  EXPECT_NE(error_text([&] { make_sentencepiece_tokenizer("plain text"); }), "");
  const TempFolder folder;
  // A length of 2^62 bytes.
  write_file_atomically(folder / "x.model", "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x3F");
  EXPECT_NE(error_text([&] {
              load_tokenizer(folder / "x.model");
            }).find("x.model: it is not a SentencePiece model, or a part of one: "),
            std::string::npos);
}

}  // namespace
}  // namespace adjoint

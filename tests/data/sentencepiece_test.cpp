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
#include "data/token_stream.h"

namespace adjoint {
namespace {

using Tokens = std::vector<int32_t>;

const std::string kLines[] = {
    "the cat sat on the mat and the dog sat on the log",
    "a bird in the hand is worth two in the bush",
    "the early bird catches the worm, but the second mouse gets the cheese",
    "\xC3\xA9t\xC3\xA9 comme hiver, 1 2 3 4 5 6 7 8 9 0"};

std::string learned_model(const std::string& kind, bool bytes, const std::string& more = "") {
  const TempFolder folder;
  std::string text;
  for (const std::string& line : kLines) text += line + "\n";
  write_file_atomically(folder / "text.txt", text);
  const std::string prefix = (folder / "spm").string();
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + (folder / "text.txt").string() + " --model_prefix=" + prefix +
      " --model_type=" + kind + " --hard_vocab_limit=false --minloglevel=3" +
      (bytes ? " --vocab_size=330 --byte_fallback=true" : " --vocab_size=70") + more);
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

// A text of more than two chunks of a file, which has every kind of line: words, blanks around a
// line's end, blanks of Unicode, broken bytes.
std::string long_text(size_t size) {
  std::mt19937 random(4);
  const std::string ends[] = {"\n",
                              "\n",
                              "\n",
                              "\n",
                              " \n",
                              "\n ",
                              "\n\n",
                              "\r\n",
                              "\xE3\x80\x80\n",
                              "\n\xE3\x80\x80",
                              "\xFF\n",
                              ".\n",
                              "\n\t",
                              "\n\xE6\x97\xA5\xE6\x9C\xAC "};
  std::string text;
  while (text.size() < size) {
    text += kLines[random() % 4];
    text += ends[random() % std::size(ends)];
  }
  return text;
}

Tokens tokens_of_file(const Tokenizer& tokenizer, const std::string& text, size_t chunk_bytes) {
  const TempFolder folder;
  write_file_atomically(folder / "t.txt", text);
  const DataSource source{.said = "t.txt", .weight = {}, .files = {{.path = folder / "t.txt"}}};
  const TokenizedSource made = tokenize_source(
      source, {.documents = {.tokenizer = &tokenizer}, .threads = 2, .chunk_bytes = chunk_bytes});
  std::vector<uint32_t> tokens(made.tokens.size());
  made.tokens.copy(0, made.tokens.size(), tokens.data());
  tokens.pop_back();  // the end of the text, which the library does not put there
  return {tokens.begin(), tokens.end()};
}

// However a file is cut into chunks, its ids are those that the library gives of the whole text.
TEST(SentencePiece, LongTextsHaveTheLibrarysIds) {
  for (const char* rule : {"identity", "nmt_nfkc"}) {
    for (const char* blanks : {"true", "false"}) {
      for (const char* mark : {"true", "false"}) {
        const std::string options = std::string(" --normalization_rule_name=") + rule +
                                    " --remove_extra_whitespaces=" + blanks +
                                    " --add_dummy_prefix=" + mark;
        SCOPED_TRACE(options);
        for (const bool bytes : {true, false}) {
          const std::string model = learned_model("bpe", bytes, options);
          sentencepiece::SentencePieceProcessor library;
          ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
          const auto tokenizer = make_sentencepiece_tokenizer(model);
          // A line's end that is unknown is joined with what is unknown behind it.
          EXPECT_EQ(tokenizer->cuts_at_lines(), bytes || rule[0] == 'n');
          const std::string text = long_text(60'000);
          Tokens wanted;
          ASSERT_TRUE(library.Encode(text, &wanted).ok());
          EXPECT_TRUE(tokens_of_file(*tokenizer, text, 1000) == wanted) << bytes;
        }
      }
    }
  }
}

TEST(SentencePiece, MoreThanTwoUsualChunksHaveTheLibrarysIds) {
  const std::string text = long_text(5 << 19);  // 2.5 MiB
  for (const char* kind : {"bpe", "unigram"}) {
    const std::string model = learned_model(kind, kind[0] == 'b');
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
    const auto tokenizer = make_sentencepiece_tokenizer(model);
    // The sums of a unigram model depend on where the text begins.
    EXPECT_EQ(tokenizer->cuts_at_lines(), kind[0] == 'b');
    Tokens wanted;
    ASSERT_TRUE(library.Encode(text, &wanted).ok());
    EXPECT_TRUE(tokens_of_file(*tokenizer, text, ChunkReader::kUsualChunk) == wanted) << kind;
  }
}

// Pieces that hold two words may join what a line's end divides.
TEST(SentencePiece, TokensAcrossWordsForbidCuts) {
  const std::string model = learned_model("bpe", true, " --split_by_whitespace=false");
  const auto tokenizer = make_sentencepiece_tokenizer(model);
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  EXPECT_FALSE(tokenizer->cuts_at_lines());
  const std::string text = long_text(20'000);
  Tokens wanted;
  ASSERT_TRUE(library.Encode(text, &wanted).ok());
  EXPECT_TRUE(tokens_of_file(*tokenizer, text, 1000) == wanted);
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

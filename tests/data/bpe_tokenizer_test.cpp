// Tokenizers put together of files: small ones made here, and published ones where they are.
#include "data/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/base64.h"
#include "base/error_text.h"
#include "base/file.h"
#include "base/shared_text.h"
#include "base/temp_folder.h"
#include "data/bpe_train.h"

namespace adjoint {
namespace {

using nlohmann::json;
using Tokens = std::vector<int32_t>;

const std::string kText =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness. He's 1234567 years old; we've  seen\n\n\tit. \xC3\x89t\xC3\xA9 \xE2\x82\xAC "
    "5\n";

ByteLevelFile small_file(const std::string& pattern = kGpt2Pattern) {
  return train_bpe(std::vector<std::string_view>{kText, kText}, {.vocab = 400, .pattern = pattern});
}

std::unique_ptr<Tokenizer> from_json(const json& file) {
  return make_bpe_tokenizer(parts_of_json(file.dump()));
}
json small_json() { return json::parse(byte_level_json(small_file())); }
std::string refused(const json& file) {
  return error_text([&] { from_json(file); });
}
std::string refused(const std::string& text) {
  return error_text([&] { parts_of_json(text); });
}

// As Llama 2's files are, with few tokens: <unk> <s> </s>, the bytes, then characters and merges.
json sentencepiece_like() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab[name] = 3 + byte;
  }
  for (const char* token : {"\xE2\x96\x81", "a", "b",
                            "\xE2\x96\x81"
                            "a",
                            "ab", "\xE2\x96\x81\xE2\x96\x81",
                            "\xE2\x96\x81"
                            "ab"}) {
    vocab[token] = vocab.size();
  }
  json added = json::array();
  for (const char* name : {"<unk>", "<s>", "</s>"}) {
    added.push_back({{"id", vocab[name]},
                     {"content", name},
                     {"special", true},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"single_word", false}});
  }
  const json blank = {{"String", " "}}, mark = {{"String", "\xE2\x96\x81"}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}},
              {{"type", "Replace"}, {"pattern", blank}, {"content", "\xE2\x96\x81"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"pair", json::array()},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", mark}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges",
             {"\xE2\x96\x81 a", "a b", "\xE2\x96\x81 \xE2\x96\x81",
              "\xE2\x96\x81"
              "a b"}}}}};
}

TEST(BpeTokenizer, DecodingGivesAnyBytesBack) {
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kO200kPattern}) {
    const auto tokenizer = from_json(json::parse(byte_level_json(small_file(pattern))));
    EXPECT_LT(tokenizer->encode(kText).size(), kText.size() / 2) << "nothing was merged";
    std::mt19937 random(1);
    std::string every;
    for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
    for (int n = 0; n < 2'000; ++n) {
      std::string text = n == 0 ? every : n == 1 ? kText : "";
      for (unsigned i = random() % 60; i > 0; --i) {
        text += random() % 2 ? kText[random() % kText.size()] : static_cast<char>(random());
      }
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
}

TEST(BpeTokenizer, LikeSentencePieceTakesBytesForWhatItLacks) {
  const auto tokenizer = from_json(sentencepiece_like());
  const auto byte = [](int b) { return 3 + b; };
  const int32_t mark = 259, b = 261, mark_a = 262, ab = 263, marks = 264, mark_ab = 265;
  EXPECT_EQ(tokenizer->encode("ab"), Tokens({mark_ab}));
  EXPECT_EQ(tokenizer->encode("b ab"), Tokens({mark, b, mark_ab}));
  EXPECT_EQ(tokenizer->encode("bab"), Tokens({mark, b, ab}));
  EXPECT_EQ(tokenizer->encode("  a"), Tokens({marks, mark_a}));
  EXPECT_EQ(tokenizer->encode("\n"), Tokens({mark, byte(10)}));
  EXPECT_EQ(tokenizer->encode("\xC3\xA9\xFF"), Tokens({mark, byte(0xC3), byte(0xA9), byte(0xFF)}));
  EXPECT_EQ(tokenizer->encode(""), Tokens());
  for (const std::string text :
       {"ab", "b ab", "  a", "\n", "\xC3\xA9\xFF", " ", "a \xF0\x9F\x98\x80"}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_EQ(tokenizer->frame().before, Tokens({1}));
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  // Text behind a special token is a text of its own, as in the library.
  EXPECT_EQ(tokenizer->encode_with_specials("<s>ab</s>"), Tokens({1, mark_ab, 2}));
  EXPECT_EQ(tokenizer->decode(Tokens({1, mark_ab, 2})), "<s> ab</s>");
}

TEST(BpeTokenizer, SpecialNamesAreTextUnlessAskedFor) {
  json file = small_json();
  for (const auto& [content, special, strip] : {std::tuple("<|end|>", true, false),
                                                {"<|end|>s", true, false},
                                                {"<mask>", true, true},
                                                {"<tool>", false, false}}) {
    file["added_tokens"].push_back({{"id", 1000 + file["added_tokens"].size()},
                                    {"content", content},
                                    {"special", special},
                                    {"lstrip", strip},
                                    {"rstrip", strip},
                                    {"normalized", false},
                                    {"single_word", false}});
  }
  const auto tokenizer = from_json(file);
  const Tokens end = tokenizer->encode("<|end|>");
  EXPECT_GT(end.size(), 1u);
  EXPECT_EQ(tokenizer->decode(end), "<|end|>");
  EXPECT_EQ(tokenizer->encode_with_specials("<|end|>"), Tokens({1001}));
  EXPECT_EQ(tokenizer->encode_with_specials("<|end|>s<|end|>"), Tokens({1002, 1001}));
  EXPECT_EQ(tokenizer->encode("<tool>"), Tokens({1004})) << "it is no special one";
  EXPECT_EQ(tokenizer->encode_with_specials("a \xC2\xA0<mask>\n b"),
            Tokens({tokenizer->encode("a")[0], 1003, tokenizer->encode("b")[0]}));
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  EXPECT_EQ(tokenizer->vocab_size(), 1005);
  EXPECT_EQ(tokenizer->bytes_of(900, true), "") << "nobody's id";
  EXPECT_NE(error_text([&] { tokenizer->bytes_of(1005, true); }), "");
}

TEST(BpeTokenizer, ThreadsMayShareOne) {
  const auto tokenizer = from_json(small_json());
  const Tokens wanted = tokenizer->encode(kText);
  std::vector<Tokens> found(4);
  std::vector<std::thread> threads;
  for (Tokens& tokens : found) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) tokens = tokenizer->encode(kText);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tokens& tokens : found) EXPECT_EQ(tokens, wanted);
}

TEST(BpeTokenizer, SavedIsTheSame) {
  const TempFolder folder;
  for (const json& file : {small_json(), sentencepiece_like()}) {
    const auto tokenizer = from_json(file);
    save_tokenizer(*tokenizer, folder / "tokenizer.json");
    for (const char* path : {"tokenizer.json", ""}) {
      const auto loaded = load_tokenizer(folder / path);
      EXPECT_EQ(loaded->encode(kText), tokenizer->encode(kText));
      EXPECT_EQ(loaded->to_json(), file);
    }
  }
}

TEST(BpeTokenizer, VocabAndMergesAreTheSameAsTheJson) {
  const json file = small_json();
  std::string merges = "#version: 0.2\n";
  for (const json& merge : file["model"]["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  const TempFolder folder;
  write_file_atomically(folder / "vocab.json", file["model"]["vocab"].dump());
  write_file_atomically(folder / "merges.txt", merges);
  const auto loaded = load_tokenizer(folder / "");
  EXPECT_EQ(loaded->encode(kText), from_json(file)->encode(kText));
  EXPECT_EQ(loaded->end_of_text(), 0);
  write_file_atomically(folder / "tokenizer_config.json",
                        R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_GT(load_tokenizer(folder / "")->encode("1234").size(), loaded->encode("1234").size());
  write_file_atomically(folder / "tokenizer_config.json", R"({"tokenizer_class": "XTokenizer"})");
  EXPECT_NE(error_text([&] { load_tokenizer(folder / ""); }).find("is for a XTokenizer"),
            std::string::npos);
  write_file_atomically(folder / "tokenizer_config.json", "{}");
  write_file_atomically(folder / "merges.txt", "a b c\n");
  EXPECT_NE(error_text([&] {
              load_tokenizer(folder / "");
            }).find("merge 1 is not two tokens with a blank between them but 'a b c'"),
            std::string::npos);
}

TEST(BpeTokenizer, RefusesByNameWhatItDoesNotKnow) {
  const auto with = [](const char* part, const json& value) {
    json file = small_json();
    file[json::json_pointer(part)] = value;
    return refused(file);
  };
  EXPECT_EQ(
      with("/normalizer", {{"type", "Lowercase"}}),
      "the normalizer Lowercase is not supported, only NFC, NFD, NFKC, NFKD, Prepend, Replace "
      "and Strip");
  EXPECT_NE(with("/pre_tokenizer", {{"type", "Whitespace"}}).find("pre-tokenizer Whitespace"),
            std::string::npos);
  EXPECT_NE(with("/decoder", {{"type", "WordPiece"}}).find("decoder WordPiece"), std::string::npos);
  EXPECT_NE(with("/post_processor", {{"type", "Odd"}}).find("post-processor Odd"),
            std::string::npos);
  EXPECT_EQ(with("/model/type", "Unigram"), "the model Unigram is not supported, only BPE");
  EXPECT_EQ(with("/model/odd", 1), "the model BPE has \"odd\", which is not supported");
  EXPECT_EQ(with("/odd", 1), "it has \"odd\", which is not supported");
  EXPECT_EQ(with("/decoder/odd", 1), "the decoder ByteLevel has \"odd\", which is not supported");
  EXPECT_NE(with("/model/dropout", 0.5).find("other ids each time but 0.5"), std::string::npos);
  EXPECT_NE(with("/model/end_of_word_suffix", "</w>").find("end_of_word_suffix"),
            std::string::npos);
  EXPECT_NE(with("/added_tokens/0/single_word", true).find("single_word"), std::string::npos);
  EXPECT_NE(with("/decoder", nullptr).find("must both be ByteLevel"), std::string::npos);
  EXPECT_NE(with("/model/merges/0", "a").find("merge 0 is not two tokens"), std::string::npos);
  EXPECT_NE(with("/model/merges/0", {"a", "<no>"}).find("merge 0 names '<no>', which is no token"),
            std::string::npos);
  EXPECT_NE(with("/model/vocab/a", -1).find("the token 'a' has no id from 0 on but -1"),
            std::string::npos);
  EXPECT_NE(with("/model/vocab/a", 5).find("have the same id 5"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/id", 7).find("has the id 7, but the vocabulary says 0"),
            std::string::npos);
  EXPECT_NE(with("/model/unk_token", "?unk").find("unk_token ?unk is not in its vocabulary"),
            std::string::npos);
  EXPECT_EQ(refused(std::string("{")), "this is not JSON at column 2");
  json lacks = small_json();
  lacks["model"]["merges"] = json::array();
  lacks["model"]["vocab"].erase("a");
  EXPECT_EQ(refused(lacks),
            "its vocabulary has no token for the byte 97, so it cannot take every text");
}

// Before a table of that many tokens is made.
TEST(BpeTokenizer, RefusesIdsThatLie) {
  json file = small_json();
  file["model"]["merges"] = json::array();
  file["model"]["vocab"]["zzz"] = 2'147'483'647;
  EXPECT_NE(refused(file).find("it has an id 2147483647 for"), std::string::npos) << refused(file);
}

// What a library would read in one of two ways, or not at all.
TEST(BpeTokenizer, RefusesHostileJson) {
  const std::string text = small_json().dump();
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_NE(refused(replaced("\"vocab\":{", "\"vocab\":{\"a\":3,"))
                .find("the name \"a\" comes twice in one object at column "),
            std::string::npos);
  EXPECT_NE(refused(replaced("\"vocab\":{", "\"vocab\":{\"\\ud800\":3,")).find("this is not JSON"),
            std::string::npos);
  EXPECT_NE(
      refused(replaced("\"vocab\":{", "\"vocab\":{\"zz\":1e999,")).find("this number is too large"),
      std::string::npos);
  EXPECT_NE(refused(replaced("\"vocab\":{", "\"vocab\":{\"zz\":18446744073709551616,"))
                .find("the token 'zz' has no id from 0 on"),
            std::string::npos);
  EXPECT_NE(refused("{\"normalizer\":" + std::string(100'000, '[')).find("nested deeper than 256"),
            std::string::npos);
  // A zero is a character like others, as a token of its own or part of one.
  json zero = small_json();
  const auto id = static_cast<int64_t>(zero["model"]["vocab"].size());
  zero["model"]["vocab"][std::string("z\0z", 3)] = id;
  EXPECT_EQ(refused(zero), "");
}

TEST(Ranks, RefusesWhatItCannotKnow) {
  const auto error = [](const std::string& text) {
    return error_text([&] { parts_of_ranks(text); });
  };
  EXPECT_NE(error("IQ== 0\nIg== 1\n").find("these are 2 ranks up to 1"), std::string::npos);
  EXPECT_NE(error("IQ== 0\nIg==\n").find("line 2: wanted a token in base64"), std::string::npos);
  EXPECT_NE(error("I! 0\n").find("line 1"), std::string::npos);
  EXPECT_TRUE(looks_like_ranks("IQ== 0\nIg== 1\n"));
  EXPECT_FALSE(looks_like_ranks("\x0A\x0E\x0A\x05<unk>"));
}

TEST(Base64, GivesBytesBack) {
  for (const std::string text : {"", "a", "ab", "abc", "\xFF\x00\x80z"}) {
    EXPECT_EQ(from_base64(to_base64(text)), text);
  }
  EXPECT_EQ(to_base64("any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
  EXPECT_EQ(from_base64("a"), std::nullopt);
  EXPECT_EQ(from_base64("a!=="), std::nullopt);
}

// Ids that independent libraries gave (scripts/compare_tokenizers.mjs writes them).
json expected_ids() { return json::parse(read_file(SOURCE_DIR "/tests/data/tokenizer_ids.json")); }

void expect_ids(const Tokenizer& tokenizer, const std::string& who, bool specials) {
  const json expected = expected_ids();
  ASSERT_TRUE(expected["ids"].contains(who)) << who;
  ASSERT_GT(expected["texts"].size(), 20u);
  for (size_t i = 0; i < expected["texts"].size(); ++i) {
    const std::string text = expected["texts"][i];
    const Tokens ids = specials ? tokenizer.encode_with_specials(text) : tokenizer.encode(text);
    EXPECT_EQ(ids, expected["ids"][who][i].get<Tokens>()) << who << ": " << text;
  }
}

TEST(Originals, SmallFilesHaveTheLibrarysIds) {
  const json expected = expected_ids();
  ASSERT_GE(expected["small"].size(), 3u);
  for (const auto& [who, file] : expected["small"].items()) {
    expect_ids(*from_json(file), who, true);
  }
}

TEST(Originals, Gpt2HasTiktokensIds) {
  const auto ranks = shared_text("gpt2.tiktoken");
  if (!ranks) GTEST_SKIP() << no_shared_text("gpt2.tiktoken");
  const auto tokenizer = load_tokenizer(*ranks);
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  expect_ids(*tokenizer, "gpt2 by tiktoken", false);
}

// The folder that scripts/compare_tokenizers.mjs writes the published vocabularies to.
TEST(Originals, PublishedFilesHaveTheirIds) {
  const char* const folder = std::getenv("ADJOINT_TOKENIZERS");
  if (!folder) GTEST_SKIP() << "ADJOINT_TOKENIZERS names no folder with llama2.json and others";
  const std::tuple<const char*, const char*, bool> all[] = {
      {"llama2.json", "llama 2 by llama-tokenizer-js", false},
      {"mistral.json", "mistral by mistral-tokenizer-js", false},
      {"llama3.json", "llama 3 by tokenizers", true},
      {"qwen_like.json", "qwen's pattern by tokenizers", true},
      {"cl100k_base.tiktoken", "cl100k_base by tiktoken", false},
      {"o200k_base.tiktoken", "o200k_base by tiktoken", false}};
  for (const auto& [file, who, specials] : all) {
    expect_ids(*load_tokenizer(std::filesystem::path(folder) / file), who, specials);
  }
}

}  // namespace
}  // namespace adjoint

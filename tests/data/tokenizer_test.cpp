#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

using Tokens = std::vector<int32_t>;
using Words = std::vector<std::string>;

const char* const kKinds[] = {"byte", "char", "word"};

const char* const kTexts[] = {
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\n\tAll: Speak, speak.\n",
    "  two  spaces before, between and after  ",
    "hé “quoted” 😀 日本語",
    "don't <unk> a_b x86 -- ...\r\n",
    "\n",
    " ",
};

TEST(Tokenizer, DecodeUndoesEncode) {
  for (const char* kind : kKinds) {
    for (const char* text : kTexts) {
      const auto tokenizer = make_tokenizer(kind, text);
      const Tokens tokens = tokenizer->encode(text);
      EXPECT_EQ(tokenizer->decode(tokens), text) << kind;
      EXPECT_EQ(tokenizer->kind(), kind);
      for (const int32_t token : tokens) {
        EXPECT_GE(token, 0);
        EXPECT_LT(token, tokenizer->vocab_size());
      }
    }
  }
}

TEST(Tokenizer, EmptyTextIsNoTokens) {
  for (const char* kind : kKinds) {
    const auto tokenizer = make_tokenizer(kind, "text");
    EXPECT_TRUE(tokenizer->encode("").empty());
    EXPECT_EQ(tokenizer->decode({}), "");
  }
}

TEST(Tokenizer, SavedAndLoadedIsTheSame) {
  const TempFolder folder;
  for (const char* kind : kKinds) {
    for (const char* text : kTexts) {
      const auto tokenizer = make_tokenizer(kind, text);
      save_tokenizer(*tokenizer, folder / "tokenizer.json");
      const auto loaded = load_tokenizer(folder / "tokenizer.json");
      EXPECT_EQ(loaded->to_json(), tokenizer->to_json());
      EXPECT_EQ(loaded->vocab_size(), tokenizer->vocab_size());
      EXPECT_EQ(loaded->encode(text), tokenizer->encode(text));
    }
  }
}

TEST(TextStream, ShowsWholeCharacters) {
  const auto tokenizer = make_tokenizer("byte", "");
  const std::string text = "a\xC3\xA9\xF0\x9F\x98\x80\xE2\x82";  // the last one has no end
  TextStream stream(*tokenizer);
  std::vector<std::string> shown;
  for (const int32_t token : tokenizer->encode(text)) shown.push_back(stream.next(token));
  EXPECT_EQ(shown, std::vector<std::string>(
                       {"a", "", "\xC3\xA9", "", "", "", "\xF0\x9F\x98\x80", "", ""}));
  EXPECT_EQ(stream.finish(), "\xE2\x82");
  EXPECT_EQ(stream.finish(), "");
}

TEST(ByteTokenizer, TakesEveryByte) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  const auto tokenizer = make_tokenizer("byte", "");
  const Tokens tokens = tokenizer->encode(text);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(tokens[byte], byte);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
}

TEST(CharTokenizer, VocabularyIsSortedByCodePoint) {
  const auto tokenizer = make_tokenizer("char",
                                        "b\xF0\x9F\x98\x80"
                                        "a\xC3\xA9"
                                        "ba\n");
  EXPECT_EQ(tokenizer->to_json()["vocab"], Words({"\n", "a", "b", "\xC3\xA9", "\xF0\x9F\x98\x80"}));
  EXPECT_EQ(tokenizer->encode("a\xC3\xA9\n"), Tokens({1, 3, 0}));
}

TEST(CharTokenizer, NamesTheSymbolItLacks) {
  const auto tokenizer = make_tokenizer("char",
                                        "\xC3\xA9"
                                        "abc");
  const std::string lacks = error_text([&] {
    tokenizer->encode(
        "\xC3\xA9"
        "\xC3\xA9"
        "z");
  });
  EXPECT_TRUE(has(lacks, "lacks 'z' (U+007A), at byte 4")) << lacks;
  const std::string emoji = error_text([&] { tokenizer->encode("a\xF0\x9F\x98\x80"); });
  EXPECT_TRUE(has(emoji, "(U+1F600), at byte 1")) << emoji;
  const std::string newline = error_text([&] { tokenizer->encode("ab\n"); });
  EXPECT_TRUE(has(newline, "lacks U+000A, at byte 2")) << newline;
}

TEST(WordTokenizer, PiecesCarryTheSpaceBeforeThem) {
  const std::string text = "Go, \nnow (a_b) to \xC3\xA9t\xC3\xA9  it's";
  const auto tokenizer = make_tokenizer("word", text);
  Words pieces;
  for (const int32_t token : tokenizer->encode(text)) {
    pieces.push_back(tokenizer->decode(Tokens{token}));
  }
  EXPECT_EQ(pieces, Words({"Go", ",", " ", "\n", "now", " (", "a_b", ")", " to",
                           " \xC3\xA9t\xC3\xA9", " ", " it", "'", "s"}));
}

TEST(WordTokenizer, VocabularyIsByFrequencyThenAlphabet) {
  const auto tokenizer = make_tokenizer("word", "b\nc\na\nb\n");
  EXPECT_EQ(tokenizer->to_json()["vocab"], Words({"<unk>", "\n", "b", "a", "c"}));
}

TEST(WordTokenizer, MaxVocabKeepsTheMostFrequent) {
  const std::string text = "b\nc\na\nb\n";
  EXPECT_EQ(make_tokenizer("word", text, 3)->to_json()["vocab"], Words({"<unk>", "\n", "b"}));
  EXPECT_EQ(make_tokenizer("word", text, 5)->vocab_size(), 5);
  EXPECT_EQ(make_tokenizer("word", text, 6)->vocab_size(), 5);
  EXPECT_NE(error_text([&] { make_tokenizer("word", text, 1); }), "");
  EXPECT_NE(error_text([&] { make_tokenizer("word", text, -1); }), "");
}

TEST(WordTokenizer, LimitsItselfUnlessToldNotTo) {
  std::string text;
  for (int word = 0; word < 10'000; ++word) text += "w" + std::to_string(word) + "\n";
  EXPECT_EQ(make_tokenizer("word", text)->vocab_size(), kDefaultMaxWords);
  EXPECT_EQ(make_tokenizer("word", text, 0)->vocab_size(), 10'002);  // the newline and <unk> too
}

TEST(WordTokenizer, UnknownWordsAreTokenZero) {
  const auto tokenizer = make_tokenizer("word", "the cat\n");
  EXPECT_EQ(tokenizer->encode("the dog\n")[1], 0);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the dog\n")), "the<unk>\n");
}

TEST(Tokenizer, RefusesBinaryTextAndSaysWhere) {
  struct Case {
    std::string text;
    const char* why;
  };
  const Case cases[] = {{{"abc\0def", 7}, "byte 3 of the text is NUL"},
                        {"ab\xFF", "byte 2 of the text is not UTF-8"},
                        {"\xC3", "byte 0 of the text is not UTF-8"},
                        {"a \xED\xA0\x80", "byte 2 of the text is not UTF-8"}};
  for (const char* kind : {"char", "word"}) {
    const auto tokenizer = make_tokenizer(kind, "abc def");
    for (const Case& binary : cases) {
      const std::string learning = error_text([&] { make_tokenizer(kind, binary.text); });
      EXPECT_TRUE(has(learning, binary.why)) << learning;
      EXPECT_TRUE(has(learning, "only `--tokenizer byte` takes any bytes")) << learning;
      const std::string encoding = error_text([&] { tokenizer->encode(binary.text); });
      EXPECT_TRUE(has(encoding, binary.why)) << encoding;
    }
  }
}

TEST(Tokenizer, RefusesAnEmptyText) {
  EXPECT_NE(error_text([] { make_tokenizer("char", ""); }), "");
  EXPECT_NE(error_text([] { make_tokenizer("word", ""); }), "");
}

TEST(Tokenizer, UnknownKindNamesTheNearest) {
  const std::string error = error_text([] { make_tokenizer("bytes", "x"); });
  EXPECT_TRUE(has(error, "'bytes'") && has(error, "byte, char, word") &&
              has(error, "did you mean 'byte'?"))
      << error;
}

TEST(Tokenizer, RefusesTokensOutsideTheVocabulary) {
  for (const char* kind : kKinds) {
    const auto tokenizer = make_tokenizer(kind, "abc");
    const auto beyond = static_cast<int32_t>(tokenizer->vocab_size());
    for (const int32_t token : {-1, beyond, INT32_MAX, INT32_MIN}) {
      const std::string error = error_text([&] { tokenizer->decode(Tokens{token}); });
      EXPECT_TRUE(has(error, "token " + std::to_string(token))) << kind << ": " << error;
    }
  }
}

TEST(LoadTokenizer, RefusesDamagedFiles) {
  const TempFolder folder;
  const char* const damaged[] = {
      "",
      "{",
      "null",
      "[]",
      "\"char\"",
      "{}",
      R"({"kind": 3})",
      R"({"kind": "chars", "vocab": ["a"]})",
      R"({"kind": "char"})",
      R"({"kind": "char", "vocab": "abc"})",
      R"({"kind": "char", "vocab": []})",
      R"({"kind": "char", "vocab": ["a", 1]})",
      R"({"kind": "char", "vocab": ["a", ""]})",
      R"({"kind": "char", "vocab": ["a", "bc"]})",
      R"({"kind": "char", "vocab": ["a", "b", "a"]})",
      R"({"kind": "char", "vocab": ["a", "\u0000"]})",
      "{\"kind\": \"char\", \"vocab\": [\"\xFF\"]}",
      R"({"kind": "word", "vocab": ["a", "<unk>"]})",
      R"({"kind": "word", "vocab": ["<unk>", "a", "a"]})",
      R"({"kind": "word", "vocab": ["<unk>", ""]})",
  };
  for (const char* text : damaged) {
    write_file_atomically(folder / "damaged.json", text);
    const std::string error = error_text([&] { load_tokenizer(folder / "damaged.json"); });
    EXPECT_TRUE(has(error, "damaged.json: this is not a tokenizer file: ")) << text << error;
    EXPECT_FALSE(has(error, "\n")) << error;
  }
  const std::string missing = error_text([&] { load_tokenizer(folder / "missing.json"); });
  EXPECT_TRUE(has(missing, "missing.json")) << missing;
}

TEST(LoadTokenizer, EveryTruncationIsRefused) {
  const TempFolder folder;
  const std::string text = make_tokenizer("word", kTexts[0])->to_json().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    write_file_atomically(folder / "x", text.substr(0, size));
    EXPECT_NE(error_text([&] { load_tokenizer(folder / "x"); }), "") << size;
  }
}

}  // namespace
}  // namespace adjoint

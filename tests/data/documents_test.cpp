#include "data/documents.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "data/bpe_train.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

// Bytes, 0 behind a document and 1 before it; "<s>" is 2 where it is a special token.
class EndingBytes : public Tokenizer {
 public:
  std::string kind() const override { return "byte"; }
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> end_of_text() const override { return 0; }
  TextFrame frame() const override { return {.before = {1}}; }
  std::vector<int32_t> encode(std::string_view text) const override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    return {bytes, bytes + text.size()};
  }
  std::vector<int32_t> encode_with_specials(std::string_view text) const override {
    if (!text.starts_with("<s>")) return encode(text);
    std::vector<int32_t> ids = encode(text.substr(2));
    ids[0] = 2;
    return ids;
  }
  std::string bytes_of(int32_t token, bool /*first*/) const override {
    return {static_cast<char>(token)};
  }
  nlohmann::json to_json() const override { return {}; }
};

Chunk lines(const DataFile& file, const std::string& text, int64_t begin = 0) {
  return {.file = &file, .bytes = text, .begin = begin};
}

const DataFile kLines{.path = "d.jsonl", .kind = DataKind::kJsonLines};
const DataFile kText{.path = "d.txt"};

std::string ids_of(const TokenizedChunk& chunk, bool trained) {
  std::string text;
  for (const uint32_t token : chunk.tokens) {
    if (((token & kNotTrained) == 0) == trained) text += static_cast<char>(token & ~kNotTrained);
  }
  return text;
}

TEST(Documents, WhatTheModelDoesNotWriteIsMarked) {
  const EndingBytes tokenizer;
  const ChatTemplate chat = find_chat_template("mistral");
  const TokenizedChunk made = tokenize(
      lines(kLines,
            "{\"text\": \"ab\"}\n\n{\"prompt\": \"Q\", \"completion\": \"A\"}\n"
            "{\"messages\": [{\"role\": \"user\", \"content\": \"<s>\"}, {\"role\": \"assistant\", "
            "\"content\": \"w\"}]}\n"),
      {.tokenizer = &tokenizer, .chat = &chat});
  using std::string_literals::operator""s;
  EXPECT_EQ(ids_of(made, true), "ab\0A\0w</s>\0"s);
  EXPECT_EQ(ids_of(made, false), "\1\1Q\2[INST] <s> [/INST] ")
      << "what was said is no special token";
  EXPECT_EQ(made.ends, std::vector<int64_t>({4, 8, 34}));
  EXPECT_EQ(made.tokens.size(), 34);
}

std::string conversation(const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", )" + answer +
         "}]}\n";
}

// As files for other programs say it; half a weight is nothing that a target has.
TEST(Documents, AMessageMaySayThatItIsNotTrained) {
  const EndingBytes tokenizer;
  const ChatTemplate chat = find_chat_template("mistral");
  const DocumentOptions options{.tokenizer = &tokenizer, .chat = &chat};
  const auto trained = [&](const std::string& answer) {
    return ids_of(tokenize(lines(kLines, conversation(answer)), options), true);
  };
  using std::string_literals::operator""s;
  EXPECT_EQ(trained(R"("content": "w")"), "w</s>\0"s);
  for (const char* said :
       {R"("weight": 1)", R"("weight": 1.0, "train": true)", R"("train": null)"}) {
    EXPECT_EQ(trained(R"("content": "w", )"s + said), "w</s>\0"s) << said;
  }
  for (const char* said :
       {R"("weight": 0)", R"("train": false)", R"("weight": 0, "train": false)"}) {
    EXPECT_EQ(trained(R"("content": "w", )"s + said), "") << said;
  }
  const auto error = [&](const std::string& answer) {
    return error_text([&] { tokenize(lines(kLines, conversation(answer), 6), options); });
  };
  const std::string behind = "; --skip-bad leaves such lines out";
  EXPECT_EQ(error(R"("content": "w", "weight": 0.5)"),
            "d.jsonl: line 7: wanted 0 or 1 as \"weight\" of message 2, found 0.5: a message is "
            "learned or it is not" +
                behind);
  EXPECT_EQ(error(R"("content": "w", "train": 1)"),
            "d.jsonl: line 7: wanted true or false as \"train\" of message 2, found 1" + behind);
  EXPECT_EQ(error(R"("content": "w", "weight": 0, "train": true)"),
            "d.jsonl: line 7: message 2 says \"weight\": 0 and \"train\": true, which contradict "
            "each other" +
                behind);
  EXPECT_TRUE(has(error(R"("content": "w"}, {"role": "user", "content": "more", "train": true)"),
                  "line 7: a message of the role 'user' says that it is trained"));
}

// A call that no template writes would teach to stop where it was.
TEST(Documents, ACallOfAToolIsRefused) {
  const EndingBytes tokenizer;
  const ChatTemplate chat = find_chat_template("chatml");
  const DocumentOptions options{.tokenizer = &tokenizer, .chat = &chat};
  const auto error = [&](const std::string& answer) {
    return error_text([&] { tokenize(lines(kLines, conversation(answer), 2), options); });
  };
  const std::string wanted =
      "d.jsonl: line 3: message 2 has \"tool_calls\", which templates do not write: the model "
      "would "
      "learn to stop where the call is; --skip-bad leaves such lines out";
  EXPECT_EQ(error(R"("content": "", "tool_calls": [{"function": {"name": "f"}}])"), wanted);
  EXPECT_EQ(error(R"("content": null, "tool_calls": [{"function": {"name": "f"}}])"), wanted);
  EXPECT_TRUE(has(error(R"("content": "", "function_call": {"name": "f"})"), "\"function_call\""));
  EXPECT_EQ(error(R"("content": "w", "tool_calls": [])"), "");
  EXPECT_EQ(error(R"("content": "w", "tool_calls": null)"), "");
}

TEST(Documents, ALineIsOneDocument) {
  const EndingBytes tokenizer;
  const ChatTemplate chat = find_chat_template("chatml");
  const auto error = [&](const std::string& line) {
    return error_text(
        [&] { tokenize(lines(kLines, line + "\n"), {.tokenizer = &tokenizer, .chat = &chat}); });
  };
  const std::string messages = R"("messages": [{"role": "user", "content": "q"}])";
  EXPECT_EQ(
      error("{\"text\": \"t\", " + messages + "}"),
      "d.jsonl: line 1: wanted one document a line, found \"messages\" beside \"text\": leave "
      "one out; --skip-bad leaves such lines out");
  EXPECT_TRUE(has(error(R"({"text": "t", "prompt": "p", "completion": "c"})"),
                  "found \"text\" beside \"prompt\" with \"completion\""));
  EXPECT_EQ(error("{\"prompt\": \"q\", \"source\": \"web\", " + messages + "}"), "")
      << "a prompt without a completion is no document";
}

TEST(Documents, ABrokenLineIsNamedOrCounted) {
  const EndingBytes tokenizer;
  const auto error = [&](const std::string& line) {
    return error_text([&] {
      tokenize(lines(kLines, "{\"text\": \"good\"}\n" + line + "\n", 40),
               {.tokenizer = &tokenizer});
    });
  };
  const std::string behind = "; --skip-bad leaves such lines out";
  EXPECT_EQ(error("{\"text\": \"no end"),
            "d.jsonl: line 42: this is not JSON at column 17" + behind);
  EXPECT_EQ(error("{\"body\": 1}"),
            "d.jsonl: line 42: wanted {\"text\"}, {\"prompt\", \"completion\"} or {\"messages\"}, "
            "found \"body\"" +
                behind);
  EXPECT_EQ(error("[1]"),
            "d.jsonl: line 42: wanted {\"text\"}, {\"prompt\", \"completion\"} or {\"messages\"}, "
            "found array" +
                behind);
  EXPECT_TRUE(has(error("{\"text\": 7}"), "line 42: wanted a text as \"text\", found number"));
  EXPECT_TRUE(has(error("{\"prompt\": \"x\"}"), "wanted \"completion\" beside \"prompt\""));
  EXPECT_TRUE(has(error("{\"messages\": [{\"role\": \"user\"}]}"), "say which with --template"));
  EXPECT_TRUE(has(error("{\"messages\": []}"), "found none in it"));
  const TokenizedChunk skipped = tokenize(lines(kLines, "{\n{\"text\": \"ok\"}\nnull\n"),
                                          {.tokenizer = &tokenizer, .skip_bad = true});
  EXPECT_EQ(skipped.bad_lines, 2);
  EXPECT_EQ(skipped.ends, std::vector<int64_t>({4}));
}

// The cuts of a text are no cuts of tokens: words and marks, here with a tokenizer that joins them
// across everything but what chunks are cut at.
TEST(Documents, ChunksHaveTheTokensOfTheWholeText) {
  const TempFolder folder;
  std::string text;
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    constexpr std::string_view kLetters = "ab ,\n\n \xc3\xa4";
    const size_t at = random() % 8;
    text += at == 7 ? std::string("\xc3\xa4") : std::string(1, kLetters[at]);
  }
  DataFile file{.path = folder / "a.txt"};
  write_file_atomically(file.path, text);
  for (const char* kind : {"byte", "char", "word"}) {
    const auto tokenizer = make_tokenizer(kind, text);
    const std::vector<int32_t> whole = tokenizer->encode(text);
    for (const size_t chunk_bytes : {size_t{50}, size_t{777}, size_t{1} << 20}) {
      ChunkReader reader(std::span(&file, 1), chunk_bytes);
      std::vector<int32_t> ids;
      int64_t ends = 0, chunks = 0;
      while (auto chunk = reader.next()) {
        const TokenizedChunk made = tokenize(*chunk, {.tokenizer = tokenizer.get()});
        ids.insert(ids.end(), made.tokens.begin(), made.tokens.end());
        ends += static_cast<int64_t>(made.ends.size());
        ++chunks;
      }
      EXPECT_EQ(ids, whole) << kind << " " << chunk_bytes;
      EXPECT_EQ(ends, 1);
      EXPECT_EQ(chunks > 1, chunk_bytes < text.size());
      EXPECT_EQ(reader.bytes_read(), text.size());
    }
  }
}

// One that puts a mark before a text, as Llama 2's does, puts it there once.
TEST(Documents, ChunksOfATextGetOneMark) {
  const TempFolder folder;
  std::string text = "the beginning\n";
  std::mt19937 random(8);
  const char* const words[] = {"the ", "a", "the\n", "of the\n", "\n", " a ", "\xe6\x88\x91\n"};
  while (text.size() < 20'000) text += words[random() % std::size(words)];
  const DataFile file{.path = folder / "a.txt"};
  write_file_atomically(file.path, text);
  using nlohmann::json;
  json parts =
      json::parse(read_file(SOURCE_DIR "/tests/fuzz/seeds/tokenizer_json/small_metaspace.json"));
  for (const char* scheme : {"first", "always", "never"}) {
    for (const bool known : {true, false}) {
      parts["pre_tokenizer"]["prepend_scheme"] = parts["decoder"]["prepend_scheme"] = scheme;
      parts["model"]["vocab"].erase("\n");
      if (known) parts["model"]["vocab"]["\n"] = 37;
      write_file_atomically(folder / "tokenizer.json", parts.dump());
      const auto tokenizer = load_tokenizer(folder / "tokenizer.json");
      EXPECT_EQ(tokenizer->cuts_at_lines(), known);
      ChunkReader reader(std::span(&file, 1), 500, tokenizer->cuts_at_lines());
      std::vector<int32_t> ids;
      int64_t chunks = 0;
      for (; const auto chunk = reader.next(); ++chunks) {
        const TokenizedChunk made = tokenize(*chunk, {.tokenizer = tokenizer.get()});
        ids.insert(ids.end(), made.tokens.begin(), made.tokens.end());
      }
      EXPECT_TRUE(ids == tokenizer->encode(text)) << scheme << " " << known;
      EXPECT_EQ(chunks > 1, known);
    }
  }
}

// o200k's pattern takes marks behind a line's end along, and blanks of every kind belong together.
TEST(Documents, ChunksOfCodeHaveTheTokensOfTheWholeText) {
  const TempFolder folder;
  std::mt19937 random(9);
  const char* const lines[] = {"x = 1;\n// one\n// two\n",
                               "}\n/* a */\n\n",
                               "y();\n\xC2\xA0z\n",
                               "if (a)\xE3\x80\x80\n",
                               "b\n",
                               "\xC3\xA4 = 2;\n//\n",
                               "9\n"};
  std::string text;
  while (text.size() < 20'000) text += lines[random() % std::size(lines)];
  const DataFile file{.path = folder / "a.txt"};
  write_file_atomically(file.path, text);
  const std::string_view views[] = {text};
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kO200kPattern}) {
    const auto tokenizer = make_bpe_tokenizer(parts_of_json(
        byte_level_json(train_bpe(views, {.vocab = 320, .pattern = pattern, .specials = {}}))));
    EXPECT_TRUE(tokenizer->cuts_at_lines());
    ChunkReader reader(std::span(&file, 1), 200);
    std::vector<int32_t> ids;
    while (const auto chunk = reader.next()) {
      const TokenizedChunk made = tokenize(*chunk, {.tokenizer = tokenizer.get()});
      ids.insert(ids.end(), made.tokens.begin(), made.tokens.end());
    }
    EXPECT_TRUE(ids == tokenizer->encode(text)) << pattern;
  }
}

TEST(Documents, ATextWithoutLinesIsCutBetweenCharacters) {
  const TempFolder folder;
  DataFile file{.path = folder / "a.txt"};
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "\xe2\x82\xac";
  write_file_atomically(file.path, text);
  const auto tokenizer = make_tokenizer("char", text);
  ChunkReader reader(std::span(&file, 1), 16);
  size_t tokens = 0, chunks = 0;
  while (const auto chunk = reader.next()) {
    tokens += tokenize(*chunk, {.tokenizer = tokenizer.get()}).tokens.size();
    ++chunks;
  }
  EXPECT_EQ(tokens, 5000);
  EXPECT_GT(chunks, 5);
}

TEST(Documents, LinesKeepTheirNumbers) {
  const TempFolder folder;
  DataFile file{.path = folder / "a.jsonl", .kind = DataKind::kJsonLines};
  std::string text;
  for (int i = 0; i < 100; ++i) text += "{\"text\": \"" + std::string(i, 'x') + "\"}\n";
  write_file_atomically(file.path, text + "{broken");
  const auto tokenizer = make_tokenizer("byte", "");
  ChunkReader reader(std::span(&file, 1), 64);
  EXPECT_TRUE(has(error_text([&] {
                    while (const auto chunk = reader.next()) {
                      tokenize(*chunk, {.tokenizer = tokenizer.get()});
                    }
                  }),
                  "a.jsonl: line 101: this is not JSON at column 2"));
}

// Whatever a line is, it is a document or an Error.
TEST(Documents, AnyBytesAreADocumentOrAnError) {
  const EndingBytes tokenizer;
  const ChatTemplate chat = find_chat_template("chatml");
  const std::string seeds[] = {
      "{\"text\": \"ab\\u00e4\"}", "{\"prompt\": \"Q\", \"completion\": \"A\"}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", "
      "\"content\": \"w\"}]}"};
  std::mt19937 random(1);
  int64_t good = 0, bad = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string line = seeds[random() % 3];
    for (size_t i = 0, n = 1 + random() % 4; i < n && !line.empty(); ++i) {
      const size_t at = random() % line.size();
      switch (random() % 4) {
        case 0:
          line[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          line.erase(at, 1 + random() % 8);
          break;
        case 2:
          line.insert(at, line.substr(random() % line.size(), random() % 20));
          break;
        default:
          line.insert(at, std::string(random() % 200, "[{\"]"[random() % 4]));
      }
    }
    const TokenizedChunk made =
        tokenize(lines(kLines, line), {.tokenizer = &tokenizer, .chat = &chat, .skip_bad = true});
    good += static_cast<int64_t>(made.ends.size());
    bad += made.bad_lines;
    ASSERT_TRUE(made.ends.empty() || made.ends.back() == static_cast<int64_t>(made.tokens.size()));
  }
  EXPECT_GT(good, 100);
  EXPECT_GT(bad, 100);
}

}  // namespace
}  // namespace adjoint

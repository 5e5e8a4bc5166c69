// Our own tokenizers, and where all of them come from. A vocabulary of ours is an array of strings;
// a token is an index into it. The kinds differ in how they cut text into pieces, so each class
// below is its way to cut, and a lookup.
#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/json.h"
#include "base/near_path.h"
#include "base/text.h"
#include "data/bpe_tokenizer.h"
#include "data/sentencepiece.h"
#include "data/utf8.h"

namespace adjoint {

namespace {

using nlohmann::json;
using Vocabulary = std::vector<std::string>;

[[noreturn]] void fail_not_utf8(std::string_view text, size_t at) {
  // A byte-order mark, at the beginning of a file.
  if (at == 0 && (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))) {
    throw TextError("", at,
                    " of the text begins UTF-16, and a text is UTF-8: convert it first, as `iconv "
                    "-f UTF-16 -t UTF-8` does");
  }
  throw TextError("", at,
                  std::string(" of the text is ") + (text[at] == '\0' ? "NUL" : "not UTF-8") +
                      "; only `--tokenizer byte` takes any bytes");
}

CodePoint text_at(std::string_view text, size_t at) {
  const CodePoint point = code_point_at(text, at);
  if (point.size == 0) fail_not_utf8(text, at);
  return point;
}

std::string describe(std::string_view symbol, char32_t value) {
  const std::string code = fmt::format("U+{:04X}", static_cast<uint32_t>(value));
  const bool control = value < 0x20 || (value >= 0x7F && value < 0xA0);
  return control ? code : fmt::format("'{}' ({})", symbol, code);
}

const std::string& piece_of(const Vocabulary& vocab, int32_t token) {
  if (token < 0 || static_cast<size_t>(token) >= vocab.size()) {
    fail("token ", token, " is outside the vocabulary of ", vocab.size(), " tokens");
  }
  return vocab[token];
}

class ByteTokenizer : public Tokenizer {
 public:
  std::string kind() const override { return "byte"; }
  int64_t vocab_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    return {bytes, bytes + text.size()};
  }
  std::string bytes_of(int32_t token, bool /*first*/) const override {
    if (token < 0 || token > 255) fail("token ", token, " is not a byte, 0 to 255");
    return {static_cast<char>(token)};
  }
  json to_json() const override { return {{"kind", "byte"}}; }
};

class CharTokenizer : public Tokenizer {
 public:
  // Each entry of `vocab` is one code point.
  explicit CharTokenizer(Vocabulary vocab) : vocab_(std::move(vocab)) {
    for (size_t id = 0; id < vocab_.size(); ++id) {
      const CodePoint point = vocab_[id].empty() ? CodePoint{} : code_point_at(vocab_[id], 0);
      if (point.size == 0 || static_cast<size_t>(point.size) != vocab_[id].size()) {
        fail("entry ", id, " of the vocabulary is not one character");
      }
      if (token_of_.size() <= point.value) token_of_.resize(point.value + 1, -1);
      if (token_of_[point.value] >= 0) fail("entry ", id, " of the vocabulary is there twice");
      token_of_[point.value] = static_cast<int32_t>(id);
    }
  }

  static std::unique_ptr<Tokenizer> learn(std::string_view text) {
    std::vector<bool> seen(0x110000);
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = text_at(text, at);
      seen[point.value] = true;
      at += point.size;
    }
    Vocabulary vocab;
    for (char32_t value = 0; value < seen.size(); ++value) {
      if (seen[value]) append_utf8(vocab.emplace_back(), value);
    }
    return std::make_unique<CharTokenizer>(std::move(vocab));
  }

  std::string kind() const override { return "char"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(vocab_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = text_at(text, at);
      const int32_t token = point.value < token_of_.size() ? token_of_[point.value] : -1;
      if (token < 0) {
        throw TextError(
            join_parts("the vocabulary of ", vocab_.size(), " characters lacks ",
                       describe(text.substr(at, point.size), point.value), ", at "),
            at,
            " of the text; a model takes every text if it, and the run that it started from, were "
            "trained with --tokenizer byte");
      }
      tokens.push_back(token);
      at += point.size;
    }
    return tokens;
  }
  std::string bytes_of(int32_t token, bool /*first*/) const override {
    return piece_of(vocab_, token);
  }
  json to_json() const override { return {{"kind", "char"}, {"vocab", vocab_}}; }

 private:
  Vocabulary vocab_;
  std::vector<int32_t> token_of_;  // by code point, -1 where absent; at most 4.3 MB
};

bool is_space(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Letters, digits and '_' in ASCII; above ASCII everything but the blocks of spaces and
// punctuation, so that words of every script stay whole without a table of Unicode's categories.
bool is_word(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  const bool mark = c < 0xC0 || (c >= 0x2000 && c <= 0x206F) || (c >= 0x3000 && c <= 0x303F);
  return !mark;
}

// A piece is a word or one punctuation mark, either with the single space before it, or else one
// white-space character. The pieces of a text, concatenated, are the text, so spaces are kept;
// attaching them to the next piece saves a third of the tokens. "Go, \nnow" -> "Go" "," " " "\n"
// "now".
class WordTokenizer : public Tokenizer {
 public:
  explicit WordTokenizer(Vocabulary vocab) : vocab_(std::move(vocab)) {
    if (vocab_.empty() || vocab_[0] != kUnknown) {
      fail("the vocabulary does not start with ", kUnknown);
    }
    for (size_t id = 0; id < vocab_.size(); ++id) {
      if (vocab_[id].empty()) fail("entry ", id, " of the vocabulary is empty");
      if (!token_of_.emplace(vocab_[id], static_cast<int32_t>(id)).second) {
        fail("entry ", id, " of the vocabulary is there twice");
      }
    }
  }

  static std::unique_ptr<Tokenizer> learn(std::string_view text, int64_t max_vocab) {
    if (max_vocab < 0 || max_vocab == 1) {
      fail("a word vocabulary of ", max_vocab,
           " tokens is asked for, but it needs at least 2: ", kUnknown, " and a word");
    }
    std::unordered_map<std::string_view, int64_t> counts;
    for_each_piece(text, [&](std::string_view piece) { ++counts[piece]; });
    std::vector<std::pair<std::string_view, int64_t>> order(counts.begin(), counts.end());
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    if (max_vocab > 0 && std::cmp_greater(order.size(), max_vocab - 1)) order.resize(max_vocab - 1);
    Vocabulary vocab{kUnknown};
    for (const auto& [piece, count] : order) vocab.emplace_back(piece);
    return std::make_unique<WordTokenizer>(std::move(vocab));
  }

  std::string kind() const override { return "word"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(vocab_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size() / 4);  // English has about four bytes per piece
    for_each_piece(text, [&](std::string_view piece) {
      const auto found = token_of_.find(piece);
      tokens.push_back(found == token_of_.end() ? 0 : found->second);
    });
    return tokens;
  }
  std::string bytes_of(int32_t token, bool /*first*/) const override {
    return piece_of(vocab_, token);
  }
  json to_json() const override { return {{"kind", "word"}, {"vocab", vocab_}}; }

 private:
  // No piece of a text can be this, because a punctuation mark is a piece by itself.
  static constexpr const char* kUnknown = "<unk>";

  template <class Visit>
  static void for_each_piece(std::string_view text, const Visit& visit) {
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      CodePoint point = text_at(text, at);
      at += point.size;
      if (point.value == ' ' && at < text.size()) {
        const CodePoint after = text_at(text, at);
        if (!is_space(after.value)) point = after, at += after.size;
      }
      if (is_word(point.value)) {
        while (at < text.size()) {
          point = text_at(text, at);
          if (!is_word(point.value)) break;
          at += point.size;
        }
      }
      visit(text.substr(start, at - start));
    }
  }

  Vocabulary vocab_;
  std::unordered_map<std::string_view, int32_t> token_of_;  // views of vocab_
};

class IdsTokenizer : public Tokenizer {
 public:
  explicit IdsTokenizer(int64_t size) : size_(size) {}
  std::string kind() const override { return "ids"; }
  int64_t vocab_size() const override { return size_; }
  std::optional<int64_t> vocab_of_model() const override { return std::nullopt; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) {
      int32_t id = -1;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= size_) {
        fail("this model was trained on ids without a tokenizer: wanted ids from 0 to ", size_ - 1,
             " with blanks between them, found '", word, "'");
      }
      tokens.push_back(id);
    }
    return tokens;
  }
  // With a blank before each, so that it can follow other ids.
  std::string bytes_of(int32_t token, bool /*first*/) const override {
    if (token < 0 || token >= size_) fail("token ", token, " is not an id below ", size_);
    return fmt::format(" {}", token);
  }
  json to_json() const override { return {{"kind", "ids"}, {"size", size_}}; }

 private:
  int64_t size_;
};

[[noreturn]] void fail_unknown_kind(const std::string& kind) {
  fail("there is no tokenizer '", kind, "', only ", join(learned_tokenizers(), ", "),
       did_you_mean(kind, learned_tokenizers()));
}

std::unique_ptr<Tokenizer> from_json(const json& parsed) {
  if (!parsed.is_object()) fail("it is not a JSON object");
  const auto kind = parsed.find("kind");
  if (kind == parsed.end() || !kind->is_string()) fail("it does not say its \"kind\"");
  if (*kind == "byte") return std::make_unique<ByteTokenizer>();
  if (*kind == "ids") {
    const auto size = parsed.find("size");
    if (size == parsed.end() || !size->is_number_unsigned() || size->get<uint64_t>() > INT32_MAX ||
        size->get<uint64_t>() < 1) {
      fail("its \"size\" is not a whole number from 1 to 2^31 - 1");
    }
    return make_ids_tokenizer(size->get<int64_t>());
  }
  if (*kind == "sentencepiece") {
    const auto model = parsed.find("model");
    auto bytes = model != parsed.end() && model->is_string()
                     ? from_base64(model->get_ref<const std::string&>())
                     : std::nullopt;
    if (!bytes) fail("its \"model\" is not a file in base64");
    return make_sentencepiece_tokenizer(std::move(*bytes));
  }
  if (*kind != "char" && *kind != "word") fail_unknown_kind(*kind);

  const auto vocab = parsed.find("vocab");
  const auto is_string = [](const json& entry) { return entry.is_string(); };
  if (vocab == parsed.end() || !vocab->is_array() || vocab->empty() ||
      !std::all_of(vocab->begin(), vocab->end(), is_string)) {
    fail("its \"vocab\" is not a list of strings");
  }
  if (*kind == "char") return std::make_unique<CharTokenizer>(vocab->get<Vocabulary>());
  return std::make_unique<WordTokenizer>(vocab->get<Vocabulary>());
}

// Whether a JSON text is a tokenizer.json of the tokenizers library: ours say their "kind". Only
// its outermost keys are read, because its vocabulary is long.
bool is_of_tokenizers(const std::string& text) {
  bool has_model = false, has_kind = false;
  const json::parser_callback_t keys = [&](int depth, json::parse_event_t event, json& key) {
    if (depth == 1 && event == json::parse_event_t::key) {
      has_model |= key == "model";
      has_kind |= key == "kind";
    }
    return depth <= 1;
  };
  const json parsed = json::parse(text, keys, /*allow_exceptions=*/false);
  return !parsed.is_discarded() && has_model && !has_kind;
}

template <class Make>
auto with_name_of(const std::filesystem::path& path, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what());
  }
}

// How the files of GPT-2's kind are to be cut is the class's own, which a folder may name.
std::unique_ptr<Tokenizer> from_vocab_and_merges(const std::filesystem::path& folder) {
  const auto text_of = [&](const char* name) {
    return is_visible(folder / name) ? read_file(folder / name) : std::string();
  };
  std::string made_for = "GPT2Tokenizer";
  if (const std::string config = text_of("tokenizer_config.json"); !config.empty()) {
    const json parsed = read_json(folder / "tokenizer_config.json");
    const auto named = parsed.find("tokenizer_class");
    if (named != parsed.end() && named->is_string()) made_for = *named;
  }
  if (made_for.ends_with("Fast")) made_for.resize(made_for.size() - 4);
  const bool qwen = made_for == "Qwen2Tokenizer";
  if (!qwen && made_for != "GPT2Tokenizer") {
    fail(
        folder.string(), ": its vocab.json is for a ", made_for,
        ", and known are GPT2Tokenizer and Qwen2Tokenizer; a tokenizer.json is read of every kind");
  }
  return with_name_of(folder, [&] {
    return make_bpe_tokenizer(
        parts_of_vocab(read_file(folder / "vocab.json"), read_file(folder / "merges.txt"),
                       text_of("added_tokens.json"), qwen ? kQwen2Pattern : kGpt2Pattern, qwen));
  });
}

std::unique_ptr<Tokenizer> from_folder(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (is_visible(folder / name)) return load_tokenizer(folder / name);
  }
  if (is_visible(folder / "vocab.json") && is_visible(folder / "merges.txt")) {
    return from_vocab_and_merges(folder);
  }
  fail(folder.string(),
       ": this folder has no tokenizer: wanted tokenizer.json, tokenizer.model, or vocab.json with "
       "merges.txt");
}

}  // namespace

void check_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) at += text_at(text, at).size;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  text.reserve(tokens.size() * 4);
  for (size_t i = 0; i < tokens.size(); ++i) text += bytes_of(tokens[i], i == 0);
  return text;
}

std::string TextStream::next(int32_t token) {
  held_ += tokenizer_.bytes_of(token, first_);
  first_ = false;
  const size_t whole = held_.size() - unfinished_bytes(held_);
  std::string shown = held_.substr(0, whole);
  held_.erase(0, whole);
  return shown;
}

std::string TextStream::finish() { return std::exchange(held_, {}); }

std::vector<std::string> learned_tokenizers() { return {"byte", "char", "word"}; }

bool learns_tokenizer(std::string_view name) {
  const std::vector<std::string> all = learned_tokenizers();
  return std::find(all.begin(), all.end(), name) != all.end();
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string_view text,
                                          int64_t max_vocab) {
  if (name == "byte") return std::make_unique<ByteTokenizer>();
  if (!learns_tokenizer(name)) {
    if (!is_visible(name)) {
      const std::string near = did_you_mean(name, learned_tokenizers());
      fail("there is no tokenizer '", name, "': wanted ", join(learned_tokenizers(), ", "),
           " or the path of a file or folder", near.empty() ? did_you_mean_path(name) : near);
    }
    return load_tokenizer(name);
  }
  if (text.empty()) fail("the text is empty, so there is no ", name, " vocabulary to learn");
  return name == "char" ? CharTokenizer::learn(text) : WordTokenizer::learn(text, max_vocab);
}

std::unique_ptr<Tokenizer> make_ids_tokenizer(int64_t vocab_size) {
  return std::make_unique<IdsTokenizer>(vocab_size);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(checked_path(path))) return from_folder(path);
  std::string text = read_file(path);
  const std::string kind = path.extension().string();
  if (kind == ".model" || kind == ".tiktoken") {
    // Llama 3's tokenizer.model is a file of ranks.
    return with_name_of(path, [&] {
      return kind == ".tiktoken" || looks_like_ranks(text)
                 ? make_bpe_tokenizer(parts_of_ranks(text))
                 : make_sentencepiece_tokenizer(std::move(text));
    });
  }
  if (is_of_tokenizers(text)) {
    return with_name_of(path, [&] { return make_bpe_tokenizer(parts_of_json(text)); });
  }
  try {
    return from_json(parse_json(text));
  } catch (const Error& error) {
    fail(path.string(), ": this is not a tokenizer file: ", error.what());
  }
}

void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& file) {
  write_file_atomically(file, tokenizer.to_json().dump() + "\n");
}

}  // namespace adjoint

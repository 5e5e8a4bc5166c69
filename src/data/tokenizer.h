// Text to tokens and back. Three kinds, each small enough to learn from the text at hand:
//   byte  256 tokens, takes anything
//   char  one token per distinct Unicode code point
//   word  one token per frequent word or mark; the rest becomes <unk>
//   ids   none of these: the data were tokens already, and a text is their ids with blanks between
// decode(encode(text)) == text, except where a word tokenizer wrote <unk>, and for blanks of ids.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

class Tokenizer {
 public:
  Tokenizer() = default;
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual std::string kind() const = 0;
  virtual int64_t vocab_size() const = 0;
  // The vocabulary that a model is made for; none where the ids are the model's own.
  virtual std::optional<int64_t> vocab_of_model() const { return vocab_size(); }
  // The token that ends a document, if there is one.
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }
  // Throws an Error that says which symbol the vocabulary lacks, or where the text is not valid
  // UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Throws an Error that names a token outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // {"kind": "char", "vocab": ["\n", " ", "a", ...]}; a byte tokenizer has no "vocab".
  virtual nlohmann::json to_json() const = 0;
};

// With this many of tiny Shakespeare's 15,030 distinct pieces 2% of its text is unknown; the rarer
// ones would nearly double the output layer, for words that occur a few times each.
inline constexpr int64_t kDefaultMaxWords = 8192;

// Learns the vocabulary from `text`. `max_vocab` limits a word vocabulary, <unk> included; 0 is no
// limit.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view kind, std::string_view text,
                                          int64_t max_vocab = kDefaultMaxWords);

// Of a model that is trained on ids below this.
std::unique_ptr<Tokenizer> make_ids_tokenizer(int64_t vocab_size);

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& file);
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& file);

}  // namespace adjoint

// Text to tokens and back: one interface for our own small tokenizers and for those of other
// models.
//   byte  256 tokens, takes anything
//   char  one token per distinct Unicode code point
//   word  one token per frequent word or mark; the rest becomes <unk>
//   ids   none of these: the data were tokens already, and a text is their ids with blanks between
//   bpe   byte pairs: a tokenizer.json, vocab.json with merges.txt, or ranks (.tiktoken)
//   sentencepiece   a .model file, by the library
// decode(encode(text)) == text for byte, char and every byte-level bpe, of broken UTF-8 too (char
// refuses it); word writes <unk>, ids keeps no blanks, and a normalizer that a file asks for may
// change the text before it is cut.
//
// A tokenizer never changes after it was made, and its functions may be called by several threads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace adjoint {

// The tokens that a file's template puts around a text: Llama's <s> before it.
struct TextFrame {
  std::vector<int32_t> before = {}, after = {};
};

// A token with a name of its own, which no text is cut into unless it is asked for.
struct SpecialToken {
  std::string name;
  int32_t id = 0;
};

// Where in a text a piece of it stands.
struct PieceOfText {
  bool first = true, last = true;
};

// An Error about a place of a text, in two parts, so that whoever read the text from a file can say
// the file, and the place in it.
class TextError : public Error {
 public:
  TextError(std::string before, size_t at, std::string behind)
      : Error(before + "byte " + std::to_string(at) + behind),
        before(std::move(before)),
        behind(std::move(behind)),
        at(at) {}
  std::string before, behind;
  size_t at;
};

// Throws a TextError where a text is not UTF-8, as all tokenizers but `byte` want it.
void check_utf8(std::string_view text);

class Tokenizer {
 public:
  Tokenizer() = default;
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual std::string kind() const = 0;
  // One more than the highest id; a few ids below it may be nobody's.
  virtual int64_t vocab_size() const = 0;
  // The vocabulary that a model is made for; none where the ids are the model's own.
  virtual std::optional<int64_t> vocab_of_model() const { return vocab_size(); }
  // The token that ends a document, if there is one.
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }
  // Not part of what `encode` gives: whoever wants it puts it around.
  virtual TextFrame frame() const { return {}; }
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }

  // The tokens of a text, in which the name of a special token is text like any other. Throws an
  // Error that says which symbol the vocabulary lacks, or where the text is not valid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The tokens of a piece of a longer text. Pieces end behind a line's end that stands between a
  // character that is no blank and a letter or a number; then the tokens of all pieces are those of
  // the whole text. Where no text may be cut so, `cuts_at_lines` is false (data/line_cuts.h).
  virtual std::vector<int32_t> encode_piece(std::string_view text, PieceOfText /*where*/) const {
    return encode(text);
  }
  virtual bool cuts_at_lines() const { return true; }
  // As `encode`, but names of special tokens become those tokens: for templates and prompts, not
  // for text that somebody else wrote.
  virtual std::vector<int32_t> encode_with_specials(std::string_view text) const {
    return encode(text);
  }

  // The bytes that a token adds to a text, as the first token of one or behind others: a token may
  // be part of a character. Throws an Error that names a token outside the vocabulary.
  virtual std::string bytes_of(int32_t token, bool first) const = 0;
  // The bytes of all of them. Special tokens are written with their names.
  std::string decode(std::span<const int32_t> tokens) const;

  // What `load_tokenizer` makes the same tokenizer of: {"kind": "char", "vocab": ["\n", " ", "a",
  // ...]}, or a tokenizer.json as other libraries read it.
  virtual nlohmann::json to_json() const = 0;
};

// Text that comes token by token, in whole characters: bytes that begin a character wait for its
// end.
class TextStream {
 public:
  // `first`: whether the first token begins the text, or goes on where another text ended.
  explicit TextStream(const Tokenizer& tokenizer, bool first = true)
      : tokenizer_(tokenizer), first_(first) {}
  std::string next(int32_t token);  // what can be shown by now
  std::string finish();             // what waited in vain for its end

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
  bool first_;
};

// With this many of tiny Shakespeare's 15,030 distinct pieces 2% of its text is unknown; the rarer
// ones would nearly double the output layer, for words that occur a few times each.
inline constexpr int64_t kDefaultMaxWords = 8192;

// Tokenizers that are learned from the text at hand: byte, char and word.
std::vector<std::string> learned_tokenizers();
bool learns_tokenizer(std::string_view name);

// One of those, with the vocabulary of `text`, or else the tokenizer of a file or folder.
// `max_vocab` limits a word vocabulary, <unk> included; 0 is no limit.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string_view text,
                                          int64_t max_vocab = kDefaultMaxWords);

// Of a model that is trained on ids below this.
std::unique_ptr<Tokenizer> make_ids_tokenizer(int64_t vocab_size);

// A tokenizer by its files: a tokenizer.json, of ours or of others; a .model of SentencePiece;
// ranks
// (.tiktoken); or a folder that has tokenizer.json, else tokenizer.model, else vocab.json and
// merges.txt.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& file);

}  // namespace adjoint

// A tokenizer of byte pairs, put together of the parts that its files name:
//   text -> added tokens apart -> normalizers -> pieces -> symbols -> merges -> ids
// A byte-level one has bytes for symbols; one like SentencePiece's has characters, and bytes
// ("<0x0A>") for those that it has no token for.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/split.h"
#include "data/tokenizer.h"

namespace adjoint {

// A normalizer's change of a text, or of a part of it between added tokens; `first`: it begins the
// text.
using TextEdit = std::function<std::string(std::string_view text, bool first)>;

// How a token's text becomes part of a decoded text.
struct BpeDecoding {
  std::vector<std::pair<std::string, std::string>> replaced = {};  // the one by the other
  bool bytes = false;                                              // <0x0A> is that byte
  std::string stripped_first;  // this, as often as said, at the beginning of a text
  int64_t num_stripped_first = 0;
};

struct BpeParts {
  std::vector<std::string> tokens = {};  // by id; bytes where byte_level, empty where there is none
  // Tokens that no text becomes, because they are not written in the alphabet of bytes.
  std::vector<std::pair<int32_t, std::string>> only_shown = {};
  std::vector<Merge> merges = {};
  bool byte_level = false;
  bool byte_fallback = false, fuse_unknown = false;
  bool whole_pieces = false;  // a piece that is a token is that token, whatever the merges say
  std::optional<int32_t> unknown = {};
  std::vector<AddedToken> added = {};
  std::vector<TextEdit> normalizers = {}, before_splits = {};
  std::vector<std::unique_ptr<Splitter>> splits = {};  // each cuts the pieces of the one before
  BpeDecoding decoding = {};
  TextFrame frame = {};
  std::string json = {};  // the tokenizer.json that says all this
};

// Throws an Error where the parts do not fit together.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

// ---- the files

// Texts of files, not paths; errors do not name the file. A tokenizer.json:
BpeParts parts_of_json(const std::string& text);
// vocab.json and merges.txt, cut by a pattern; `added` (added_tokens.json) may be empty.
BpeParts parts_of_vocab(const std::string& vocab, const std::string& merges,
                        const std::string& added, const std::string& pattern, bool nfc);
// Ranks, a line each: base64 of a token, and its rank. What ranks they are, and so the pattern and
// the special tokens, is told by their number.
BpeParts parts_of_ranks(const std::string& text);
bool looks_like_ranks(std::string_view text);

// The tokenizer.json of a byte-level tokenizer, as the tokenizers library reads it.
struct ByteLevelFile {
  std::vector<std::string> tokens;  // bytes by id
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::string pattern;
  bool nfc = false, whole_pieces = false;
};
std::string byte_level_json(const ByteLevelFile& file);

// GPT-2's way to write bytes as characters that can be seen: a space is U+0120.
std::string in_byte_alphabet(std::string_view bytes);
// The bytes, or nothing where a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace adjoint

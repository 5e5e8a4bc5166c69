#include "data/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/line_cuts.h"
#include "data/utf8.h"

namespace adjoint {

namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581, SentencePiece's blank

// The tokens of pieces that were met before: nine of ten words of a text are. A place holds the
// last piece that fell on it; pieces of more bytes or tokens than a place has room for are rare.
class PieceCache {
 public:
  static constexpr size_t kMostBytes = 15, kMostTokens = 3;
  struct Place {
    uint64_t low = 0, high = 0;  // the bytes, and their number in the last
    uint32_t num = 0;
    int32_t tokens[kMostTokens] = {};
  };
  static_assert(sizeof(Place) == 32);

  PieceCache() : places_(size_t{1} << kBits) {}

  // The piece, of 1 to kMostBytes bytes, and where it would be.
  Place& place_of(std::string_view piece, Place& wanted) {
    std::array<char, 16> bytes = {};
    std::memcpy(bytes.data(), piece.data(), piece.size());
    bytes[15] = static_cast<char>(piece.size());
    std::memcpy(&wanted.low, bytes.data(), 8);
    std::memcpy(&wanted.high, bytes.data() + 8, 8);
    const uint64_t mixed =
        (wanted.low ^ std::rotl(wanted.high * 0x9E3779B97F4A7C15u, 29)) * 0xC2B2AE3D27D4EB4Fu;
    return places_[mixed >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 15;  // a megabyte: the second cache holds it
  std::vector<Place> places_;
};

// Caches that threads take and give back: none is used by two at a time.
class CachePool {
 public:
  std::unique_ptr<PieceCache> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<PieceCache>();
    auto cache = std::move(free_.back());
    free_.pop_back();
    return cache;
  }
  void give_back(std::unique_ptr<PieceCache> cache) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(cache));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PieceCache>> free_;
};

// Cuts before every word mark that follows something else. Right only where no merge crosses such a
// place: then the pieces are merged as the whole text would be, and their tokens can be remembered.
class WordMarkSplitter : public Splitter {
 public:
  void for_each_piece(std::string_view text, const Visit& visit) const override {
    size_t begin = 0;
    bool behind_mark = true;
    for (size_t at = 0; at < text.size();) {
      const bool mark = text.substr(at).starts_with(kWordMark);
      if (mark && !behind_mark) {
        visit(text.substr(begin, at - begin));
        begin = at;
      }
      behind_mark = mark;
      at += mark ? kWordMark.size() : 1;
    }
    if (begin < text.size()) visit(text.substr(begin));
  }
};

bool no_merge_crosses_word_marks(const BpeParts& parts) {
  const bool is_symbol =
      std::find(parts.tokens.begin(), parts.tokens.end(), kWordMark) != parts.tokens.end();
  return is_symbol &&
         std::none_of(parts.merges.begin(), parts.merges.end(), [&](const Merge& merge) {
           const std::string_view token = parts.tokens[merge.to];
           size_t marks = 0;  // at the beginning
           while (token.substr(marks).starts_with(kWordMark)) marks += kWordMark.size();
           return token.find(kWordMark, marks) != std::string_view::npos;
         });
}

// "<0x0A>" -> 10
std::optional<unsigned char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high << 4 | low);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// The special token that ends a document, by the names that model families give it.
constexpr const char* kEndsOfText[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                       "<｜end▁of▁sentence｜>"};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : parts_(std::move(parts)),
        merger_(parts_.merges),
        raw_(tokens_to_find(false)),
        in_normalized_(tokens_to_find(true)) {
    byte_ids_.fill(-1);
    for (size_t id = 0; id < parts_.tokens.size(); ++id) note_symbol(static_cast<int32_t>(id));
    if (parts_.byte_level || parts_.byte_fallback) check_bytes();
    if (!parts_.byte_level && parts_.splits.empty() && no_merge_crosses_word_marks(parts_)) {
      parts_.splits.push_back(std::make_unique<WordMarkSplitter>());
    }
    shown_.resize(parts_.tokens.size());
    for (size_t id = 0; id < parts_.tokens.size(); ++id) shown_[id] = decoded(parts_.tokens[id]);
    for (const auto& [id, text] : parts_.only_shown) shown_[id] = text;
    for (const AddedToken& added : parts_.added) shown_[added.id] = added.content;
    cuts_ = LineCuts(*this, parts_.tokens, parts_.unknown);
    for (const char* name : kEndsOfText) {
      for (const AddedToken& added : parts_.added) {
        if (added.special && added.content == name && !end_) end_ = added.id;
      }
    }
  }

  std::string kind() const override { return "bpe"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(shown_.size()); }
  std::optional<int32_t> end_of_text() const override { return end_; }
  TextFrame frame() const override { return parts_.frame; }
  std::vector<SpecialToken> special_tokens() const override {
    std::vector<SpecialToken> special;
    for (const AddedToken& added : parts_.added) {
      if (added.special) special.push_back({added.content, added.id});
    }
    return special;
  }

  std::vector<int32_t> encode(std::string_view text) const override { return encode(text, false); }
  std::vector<int32_t> encode_piece(std::string_view text, PieceOfText where) const override {
    return cuts_.encode(*this, text, where);
  }
  bool cuts_at_lines() const override { return cuts_.may_cut(); }
  std::vector<int32_t> encode_with_specials(std::string_view text) const override {
    return encode(text, true);
  }

  std::string bytes_of(int32_t token, bool first) const override {
    if (token < 0 || static_cast<size_t>(token) >= shown_.size()) {
      fail("token ", token, " is outside the vocabulary of ", shown_.size(), " tokens");
    }
    std::string text = shown_[token];
    const std::string& blank = parts_.decoding.stripped_first;
    for (int64_t n = 0; first && n < parts_.decoding.num_stripped_first; ++n) {
      if (!text.starts_with(blank)) break;
      text.erase(0, blank.size());
    }
    return text;
  }

  nlohmann::json to_json() const override { return nlohmann::json::parse(parts_.json); }

 private:
  std::vector<AddedToken> tokens_to_find(bool in_normalized) const {
    std::vector<AddedToken> tokens;
    for (AddedToken token : parts_.added) {
      if (token.in_normalized != in_normalized) continue;
      if (in_normalized) {
        for (const TextEdit& edit : parts_.normalizers) token.content = edit(token.content, true);
      }
      if (token.content.empty()) fail("the added token ", token.id, " is empty");
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

  void note_symbol(int32_t id) {
    const std::string& token = parts_.tokens[id];
    if (token.empty()) return;
    if (parts_.whole_pieces) whole_.emplace(token, id);
    if (parts_.byte_level) {
      if (token.size() == 1) byte_ids_[static_cast<unsigned char>(token[0])] = id;
      return;
    }
    if (parts_.byte_fallback) {
      if (const auto byte = byte_of_token(token)) byte_ids_[*byte] = id;
    }
    const CodePoint point = code_point_at(token, 0);
    if (std::cmp_equal(point.size, token.size())) char_ids_[point.value] = id;
    if (token == std::string(1, '\0')) char_ids_[0] = id;
  }

  void check_bytes() const {
    for (int byte = 0; byte < 256; ++byte) {
      if (byte_ids_[byte] < 0) {
        fail("its vocabulary has no token for the byte ", byte, ", so it cannot take every text");
      }
    }
  }

  std::string decoded(const std::string& token) const {
    if (parts_.byte_level) return token;
    if (parts_.decoding.bytes) {
      if (const auto byte = byte_of_token(token)) return {static_cast<char>(*byte)};
    }
    std::string text = token;
    for (const auto& [from, to] : parts_.decoding.replaced) replace_all(text, from, to);
    return text;
  }

  // What one call needs beside the tokenizer.
  struct Work {
    PieceCache& cache;
    std::vector<int32_t> symbols = {};
    std::vector<int32_t> tokens = {};  // the result
  };

  std::vector<int32_t> encode(std::string_view text, bool with_specials) const {
    auto cache = caches_.take();
    Work work{*cache};
    work.tokens.reserve(text.size() / 4 + 1);  // English has more than four bytes per token
    raw_.for_each_part(text, with_specials,
                       [&](std::string_view part, size_t at, const AddedToken* token) {
                         if (token) {
                           work.tokens.push_back(token->id);
                         } else {
                           encode_part(part, at == 0, with_specials, work);
                         }
                       });
    caches_.give_back(std::move(cache));
    return std::move(work.tokens);
  }

  void encode_part(std::string_view part, bool first, bool with_specials, Work& work) const {
    std::string edited;
    for (const TextEdit& edit : parts_.normalizers) part = edited = edit(part, first);
    in_normalized_.for_each_part(part, with_specials,
                                 [&](std::string_view inner, size_t at, const AddedToken* token) {
                                   if (token) {
                                     work.tokens.push_back(token->id);
                                     return;
                                   }
                                   std::string changed;
                                   for (const TextEdit& edit : parts_.before_splits) {
                                     inner = changed = edit(inner, first && at == 0);
                                   }
                                   encode_cut(inner, 0, work);
                                 });
  }

  void encode_cut(std::string_view text, size_t level, Work& work) const {
    if (level == parts_.splits.size()) {
      if (!text.empty()) encode_symbols(text, work);
      return;
    }
    if (level + 1 == parts_.splits.size()) {
      parts_.splits[level]->for_each_piece(
          text, [&](std::string_view piece) { encode_symbols(piece, work); });
      return;
    }
    parts_.splits[level]->for_each_piece(
        text, [&](std::string_view piece) { encode_cut(piece, level + 1, work); });
  }

  void encode_symbols(std::string_view piece, Work& work) const {
    if (piece.size() > PieceCache::kMostBytes) {
      merge_piece(piece, work);
      work.tokens.insert(work.tokens.end(), work.symbols.begin(), work.symbols.end());
      return;
    }
    PieceCache::Place made;
    PieceCache::Place& place = work.cache.place_of(piece, made);
    if (place.low == made.low && place.high == made.high) {
      work.tokens.insert(work.tokens.end(), place.tokens, place.tokens + place.num);
      return;
    }
    merge_piece(piece, work);
    work.tokens.insert(work.tokens.end(), work.symbols.begin(), work.symbols.end());
    if (work.symbols.size() > PieceCache::kMostTokens) return;
    made.num = static_cast<uint32_t>(work.symbols.size());
    std::copy(work.symbols.begin(), work.symbols.end(), made.tokens);
    place = made;
  }

  // The tokens of a piece, in work.symbols.
  void merge_piece(std::string_view piece, Work& work) const {
    std::vector<int32_t>& symbols = work.symbols;
    symbols.clear();
    if (parts_.whole_pieces) {
      if (const auto found = whole_.find(piece); found != whole_.end()) {
        symbols.push_back(found->second);
        return;
      }
    }
    if (parts_.byte_level) {
      for (const char c : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else {
      add_characters(piece, symbols);
    }
    merger_.merge(symbols);
  }

  void add_characters(std::string_view piece, std::vector<int32_t>& symbols) const {
    bool behind_unknown = false;
    for (size_t at = 0; at < piece.size();) {
      const CodePoint point = code_point_at(piece, at);
      const bool text = point.size > 0 || piece[at] == '\0';
      const size_t size = point.size > 0 ? point.size : 1;
      const auto known = text ? char_ids_.find(point.value) : char_ids_.end();
      bool unknown = false;
      if (known != char_ids_.end()) {
        symbols.push_back(known->second);
      } else if (parts_.byte_fallback) {
        for (const char c : piece.substr(at, size)) {
          symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
        }
      } else if (parts_.unknown) {
        unknown = true;
        if (!behind_unknown || !parts_.fuse_unknown) symbols.push_back(*parts_.unknown);
      }
      behind_unknown = unknown;
      at += size;
    }
  }

  BpeParts parts_;
  Merger merger_;
  AddedFinder raw_, in_normalized_;
  std::array<int32_t, 256> byte_ids_;
  std::unordered_map<char32_t, int32_t> char_ids_;       // where symbols are characters
  std::unordered_map<std::string_view, int32_t> whole_;  // views of parts_.tokens
  std::vector<std::string> shown_;                       // by id, what it adds to a text
  std::optional<int32_t> end_;
  LineCuts cuts_;
  mutable CachePool caches_;
};

// Ids that files name, against those that there are.
void check_ids(const BpeParts& parts) {
  const auto known = [&](int64_t id) { return id >= 0 && std::cmp_less(id, parts.tokens.size()); };
  for (const Merge& merge : parts.merges) {
    CHECK(known(merge.left) && known(merge.right) && known(merge.to), "a merge of no tokens");
  }
  for (const AddedToken& added : parts.added) {
    CHECK(known(added.id), "an added token has no room among the tokens");
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  check_ids(parts);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace adjoint

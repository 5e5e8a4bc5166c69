#include "data/line_cuts.h"

#include <algorithm>

#include "base/error.h"
#include "data/unicode.h"

namespace adjoint {

namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";          // U+2581
constexpr std::string_view kBefore = "a\n", kWordBefore = "a";  // a line that ends in a word

using Ids = std::vector<int32_t>;

bool begins_with(const Ids& ids, const Ids& beginning) {
  return ids.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), ids.begin());
}

// With a letter, a number or a part of a character: texts are cut nowhere else.
bool goes_on_behind_line(std::string_view token) {
  for (size_t at = token.find('\n'); at < token.size() && at + 1 < token.size();
       at = token.find('\n', at + 1)) {
    const auto next = classed_point_at(UnicodeClasses::all(), token, at + 1);
    const bool part = next.size == 1 && static_cast<unsigned char>(token[at + 1]) >= 0x80;
    if (part || (next.classes & (kLetter | kNumber))) return true;
  }
  return false;
}

// A mark behind another character: such a token holds parts of two words.
bool joins_words(std::string_view token) {
  while (token.starts_with(kWordMark)) token.remove_prefix(kWordMark.size());
  return token.find(kWordMark) != token.npos;
}

}  // namespace

LineCuts LineCuts::never() {
  LineCuts cuts;
  cuts.way_ = Way::kNever;
  return cuts;
}

LineCuts::LineCuts(const Tokenizer& tokenizer, const std::vector<std::string>& tokens,
                   std::optional<int32_t> unknown) {
  Ids line, word, next, both, blank;
  try {
    line = tokenizer.encode(kBefore);
    word = tokenizer.encode(kWordBefore);
    next = tokenizer.encode("b");
    both = tokenizer.encode("a\nb");
    blank = tokenizer.encode("a b");
  } catch (const Error&) {  // it lacks a letter: who knows
    way_ = Way::kNever;
    return;
  }
  const bool line_is_blank = both == blank;
  const auto crosses = line_is_blank ? joins_words : goes_on_behind_line;
  Ids split = line;
  split.insert(split.end(), next.begin(), next.end());
  const bool joined = unknown && !line.empty() && line.back() == *unknown;
  if (joined || std::any_of(tokens.begin(), tokens.end(), crosses)) {
    way_ = Way::kNever;
  } else if (both == split) {
    way_ = Way::kAsItIs;
  } else if (line_is_blank && begins_with(both, word)) {
    way_ = Way::kLineIsBlank;
    dropped_ = word.size();
  } else if (begins_with(both, line)) {
    way_ = Way::kBehindLine;
    dropped_ = line.size();
  } else {
    way_ = Way::kNever;
  }
}

std::vector<int32_t> LineCuts::encode(const Tokenizer& tokenizer, std::string_view piece,
                                      PieceOfText where) const {
  if (way_ == Way::kAsItIs || way_ == Way::kNever) return tokenizer.encode(piece);
  if (way_ == Way::kLineIsBlank && !where.last && piece.ends_with('\n')) piece.remove_suffix(1);
  if (where.first) return tokenizer.encode(piece);
  Ids ids = tokenizer.encode(std::string(kBefore).append(piece));
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(dropped_));
  return ids;
}

}  // namespace adjoint

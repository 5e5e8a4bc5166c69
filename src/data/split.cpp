#include "data/split.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "data/regex.h"
#include "data/unicode.h"

namespace adjoint {

namespace {

// ---- patterns that are known

struct KnownPattern {
  const char* text;
  bool any_case;        // 'S is a contraction as 's is
  bool any_prefix;      // a word may take any mark or blank before it along, not only a space
  int digits;           // of a number at most; 0: any, with a space before them
  bool newline_breaks;  // marks take line breaks along, and blanks end behind the last one
};

constexpr KnownPattern kKnownPatterns[] = {
    {kGpt2Pattern, false, false, 0, false},
    {kLlama3Pattern, true, true, 3, true},
    {kQwen2Pattern, true, true, 1, true},
};

constexpr uint8_t kMultibyte = 0x80;  // ask for the code point

class KnownSplitter : public Splitter {
 public:
  explicit KnownSplitter(const KnownPattern& pattern)
      : pattern_(pattern), classes_(UnicodeClasses::all()) {
    for (int byte = 0; byte < 256; ++byte) {
      by_byte_[byte] = byte < 0x80 ? classes_.of(byte) : kMultibyte;
    }
  }

  void for_each_piece(std::string_view text, const Visit& visit) const override {
    for (size_t at = 0; at < text.size();) {
      const size_t end = end_of_piece(text, at);
      visit(text.substr(at, end - at));
      at = end;
    }
  }

 private:
  ClassedPoint point_at(std::string_view text, size_t at) const {
    const uint8_t classes = by_byte_[static_cast<unsigned char>(text[at])];
    if (classes != kMultibyte) return {classes, 1};
    return classed_point_at(classes_, text, at);
  }

  // Past the code points from `at` on that have one of the classes; 0: that have none.
  size_t end_of_run(std::string_view text, size_t at, uint8_t classes) const {
    while (at < text.size()) {
      const ClassedPoint point = point_at(text, at);
      if (classes == 0 ? point.classes != 0 : (point.classes & classes) == 0) break;
      at += point.size;
    }
    return at;
  }

  // 's, 't, 're, 've, 'm, 'll or 'd, whose apostrophe is at `at`; 0 where it is none of them. With
  // case folded, Unicode's long s is an s.
  size_t contraction(std::string_view text, size_t at) const {
    const auto letter = [&](size_t i) -> char {
      if (at + i >= text.size()) return 0;
      const char c = text[at + i];
      return pattern_.any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    if (pattern_.any_case && text.substr(at + 1, 2) == "\xC5\xBF") return 3;
    return 0;
  }

  size_t end_of_piece(std::string_view text, size_t at) const {
    const char c = text[at];
    if (c == '\'') {
      if (const size_t size = contraction(text, at)) return at + size;
    }
    const ClassedPoint first = point_at(text, at);
    if (first.classes & kLetter) return end_of_run(text, at + first.size, kLetter);
    const size_t behind = at + first.size;
    const ClassedPoint next = behind < text.size() ? point_at(text, behind) : ClassedPoint{0, 0};
    const bool space_before = c == ' ' && next.size > 0;
    const bool prefix =
        pattern_.any_prefix ? !(first.classes & kNumber) && c != '\r' && c != '\n' : c == ' ';
    if (prefix && (next.classes & kLetter)) return end_of_run(text, behind + next.size, kLetter);
    if (pattern_.digits == 0) {
      if ((first.classes & kNumber) || (space_before && (next.classes & kNumber))) {
        return end_of_run(text, behind, kNumber);
      }
    } else if (first.classes & kNumber) {
      size_t end = behind;
      for (int digits = 1; digits < pattern_.digits && end < text.size(); ++digits) {
        const ClassedPoint point = point_at(text, end);
        if (!(point.classes & kNumber)) break;
        end += point.size;
      }
      return end;
    }
    if (first.classes == 0 || (space_before && next.classes == 0)) {
      size_t end = end_of_run(text, behind, 0);
      if (pattern_.newline_breaks) {
        while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
      }
      return end;
    }
    return end_of_blanks(text, at);
  }

  // Blanks: all of them at the end of the text, else all but the last, which the next piece may
  // take along.
  size_t end_of_blanks(std::string_view text, size_t at) const {
    size_t end = at, last = at, behind_break = at;
    while (end < text.size()) {
      const ClassedPoint point = point_at(text, end);
      if (!(point.classes & kWhiteSpace)) break;
      last = end;
      end += point.size;
      if (text[last] == '\r' || text[last] == '\n') behind_break = end;
    }
    if (pattern_.newline_breaks && behind_break > at) return behind_break;
    return end == text.size() || last == at ? end : last;
  }

  const KnownPattern& pattern_;
  const UnicodeClasses& classes_;
  std::array<uint8_t, 256> by_byte_ = {};
};

// ---- any pattern

// Gives pieces to visit as a behaviour has it, from parts in order that are matches or not.
class Joiner {
 public:
  Joiner(std::string_view text, SplitBehavior behavior, const Splitter::Visit& visit)
      : text_(text), behavior_(behavior), visit_(visit) {}

  void add(size_t begin, size_t end, bool match) {
    if (begin == end) return;
    if (behavior_ == SplitBehavior::kRemoved) {
      if (!match) visit_(text_.substr(begin, end - begin));
      return;
    }
    const bool joins =
        open_ && ((behavior_ == SplitBehavior::kContiguous && match == last_match_) ||
                  (behavior_ == SplitBehavior::kMergedWithPrevious && match && !last_match_) ||
                  (behavior_ == SplitBehavior::kMergedWithNext && !match && last_match_));
    if (!joins) {
      finish();
      begin_ = begin;
    }
    end_ = end;
    open_ = true;
    last_match_ = match;
  }
  void finish() {
    if (open_) visit_(text_.substr(begin_, end_ - begin_));
    open_ = false;
  }

 private:
  std::string_view text_;
  SplitBehavior behavior_;
  const Splitter::Visit& visit_;
  size_t begin_ = 0, end_ = 0;
  bool open_ = false, last_match_ = false;
};

class Pcre2Splitter : public Splitter {
 public:
  Pcre2Splitter(const std::string& pattern, SplitBehavior behavior, bool inverted)
      : regex_(pattern), behavior_(behavior), inverted_(inverted) {}

  void for_each_piece(std::string_view text, const Visit& visit) const override {
    Joiner pieces(text, behavior_, visit);
    Regex::Finder finder(regex_);
    size_t done = 0;
    for (size_t from = 0; from <= text.size();) {
      const auto match = finder.find(text, from);
      if (!match) break;
      pieces.add(done, match->begin, inverted_);
      pieces.add(match->begin, match->end, !inverted_);
      done = match->end;
      // A match of nothing is no piece; the next one begins behind it.
      from = match->end > match->begin ? match->end : match->end + 1;
    }
    pieces.add(done, text.size(), inverted_);
    pieces.finish();
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool inverted_;
};

class TextSplitter : public Splitter {
 public:
  TextSplitter(std::string text, SplitBehavior behavior, bool inverted)
      : wanted_(std::move(text)), behavior_(behavior), inverted_(inverted) {
    if (wanted_.empty()) fail("a Split by the empty text cuts nothing");
  }

  void for_each_piece(std::string_view text, const Visit& visit) const override {
    Joiner pieces(text, behavior_, visit);
    size_t done = 0;
    for (size_t at = text.find(wanted_); at != std::string_view::npos;
         at = text.find(wanted_, done)) {
      pieces.add(done, at, inverted_);
      done = at + wanted_.size();
      pieces.add(at, done, !inverted_);
    }
    pieces.add(done, text.size(), inverted_);
    pieces.finish();
  }

 private:
  std::string wanted_;
  SplitBehavior behavior_;
  bool inverted_;
};

}  // namespace

std::unique_ptr<Splitter> split_by_pattern(const std::string& pattern, SplitBehavior behavior,
                                           bool inverted) {
  // The known patterns leave nothing between matches, so both say the same of them.
  const bool pieces_are_matches =
      (behavior == SplitBehavior::kIsolated) || (behavior == SplitBehavior::kRemoved && inverted);
  for (const KnownPattern& known : kKnownPatterns) {
    if (pieces_are_matches && pattern == known.text) return std::make_unique<KnownSplitter>(known);
  }
  return split_by_pcre2(pattern, behavior, inverted);
}

std::unique_ptr<Splitter> split_by_pcre2(const std::string& pattern, SplitBehavior behavior,
                                         bool inverted) {
  return std::make_unique<Pcre2Splitter>(pattern, behavior, inverted);
}

std::unique_ptr<Splitter> split_by_text(const std::string& text, SplitBehavior behavior,
                                        bool inverted) {
  return std::make_unique<TextSplitter>(text, behavior, inverted);
}

}  // namespace adjoint

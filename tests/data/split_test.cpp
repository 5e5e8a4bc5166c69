// Patterns cut by hand against the same by PCRE2, and what becomes of matches.
#include "data/split.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/error.h"
#include "data/regex.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace adjoint {
namespace {

std::vector<std::string> pieces_of(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  splitter.for_each_piece(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

using Pieces = std::vector<std::string>;

// Letters, digits, marks and blanks of many scripts, in runs as texts have them.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> common = {
      "a",           "b",    "s",        "S",        "t",        "'",        "'s",
      "'LL",         "'re",  "'VE",      " ",        " ",        "  ",       "\n",
      "\r",          "\r\n", "\t",       "1",        "23",       "4567",     ".",
      "!?",          "(",    "\xC2\xA0", "\xC3\xA9", "\xC5\xBF", "\xC2\xBD", "\xE2\x80\x83",
      "\xE7\x9A\x84"};
  std::string text;
  for (unsigned n = random() % 30; n > 0; --n) {
    if (random() % 4 != 0) {
      text += common[random() % common.size()];
      continue;
    }
    char32_t point = 1 + random() % (random() % 2 ? 0x3000 : 0x10FFFF);
    if (point >= 0xD800 && point <= 0xDFFF) point = 0xE9;
    append_utf8(text, point);
  }
  return text;
}

TEST(Split, KnownPatternsAreCutAsPcre2CutsThem) {
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const auto by_hand = split_by_pattern(pattern), by_pcre2 = split_by_pcre2(pattern);
    std::mt19937 random(7);
    for (int n = 0; n < 20'000; ++n) {
      const std::string text = random_text(random);
      ASSERT_EQ(pieces_of(*by_hand, text), pieces_of(*by_pcre2, text)) << pattern << "\n" << text;
    }
  }
}

TEST(Split, LosesNoByteOfWhatIsNotUtf8) {
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kO200kPattern}) {
    const auto splitter = split_by_pattern(pattern);
    std::mt19937 random(8);
    for (int n = 0; n < 2'000; ++n) {
      std::string text;
      for (unsigned i = random() % 40; i > 0; --i) text += static_cast<char>(random());
      std::string joined;
      for (const std::string& piece : pieces_of(*splitter, text)) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text) << pattern;
    }
  }
}

TEST(Split, CutsAsThePublishedPatternsSay) {
  EXPECT_EQ(pieces_of(*split_by_pattern(kGpt2Pattern), "I've  12345 'S\n\n x"),
            Pieces({"I", "'ve", " ", " 12345", " '", "S", "\n\n", " x"}));
  EXPECT_EQ(pieces_of(*split_by_pattern(kLlama3Pattern), "I'VE  12345 (x)\n\n x"),
            Pieces({"I", "'VE", " ", " ", "123", "45", " (", "x", ")\n\n", " x"}));
  EXPECT_EQ(pieces_of(*split_by_pattern(kQwen2Pattern), "12 \n3"), Pieces({"1", "2", " \n", "3"}));
}

TEST(Split, MatchesGoWhereABehaviourPutsThem) {
  const auto cut = [](SplitBehavior behavior, bool inverted) {
    return pieces_of(*split_by_text("-", behavior, inverted), "-a--b");
  };
  EXPECT_EQ(cut(SplitBehavior::kIsolated, false), Pieces({"-", "a", "-", "-", "b"}));
  EXPECT_EQ(cut(SplitBehavior::kRemoved, false), Pieces({"a", "b"}));
  EXPECT_EQ(cut(SplitBehavior::kRemoved, true), Pieces({"-", "-", "-"}));
  EXPECT_EQ(cut(SplitBehavior::kContiguous, false), Pieces({"-", "a", "--", "b"}));
  EXPECT_EQ(cut(SplitBehavior::kMergedWithPrevious, false), Pieces({"-", "a-", "-", "b"}));
  EXPECT_EQ(cut(SplitBehavior::kMergedWithNext, false), Pieces({"-a", "-", "-b"}));
  const auto by_pattern = split_by_pattern("\\p{N}", SplitBehavior::kContiguous);
  EXPECT_EQ(pieces_of(*by_pattern, "a12b3"), Pieces({"a", "12", "b", "3"}));
}

TEST(Split, PatternsMeanWhatTheyMeanToOthers) {
  // U+180E is a blank to PCRE2 alone, and a mark of an accent is part of a word to all others.
  EXPECT_EQ(pieces_of(*split_by_pattern("\\s+"), "a\xE1\xA0\x8E"), Pieces({"a\xE1\xA0\x8E"}));
  EXPECT_EQ(pieces_of(*split_by_pattern("\\w+"), "e\xCC\x81!"), Pieces({"e\xCC\x81", "!"}));
  EXPECT_EQ(pieces_of(*split_by_pattern("^b"), "a\nb"), Pieces({"a\n", "b"}));
  const auto error = [](const char* pattern) -> std::string {
    try {
      split_by_pattern(pattern);
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_NE(error("a(b").find("the pattern a(b is not one, behind 'a(b'"), std::string::npos)
      << error("a(b");
  EXPECT_NE(error("\\h+").find("has \\h, which is not supported"), std::string::npos);
}

TEST(Unicode, ClassesAreThoseOfPcre2) {
  const UnicodeClasses& classes = UnicodeClasses::all();
  const std::pair<const char*, UnicodeClass> all[] = {
      {"\\p{L}", kLetter}, {"\\p{N}", kNumber}, {"\\p{White_Space}", kWhiteSpace}};
  for (const auto& [pattern, value] : all) {
    const Regex regex(pattern);
    Regex::Finder finder(regex);
    for (char32_t point = 1; point <= 0x10FFFF; point += point < 0x3000 ? 1 : 7) {
      if (point >= 0xD800 && point <= 0xDFFF) continue;
      std::string text;
      append_utf8(text, point);
      ASSERT_EQ(finder.find(text, 0).has_value(), (classes.of(point) & value) != 0)
          << uint32_t{point};
    }
  }
}

TEST(Unicode, NormalFormsLeaveBrokenBytes) {
  EXPECT_EQ(normalized("e\xCC\x81", NormalForm::kNfc), "\xC3\xA9");
  EXPECT_EQ(normalized("\xC3\xA9", NormalForm::kNfd), "e\xCC\x81");
  EXPECT_EQ(normalized("\xEF\xAC\x81", NormalForm::kNfkc), "fi");
  EXPECT_EQ(normalized("\xEF\xAC\x81", NormalForm::kNfc), "\xEF\xAC\x81");
  const std::string broken(
      "a\0\xFF"
      "e\xCC\x81\x80",
      7);
  EXPECT_EQ(normalized(broken, NormalForm::kNfc), std::string("a\0\xFF\xC3\xA9\x80", 6));
}

}  // namespace
}  // namespace adjoint

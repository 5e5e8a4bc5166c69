#include "data/utf8.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t value = 1; value <= 0x10FFFF; ++value) {
    if (value >= 0xD800 && value <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, value);
    const CodePoint point = code_point_at(text, 0);
    ASSERT_EQ(point.value, value);
    ASSERT_EQ(static_cast<size_t>(point.size), text.size());
    // A piece of it is not text.
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(code_point_at(std::string_view(text).substr(0, cut), 0).size, 0);
      ASSERT_EQ(code_point_at(text, cut).size, 0);
    }
  }
}

TEST(Utf8, KnownEncodings) {
  std::string text;
  for (const char32_t value : {0x24, 0xA3, 0x20AC, 0x10348}) append_utf8(text, value);
  EXPECT_EQ(text, "\x24\xC2\xA3\xE2\x82\xAC\xF0\x90\x8D\x88");
}

TEST(Utf8, RefusesWhatIsNotText) {
  const std::string_view not_text[] = {
      {"\0", 1},           // NUL
      "\x80",              // a continuation alone
      "\xC0\xAF",          // overlong '/'
      "\xC1\xBF",          // overlong U+007F
      "\xE0\x80\xAF",      // overlong '/'
      "\xE0\x9F\xBF",      // overlong U+07FF
      "\xF0\x8F\xBF\xBF",  // overlong U+FFFF
      "\xED\xA0\x80",      // a surrogate
      "\xED\xBF\xBF",      // a surrogate
      "\xF4\x90\x80\x80",  // U+110000
      "\xF5\x80\x80\x80",  // no such lead byte
      "\xFF",
      "\xC3\x28",      // the continuation is missing
      "\xE2\x82\x28",  // the last continuation is missing
  };
  for (const std::string_view text : not_text) EXPECT_EQ(code_point_at(text, 0).size, 0);
}

TEST(Utf8, TellsWhatMoreBytesCouldComplete) {
  EXPECT_EQ(unfinished_bytes(""), 0u);
  EXPECT_EQ(unfinished_bytes("ab"), 0u);
  for (const std::string text : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    for (size_t cut = 1; cut <= text.size(); ++cut) {
      EXPECT_EQ(unfinished_bytes("a" + text.substr(0, cut)), cut == text.size() ? 0 : cut);
      EXPECT_EQ(unfinished_bytes(text.substr(0, cut)), cut == text.size() ? 0 : cut);
    }
  }
  // Nothing completes these: an overlong form, a surrogate, what lies above U+10FFFF, no lead byte.
  for (const char* text : {"\xE0\x80", "\xED\xA0", "\xF4\x90", "\xF5", "\xC0", "\x80\x80\x80"}) {
    EXPECT_EQ(unfinished_bytes(text), 0u) << text;
  }
}

}  // namespace
}  // namespace adjoint

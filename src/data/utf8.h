// Text as Unicode code points. Strict, because a lenient decoder could not give the same bytes
// back: overlong forms, surrogates and values above U+10FFFF are refused, and so is NUL, the surest
// sign of a binary file. Written by hand: a Unicode library would replace these few lines only.
#pragma once
#include <string>
#include <string_view>

namespace adjoint {

struct CodePoint {
  char32_t value = 0;
  int size = 0;  // bytes taken; 0 where the bytes are not text
};

// The code point that starts at byte `at`, which is inside `text`.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, lead == 0 ? 0 : 1};
  // 0x80 to 0xC1 are continuations and overlong forms; above 0xF4 lies beyond U+10FFFF.
  if (lead < 0xC2 || lead > 0xF4) return {};
  const int size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = lead & (0xFFu >> (size + 1));
  for (int i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, size};
}

// How many bytes at the end of the text begin a code point that more bytes could complete: 0 to 3.
inline size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto lead = static_cast<unsigned char>(text[text.size() - back]);
    if ((lead & 0xC0) == 0x80) continue;  // a continuation: the lead is before it
    const size_t size = lead < 0xC2 || lead > 0xF4 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (size <= back) return 0;
    // Completed by the continuation that asks most of it, it must be a code point.
    for (const char rest : {'\x80', '\xBF'}) {
      std::string tried(text.substr(text.size() - back));
      tried.resize(size, rest);
      if (code_point_at(tried, 0).size != 0) return back;
    }
    return 0;
  }
  return 0;
}

inline void append_utf8(std::string& text, char32_t value) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | (static_cast<unsigned>(value >> shift) & 0x3F));
  };
  if (value < 0x80) {
    text += static_cast<char>(value);
  } else if (value < 0x800) {
    text += {static_cast<char>(0xC0 | value >> 6), tail(0)};
  } else if (value < 0x10000) {
    text += {static_cast<char>(0xE0 | value >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xF0 | value >> 18), tail(12), tail(6), tail(0)};
  }
}

}  // namespace adjoint

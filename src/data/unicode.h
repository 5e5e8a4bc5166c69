// What Unicode says of characters: classes as PCRE2 knows them, normal forms by utf8proc.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

enum UnicodeClass : uint8_t { kLetter = 1, kNumber = 2, kWhiteSpace = 4 };

// \p{L}, \p{N} and \s of every code point, asked for once and kept in a table: a match per
// character would take most of an encoder's time.
class UnicodeClasses {
 public:
  static const UnicodeClasses& all();  // made at the first call, in a few milliseconds
  uint8_t of(char32_t point) const { return point < classes_.size() ? classes_[point] : 0; }

 private:
  UnicodeClasses();
  std::vector<uint8_t> classes_;
};

// A class of the code point at `at`, and its size; a byte that is no part of a code point is one
// by itself, of no class.
struct ClassedPoint {
  uint8_t classes;
  uint8_t size;
};
ClassedPoint classed_point_at(const UnicodeClasses& classes, std::string_view text, size_t at);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Bytes that are not UTF-8 stay as they are, and so do the characters beside them.
std::string normalized(std::string_view text, NormalForm form);

}  // namespace adjoint

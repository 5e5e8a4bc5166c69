#include "data/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "data/regex.h"
#include "data/utf8.h"

namespace adjoint {

namespace {

// Planes 4 to 13 hold nothing, 14 has tags and selectors of variants, and 15 and 16 are private:
// none of them has a letter, a number or a space (Unicode.ClassesAreThoseOfPcre2 asks).
constexpr char32_t kFirstUnclassed = 0x40000;

// Code points below this do not change under NFC, whatever is beside them below it.
constexpr char32_t kFirstCombining = 0x300;

bool is_settled(std::string_view text, NormalForm form) {
  for (size_t at = 0; at < text.size(); ++at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    // U+0300 begins with 0xCC in UTF-8.
    if (lead >= (form == NormalForm::kNfc ? 0xCC : 0x80)) return false;
  }
  return true;
}

static_assert(kFirstCombining == (0xC << 6 | 0), "the lead byte 0xCC stands for bits 0xC");

std::string normalized_utf8(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  int options = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (compatible) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &made,
                                             static_cast<utf8proc_option_t>(options));
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) fail("the text cannot be normalized: ", utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(made, &std::free);
  return {reinterpret_cast<const char*>(made), static_cast<size_t>(size)};
}

}  // namespace

UnicodeClasses::UnicodeClasses() : classes_(kFirstUnclassed) {
  std::string text;
  std::vector<char32_t> at;  // the code point that begins at a byte
  for (char32_t point = 1; point < kFirstUnclassed; ++point) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    append_utf8(text, point);
    at.resize(text.size(), point);
  }
  for (const auto& [pattern, value] :
       {std::pair("\\p{L}+", kLetter), {"\\p{N}+", kNumber}, {"\\s+", kWhiteSpace}}) {
    const Regex regex(pattern);
    Regex::Finder finder(regex);
    for (auto run = finder.find(text, 0); run; run = finder.find(text, run->end)) {
      for (size_t i = run->begin; i < run->end; ++i) classes_[at[i]] |= value;
    }
  }
}

const UnicodeClasses& UnicodeClasses::all() {
  static const UnicodeClasses classes;
  return classes;
}

ClassedPoint classed_point_at(const UnicodeClasses& classes, std::string_view text, size_t at) {
  const CodePoint point = code_point_at(text, at);
  if (point.size == 0) return {0, 1};
  return {classes.of(point.value), static_cast<uint8_t>(point.size)};
}

std::string normalized(std::string_view text, NormalForm form) {
  if (is_settled(text, form)) return std::string(text);
  std::string out;
  size_t begin = 0;  // of valid UTF-8
  for (size_t at = 0; at < text.size();) {
    const int size = text[at] == '\0' ? 1 : code_point_at(text, at).size;
    if (size != 0) {
      at += size;
      continue;
    }
    if (at > begin) out += normalized_utf8(text.substr(begin, at - begin), form);
    out += text[at];
    begin = ++at;
  }
  if (begin < text.size()) out += normalized_utf8(text.substr(begin), form);
  return out;
}

}  // namespace adjoint

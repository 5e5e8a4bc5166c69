#include "data/regex.h"

#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace adjoint {

namespace {

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text = {};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// PCRE2's \s has U+180E beside Unicode's white space, and its \w has no marks.
std::string in_words_of_pcre2(const std::string& pattern) {
  const std::string word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escaped = pattern[++i];
    switch (escaped) {
      case 's':
        out += "\\p{White_Space}";
        break;
      case 'S':
        out += "\\P{White_Space}";
        break;
      case 'w':
        out += in_class ? word : "[" + word + "]";
        break;
      case 'W':
        if (in_class) fail("the pattern ", pattern, " has \\W in brackets, which is not supported");
        out += "[^" + word + "]";
        break;
      case 'b':
      case 'B':
      case 'h':
      case 'H':
      case 'X':
        fail("the pattern ", pattern, " has \\", escaped, ", which is not supported");
      default:
        out += {'\\', escaped};
    }
  }
  return out;
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Regex::Regex(const std::string& pattern) {
  const std::string translated = in_words_of_pcre2(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  // ^ and $ stand at every line, as in Oniguruma.
  code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
      &error, &at, nullptr));
  if (!code_) {
    fail("the pattern ", pattern, " is not one, behind '", translated.substr(0, at),
         "': ", message_of(error));
  }
  // Where there is no JIT, patterns are interpreted.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

void Regex::Finder::Free::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}

Regex::Finder::Finder(const Regex& regex)
    : regex_(regex), data_(pcre2_match_data_create_from_pattern(regex.code_.get(), nullptr)) {
  if (!data_) throw std::bad_alloc();
}

std::optional<Regex::Match> Regex::Finder::find(std::string_view text, size_t at) {
  const auto match = [&](uint32_t options) {
    return pcre2_match(regex_.code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       at, options, data_.get(), nullptr);
  };
  int found = match(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    fail("a pattern of the tokenizer cannot be matched behind byte ", at,
         " of the text: ", message_of(found));
  }
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(data_.get());
  // \K could put the beginning behind the end, or before `at`.
  if (ends[0] < at || ends[1] < ends[0]) fail("a pattern of the tokenizer matches backwards");
  return Match{ends[0], ends[1]};
}

}  // namespace adjoint

#include "scheme/lines.h"

#include <algorithm>

namespace adjoint {

TextLines::TextLines(std::string_view text) : text_(text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // parsers leave it out
  bool own = true;
  int line = 1;
  for (size_t begin = text.starts_with(kMark) ? kMark.size() : 0; begin <= text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (own) lines_.emplace(line, TextRange{begin, end});
    if (const auto origin = origin_of(text.substr(begin, end - begin))) {
      own = origin->file.empty();
      line = origin->line - 1;
    }
    begin = end + 1;
  }
}

std::optional<size_t> TextLines::offset(Position at) const {
  const auto line = lines_.find(at.line);
  if (at.file || at.column < 1 || line == lines_.end()) return std::nullopt;
  const size_t offset = line->second.from + static_cast<size_t>(at.column - 1);
  return offset <= line->second.to ? std::optional(offset) : std::nullopt;
}

std::optional<TextRange> TextLines::range(const TextSpan& span) const {
  const auto from = offset(span.from), to = offset(span.to);
  if (!from || !to || *to < *from) return std::nullopt;
  return TextRange{*from, *to};
}

TextRange TextLines::line_around(size_t offset) const {
  const size_t before = offset == 0 ? text_.npos : text_.rfind('\n', offset - 1);
  const size_t end = text_.find('\n', offset);
  return {before == text_.npos ? 0 : before + 1, end == text_.npos ? text_.size() : end + 1};
}

}  // namespace adjoint

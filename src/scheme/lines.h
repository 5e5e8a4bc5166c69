// Where the places of a parsed text are in its bytes. A text whose `use` lines were replaced counts
// the lines of its own file as that file does (cursor.h), so the places of a document are found
// both in the text as it was written and in the whole one; what other files say is in neither.
#pragma once
#include <map>
#include <optional>
#include <string_view>

#include "scheme/cursor.h"

namespace adjoint {

struct TextRange {
  size_t from = 0, to = 0;
  bool operator==(const TextRange&) const = default;
};

class TextLines {
 public:
  explicit TextLines(std::string_view text);

  // Nothing where the place is another file's, or not in this text.
  std::optional<size_t> offset(Position at) const;
  std::optional<TextRange> range(const TextSpan& span) const;
  // From the beginning of the line to behind its newline.
  TextRange line_around(size_t offset) const;

 private:
  std::string_view text_;
  std::map<int, TextRange> lines_;  // of the text's own file, without their newlines
};

}  // namespace adjoint

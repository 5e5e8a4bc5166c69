// A parsed text as JSON: what a drawing is made of, with the place of every piece in the text.
// docs/edit.md says what is in it.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

#include "scheme/document.h"
#include "scheme/lines.h"

namespace adjoint {

// `text` is the one that offsets count in: as it was written (ModelText::written), or whole. What
// another file says has its name as "file" and no span.
nlohmann::json document_json(const Document& document, std::string_view text);

// {"from", "to", "line", "column"} in bytes; null of what is another file's.
nlohmann::json span_json(const TextLines& lines, const TextSpan& span);
nlohmann::json term_json(const TextLines& lines, const Term& term);

// Of `name, name = ...`: where each name stands. Nothing of a statement of another file.
std::vector<TextRange> name_ranges(const TextLines& lines, std::string_view text,
                                   const Statement& s);
// From the first name to the end of the last value.
TextSpan span_of(const Statement& statement);
TextSpan span_of(const Setting& setting);
TextSpan span_of(const Box& box);

}  // namespace adjoint

// Changes to a text as a drawing asks for them: the edit names a piece of the parsed text, and only
// the bytes of that piece are replaced, so that comments, blank lines and alignment stay as people
// wrote them. The new text is parsed before it is given back. docs/edit.md lists the edits.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/lines.h"

namespace adjoint {

// Bytes `from` up to `to` of the text before become `text`.
struct Change {
  size_t from = 0, to = 0;
  std::string text = {};
  bool operator==(const Change&) const = default;
};

struct Edited {
  std::string text;
  std::vector<Change> changes = {};  // in the order of the text, apart from each other
  size_t from = 0, to = 0;           // what changed, in the new text
  TextRange made = {};               // of that what was asked for, without names that follow it
  // Sentences: what the edit takes a meaning from that others know by its name.
  std::vector<std::string> breaks = {};
  // Of an edit that must not change what the model computes: where that could not be looked at.
  std::vector<std::string> notes = {};
};

// `file` says by its ending whether the text is a model's (.scheme) or a functor's (.functor), is
// named in complaints, and is where a model's `use` lines are sought. An Error says in one sentence
// why the edit cannot be made.
Edited edit_text(const std::string& text, const std::string& file, const nlohmann::json& edit);

// Applies changes, which must lie apart from each other.
Edited changed(std::string_view text, std::vector<Change> changes);

// {"file", "text", "edit"} -> {"text", "span": {"from", "to"}, "made": {"from", "to"}, "changes":
// [{"from", "to", "insert"}], "breaks": [...], "notes": [...]}; with "read": true also "document"
// or "functor", of the new text (document_json.h). Without "text" the file is read; without "edit"
// the text stays as it is.
nlohmann::json answer_edit(const nlohmann::json& request);

}  // namespace adjoint

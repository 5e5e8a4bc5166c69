#include "edit/edit.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "edit/document_json.h"
#include "edit/format_modules.h"
#include "edit/functor_json.h"
#include "edit/kept_names.h"
#include "edit/same_scheme.h"
#include "edit/written.h"
#include "models/library.h"

namespace adjoint {

namespace {

struct Kind {
  std::string_view name;
  SchemeEdit edit;
  bool keeps_meaning;  // the model computes what it did
};
constexpr Kind kKinds[] = {
    {"insert", insert_call, false}, {"delete", delete_piece, false},
    {"set", set_value, false},      {"connect", connect, false},
    {"repeat", repeat_call, false}, {"rename", rename_piece, true},
    {"fold", fold, true},           {"unfold", unfold, true},
    {"add_box", add_box, false},    {"add_statement", add_statement, false},
};

Document parsed(const std::string& text, const std::string& file) {
  return parse_document(with_uses(text, file), file);
}

Edited edit_scheme(const std::string& text, const std::string& file, const Wish& wish) {
  const std::string wanted = wish.text("kind");
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    known.emplace_back(kind.name);
    if (kind.name != wanted) continue;
    const WrittenText before(text, file);
    Edited edited = changed(text, kind.edit(before, wish));
    const Document after = parsed(edited.text, file);
    if (!kind.keeps_meaning) {
      const bool of_setting = wish.has("axis") || wish.has("number") || wish.has("preset");
      return of_setting ? edited : keep_names(before, std::move(edited));
    }
    Comparisons compared = check_same_meaning(before.document(), after, file);
    if (follow_paths(before, after, compared.paths, edited.changes)) {
      edited = changed(text, std::move(edited.changes));
      check_modules(before.document(), parsed(edited.text, file), compared.paths);
    }
    edited.notes = std::move(compared.notes);
    return edited;
  }
  fail("there is no edit '", wanted, "'; there are ", join(known, ", "),
       did_you_mean(wanted, known));
}

bool is_functor(const std::string& file) { return file.ends_with(".functor"); }

}  // namespace

Edited changed(std::string_view text, std::vector<Change> changes) {
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  });
  Edited edited;
  size_t at = 0;
  for (Change& change : changes) {
    CHECK(at <= change.from && change.from <= change.to && change.to <= text.size(),
          "changes lie apart from each other");
    edited.text += text.substr(at, change.from - at);
    if (edited.changes.empty()) edited.from = edited.text.size();
    edited.text += change.text;
    edited.to = edited.text.size();
    at = change.to;
    edited.changes.push_back(std::move(change));
  }
  edited.text += text.substr(at);
  edited.made = {edited.from, edited.to};
  return edited;
}

Edited edit_text(const std::string& text, const std::string& file, const nlohmann::json& edit) {
  const Wish wish(edit);
  if (!is_functor(file)) return edit_scheme(text, file, wish);
  parse_functor_text(text, file);
  Edited edited = changed(text, edit_functor(text, file, wish));
  parse_functor_text(edited.text, file);
  return edited;
}

nlohmann::json answer_edit(const nlohmann::json& request) {
  if (!request.is_object() || !request.contains("file") || !request["file"].is_string()) {
    fail("the request must be an object with the name of a 'file'");
  }
  const std::string file = request["file"].get<std::string>();
  std::string text;
  if (!request.contains("text")) {
    text = read_file(file);
  } else if (request["text"].is_string()) {
    text = request["text"].get<std::string>();
  } else {
    fail("the request's 'text' must be a text");
  }
  const bool wants_read = request.contains("read") && request["read"] == true;
  if (request.contains("read") && !request["read"].is_boolean()) {
    fail("the request's 'read' must be true or false");
  }
  Edited edited{.text = text};
  if (request.contains("edit")) edited = edit_text(text, file, request["edit"]);
  nlohmann::json changes = nlohmann::json::array();
  for (const Change& c : edited.changes) {
    changes.push_back({{"from", c.from}, {"to", c.to}, {"insert", c.text}});
  }
  nlohmann::json answer = {{"text", edited.text},
                           {"span", {{"from", edited.from}, {"to", edited.to}}},
                           {"made", {{"from", edited.made.from}, {"to", edited.made.to}}},
                           {"changes", changes}};
  if (!edited.breaks.empty()) answer["breaks"] = edited.breaks;
  if (!edited.notes.empty()) answer["notes"] = edited.notes;
  if (!wants_read) return answer;
  if (is_functor(file)) {
    answer["functor"] = functor_json(edited.text, file);
  } else {
    answer["document"] = document_json(parsed(edited.text, file), edited.text);
  }
  return answer;
}

}  // namespace adjoint

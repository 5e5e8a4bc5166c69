// A request of the page is refused, or its answer changes the text where it says so and parses.
#include "base/json.h"
#include "edit/edit.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(edit_request) {
  nlohmann::json request = parse_json(input);
  // Files of the machine that fuzzes are not what is looked for.
  if (!request.is_object() || !request.contains("text")) return;
  const std::string text = request["text"].is_string() ? request["text"].get<std::string>() : "";
  if (text.find("use") != text.npos) return;
  request["read"] = true;
  const nlohmann::json answer = answer_edit(request);
  const std::string after = answer["text"];
  std::string rebuilt;
  size_t at = 0;
  for (const nlohmann::json& change : answer["changes"]) {
    const size_t from = change["from"], to = change["to"];
    CHECK(at <= from && from <= to && to <= text.size(), "changes lie in the text");
    rebuilt += text.substr(at, from - at) + change["insert"].get<std::string>();
    at = to;
  }
  CHECK(rebuilt + text.substr(at) == after, "the changes make the new text");
  request.erase("edit");
  request["text"] = after;
  CHECK(answer_edit(request)["text"] == after, "the new text is read and stays");
}

}  // namespace adjoint

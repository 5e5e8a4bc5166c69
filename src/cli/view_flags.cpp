#include "cli/view_flags.h"

#include <iostream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/file_view.h"
#include "base/json.h"

namespace adjoint {

namespace {

// What the command finds on its standard input: a text as it is, anything else as JSON.
void replace_standard_input(const nlohmann::json& value) {
  static std::istringstream input;  // std::cin reads it until the program ends
  input.str(value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump());
  std::cin.rdbuf(input.rdbuf());
  std::cin.clear();
}

}  // namespace

ViewFlags take_view_flags(std::vector<char*>& arguments) {
  ViewFlags flags;
  size_t at = 1;
  while (arguments.size() > at) {
    const std::string_view word = arguments[at];
    size_t taken = 1;
    if (word == "--tell-every") {  // not ours, and may stand before ours
      at += 2;
      continue;
    }
    if (word == "--inside" && arguments.size() > at + 1) {
      flags.inside = arguments[at + 1];
      taken = 2;
    } else if (word == "--read-only") {
      flags.read_only = true;
    } else if (word == "--drafts") {
      flags.drafts = true;
    } else {
      break;
    }
    const auto first = arguments.begin() + static_cast<std::ptrdiff_t>(at);
    arguments.erase(first, first + static_cast<std::ptrdiff_t>(taken));
  }
  return flags;
}

void apply(const ViewFlags& flags) {
  if (flags.inside.empty() && !flags.read_only && !flags.drafts) return;
  FileView view{.inside = flags.inside, .read_only = flags.read_only, .drafts = {}};
  if (flags.drafts) {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const nlohmann::json said = parse_json(text, "--drafts");
    if (!said.is_object()) fail("--drafts: wanted an object, found ", said.type_name());
    const nlohmann::json drafts = said.value("drafts", nlohmann::json::object());
    if (!drafts.is_object()) fail("--drafts: wanted texts by path, found ", drafts.type_name());
    for (const auto& [path, draft] : drafts.items()) {
      if (!draft.is_string()) fail(path, ": its draft is no text, but ", draft.type_name());
      view.drafts[path] = draft.get<std::string>();
    }
    replace_standard_input(said.value("stdin", nlohmann::json()));
  }
  set_file_view(std::move(view));
}

}  // namespace adjoint

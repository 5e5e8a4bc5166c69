#include "base/split.h"

namespace adjoint {

namespace {
constexpr const char* kBlanks = " \t\r\n";
}  // namespace

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kBlanks) - first + 1));
}

std::vector<SplitPart> split_outside_brackets(std::string_view text, char between) {
  std::vector<SplitPart> parts;
  size_t begin = 0;
  const auto end_at = [&](size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    const size_t first = part.find_first_not_of(kBlanks);
    parts.push_back({trimmed(part), begin + (first == std::string_view::npos ? 0 : first)});
    begin = end + 1;
  };
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    quoted = quoted != (c == '"');
    if (quoted) continue;
    depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (c == between && depth == 0) end_at(i);
  }
  end_at(text.size());
  return parts;
}

}  // namespace adjoint

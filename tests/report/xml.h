// A small checker of XML: tags balance, attributes are quoted, nothing is left unescaped. "" when
// all is well, else what is wrong. Written by hand: a parser would be a package for these tests
// only.
#pragma once
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

inline bool is_entity(std::string_view rest) {
  for (const std::string_view known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
    if (rest.substr(0, known.size()) == known) return true;
  }
  return false;
}

inline std::string xml_mistake(std::string_view text) {
  std::vector<std::string> open;
  size_t roots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') return "control character";
    if (c == '&' && !is_entity(text.substr(i))) return "bare & at " + std::to_string(i);
    if (c == '>') return "bare > at " + std::to_string(i);
    if (c != '<') {
      if (open.empty() && !std::isspace(static_cast<unsigned char>(c))) return "text outside";
      ++i;
      continue;
    }
    size_t end = i + 1;
    char quote = 0;
    for (; end < text.size() && (quote || text[end] != '>'); ++end) {
      if (quote && text[end] == '<') return "< in a value at " + std::to_string(end);
      if (quote && text[end] == '&' && !is_entity(text.substr(end))) return "bare & in a value";
      if (text[end] == quote) {
        quote = 0;
      } else if (!quote && text[end] == '"') {
        quote = text[end];
      } else if (!quote && text[end] == '<') {
        return "< in a tag at " + std::to_string(end);
      }
    }
    if (end >= text.size()) return "a tag that does not end";
    std::string_view tag = text.substr(i + 1, end - i - 1);
    i = end + 1;
    const bool closes = tag[0] == '/', alone = tag.back() == '/';
    if (closes) tag.remove_prefix(1);
    const std::string name(tag.substr(0, tag.find_first_of(" /\n")));
    if (name.empty()) return "a tag without a name";
    if (closes) {
      if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
      open.pop_back();
    } else if (!alone) {
      roots += open.empty();
      open.push_back(name);
    }
  }
  if (!open.empty()) return "<" + open.back() + "> stays open";
  return roots == 1 ? "" : "there is not one root";
}

}  // namespace adjoint

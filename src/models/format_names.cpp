#include "models/format_names.h"

#include <cctype>
#include <map>

namespace adjoint {

namespace {

using Letters = std::map<std::string, std::string, std::less<>>;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// What `text` has behind the pattern, or nothing if it does not begin with it; {l} takes a number.
std::optional<std::string_view> behind(std::string_view pattern, std::string_view text,
                                       Letters& letters) {
  while (!pattern.empty()) {
    if (pattern[0] != '{') {
      if (text.empty() || text[0] != pattern[0]) return std::nullopt;
      pattern.remove_prefix(1);
      text.remove_prefix(1);
      continue;
    }
    const size_t close = pattern.find('}');
    size_t digits = 0;
    while (digits < text.size() && is_digit(text[digits])) ++digits;
    if (close == pattern.npos || digits == 0) return std::nullopt;
    const std::string number(text.substr(0, digits));
    const auto [found, fresh] = letters.emplace(std::string(pattern.substr(1, close - 1)), number);
    if (!fresh && found->second != number) return std::nullopt;
    pattern.remove_prefix(close + 1);
    text.remove_prefix(digits);
  }
  return text;
}

// The pattern with or without what stands in brackets.
std::string with_optional(std::string_view pattern, bool present) {
  std::string out;
  bool inside = false;
  for (const char c : pattern) {
    if (c == '[' || c == ']') {
      inside = c == '[';
    } else if (!inside || present) {
      out += c;
    }
  }
  return out;
}

// A letter that has no number yet is left, and named.
std::string filled(std::string_view pattern, const Letters& letters, std::string& left) {
  std::string out;
  for (size_t at = 0; at < pattern.size();) {
    const size_t close = pattern[at] == '{' ? pattern.find('}', at) : pattern.npos;
    if (close == pattern.npos) {
      out += pattern[at++];
      continue;
    }
    const std::string letter(pattern.substr(at + 1, close - at - 1));
    const auto found = letters.find(letter);
    if (found == letters.end()) left = letter;
    out += found == letters.end() ? "{" + letter + "}" : found->second;
    at = close + 1;
  }
  return out;
}

}  // namespace

std::optional<StoredParameter> stored_parameter(const Format& format, std::string_view path,
                                                int64_t entries) {
  for (const FormatModule& module : format.modules) {
    Letters letters;
    const auto leaf = behind(module.ours, path, letters);
    // The weights of this call, and not those of one that it contains.
    if (!leaf || (!leaf->empty() && ((*leaf)[0] != '.' || leaf->find('.', 1) != leaf->npos))) {
      continue;
    }
    StoredParameter stored{.names = {}, .short_names = {}, .transposed = module.transposed};
    for (const bool present : {true, false}) {
      auto& names = present ? stored.names : stored.short_names;
      const std::string pattern = with_optional(module.theirs, present);
      std::string counted;
      const std::string name = filled(pattern, letters, counted);
      stored.stacked = !counted.empty();
      for (int64_t e = 0; e < (stored.stacked ? entries : 1); ++e) {
        Letters all = letters;
        if (stored.stacked) all[counted] = std::to_string(e);
        names.push_back(filled(pattern, all, counted) + std::string(*leaf));
      }
    }
    return stored;
  }
  return std::nullopt;
}

bool is_ignored_tensor(const Format& format, std::string_view name, std::string_view file,
                       const Settings& settings) {
  for (const IgnoredTensor& ignored : format.ignored_tensors) {
    for (const bool present : {true, false}) {
      Letters letters;
      const auto rest = behind(with_optional(ignored.name, present), name, letters);
      if (!rest || !rest->empty()) continue;
      if (ignored.when.empty()) return true;
      const auto lookup = [&](const Term& term) {
        const auto found = settings.find(term.word);
        if (found == settings.end()) {
          fail_at(file, term.at, "there is no axis or number '", term.word, "'");
        }
        return found->second;
      };
      if (evaluate_number(ignored.when[0], file, lookup) != 0) return true;
    }
  }
  return false;
}

}  // namespace adjoint

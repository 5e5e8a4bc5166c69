#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

namespace adjoint {

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) out += between;
    out += parts[i];
  }
  return out;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

namespace {

// How many edits lead from `a` to each beginning of `b`; the last one is to all of it. Two
// neighbours that changed places are one edit: the commonest slip of all.
std::vector<size_t> edit_distances(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row;
}

// As names are compared: capitals are letters, and - and _ are one sign.
std::string alike(std::string_view word) {
  std::string out;
  for (const char c : word) {
    out += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// lr of learning-rate; the dashes of a flag stay.
std::string initials(std::string_view word) {
  const size_t first = word.find_first_not_of('-');
  if (first == word.npos) return "";
  std::string out(word.substr(0, first));
  for (size_t i = first; i < word.size(); ++i) {
    if (word[i] != '-' && (i == first || word[i - 1] == '-')) out += word[i];
  }
  return out;
}

// Whether `word` has `part` at its beginning or its end, with a dash between: batch-size has batch.
bool has_part(std::string_view word, std::string_view part) {
  const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  if (!part.starts_with(word.substr(0, dashes))) return false;
  word.remove_prefix(dashes);
  part.remove_prefix(std::min(dashes, part.size()));
  if (part.size() < 3 || part.size() + 1 >= word.size()) return false;
  return (word.starts_with(part) && word[part.size()] == '-') ||
         (word.ends_with(part) && word[word.size() - part.size() - 1] == '-');
}

// Whether `name` has the letters of `word` in their order: then some were only left out.
bool has_in_order(std::string_view name, std::string_view word) {
  for (const char c : name) {
    if (!word.empty() && word[0] == c) word.remove_prefix(1);
  }
  return word.empty();
}

// Without the dashes of a flag.
size_t count_letters(std::string_view word) {
  return word.size() - std::min(word.find_first_not_of('-'), word.size());
}

// The candidate with the smallest number, and of several the shortest; `cost` gives none for those
// that are not meant.
template <class Cost>
std::string best_by(const std::vector<std::string>& candidates, const Cost& cost) {
  const std::string* best = nullptr;
  size_t least = 0;
  for (const std::string& candidate : candidates) {
    const std::optional<size_t> found = cost(alike(candidate));
    if (!found) continue;
    const bool shorter = best && *found == least && candidate.size() < best->size();
    if (!best || *found < least || shorter) best = &candidate, least = *found;
  }
  return best ? *best : "";
}

}  // namespace

// From what is surely meant to what may be.
std::string nearest(std::string_view said, const std::vector<std::string>& candidates) {
  using Cost = std::optional<size_t>;
  const std::string word = alike(said);
  // Who writes the beginning of one name means that name: gpt3 is gpt3-175b and not gpt2.
  std::string found = best_by(candidates, [&](const std::string& c) {
    const bool begins = c == word || (word.size() >= 3 && c.starts_with(word));
    return begins ? Cost(c.size() - word.size()) : std::nullopt;
  });
  if (!found.empty()) return found;
  const size_t letters = count_letters(word);
  const size_t most = letters <= 3 ? 1 : std::max<size_t>(2, letters / 3);
  found = best_by(candidates, [&](const std::string& c) {
    const size_t distance = edit_distances(word, c).back();
    // A word of which not a letter is left was not mistyped.
    const bool left = distance < std::max(word.size(), c.size());
    // Of pan's neighbours plan comes before man: to leave a letter out is the commoner slip.
    return distance <= most && left ? Cost(2 * distance + !has_in_order(c, word)) : std::nullopt;
  });
  if (!found.empty()) return found;
  // A letter or two mean the one name that begins with them.
  if (letters > 0 && word.size() < 3) {
    size_t begin = 0;
    for (const std::string& candidate : candidates) {
      if (!alike(candidate).starts_with(word)) continue;
      ++begin;
      found = candidate;
    }
    return begin == 1 ? found : "";
  }
  found = best_by(candidates, [&](const std::string& c) {
    return has_part(word, c) || (c.size() >= 2 && word != c && initials(word) == c)
               ? Cost(word.size() - std::min(word.size(), c.size()))
               : std::nullopt;
  });
  if (!found.empty()) return found;
  // What tells one name from others: 4090 is rtx4090.
  found = best_by(candidates, [&](const std::string& c) {
    const bool holds = word.size() >= 3 && c.find(word) != c.npos;
    return holds ? Cost(c.size()) : std::nullopt;
  });
  if (!found.empty() || letters < 4) return found;
  // The beginning of one name, mistyped: lama3 is llama3-8b.
  return best_by(candidates, [&](const std::string& c) {
    const std::vector<size_t> to = edit_distances(word, c);
    const size_t distance = *std::min_element(to.begin(), to.end());
    return distance <= letters / 4 ? Cost(distance) : std::nullopt;
  });
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  std::vector<std::string> others;  // to mean what was said helps nobody
  for (const std::string& candidate : candidates) {
    if (candidate != word) others.push_back(candidate);
  }
  const std::string found = nearest(word, others);
  return found.empty() ? "" : "; did you mean '" + found + "'?";
}

std::string shortest(double number) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  return {buffer, end};
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string_view unit(end, text.data() + text.size() - end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::pair<std::string_view, double> units[] = {{"", 1},
                                                           {"b", 1},
                                                           {"kb", 1e3},
                                                           {"mb", 1e6},
                                                           {"gb", 1e9},
                                                           {"tb", 1e12},
                                                           {"kib", 1024.0},
                                                           {"mib", 1048576.0},
                                                           {"gib", 1073741824.0},
                                                           {"tib", 1099511627776.0}};
  for (const auto& [name, size] : units) {
    if (lowered(unit) != name) continue;
    const double bytes = number * size;
    if (bytes > 9e18) return std::nullopt;
    return Bytes{static_cast<int64_t>(bytes)};
  }
  return std::nullopt;
}

}  // namespace adjoint

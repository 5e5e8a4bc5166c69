#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

namespace adjoint {

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) out += between;
    out += parts[i];
  }
  return out;
}

// Two neighbours that changed places are one edit: the commonest slip of all.
static size_t edit_distance(std::string_view a, std::string_view b) {
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
  return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // Who writes the beginning of one name means that name: gpt3 is gpt3-175b and not gpt2.
  for (const std::string& candidate : candidates) {
    if (word.size() < 3 || !candidate.starts_with(word)) continue;
    if (best.empty() || candidate.size() < best.size()) best = candidate;
  }
  if (!best.empty()) return best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string found = nearest(word, candidates);
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
  std::string lower(unit);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [name, size] : units) {
    if (lower != name) continue;
    const double bytes = number * size;
    if (bytes > 9e18) return std::nullopt;
    return Bytes{static_cast<int64_t>(bytes)};
  }
  return std::nullopt;
}

}  // namespace adjoint

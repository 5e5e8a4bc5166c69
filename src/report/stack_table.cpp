#include "report/stack_table.h"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "base/text.h"

namespace adjoint {

namespace {

constexpr size_t kMostWidth = 44;  // a list of residences is longer than a line

std::string shortened(const std::string& name) {
  return name.size() <= kMostWidth ? name : name.substr(0, kMostWidth - 4) + "...)";
}

}  // namespace

std::string stack_table(const std::vector<Applied>& applied) {
  size_t width = 10;
  for (const Applied& a : applied) width = std::max(width, shortened(a.name).size());
  std::string out =
      fmt::format("{:<{}}  {:<14} {:>8}  {}\n", "functor", width, "law", "matches", "of which");
  for (const Applied& a : applied) {
    if (a.idle) continue;
    std::vector<std::string> counts;
    for (const auto& [what, count] : a.counts) {
      // The others are adjectives and names of uses.
      const bool one_gang = count == 1 && what == "gangs";
      counts.push_back(fmt::format("{} {}", count, one_gang ? "gang" : what));
    }
    std::string rest = join(counts, ", ");
    if (a.by_default) rest += rest.empty() ? "(on by default)" : " (on by default)";
    out += fmt::format("{:<{}}  {:<14} {:>8}  {}\n", shortened(a.name), width, name(a.law),
                       a.matches, rest);
  }
  for (const Applied& a : applied) {
    for (const std::string& rule : a.idle_rules) out += rule + "\n";
  }
  return out;
}

namespace {

// A scheme's lines by source, without the numbers of objects, which shift with every insertion.
std::map<std::string, std::string> lines_by_source(const Scheme& scheme) {
  std::map<std::string, std::string> lines;
  const auto known_as = [&](Value v) { return to_string(scheme[v].source); };
  std::istringstream text(print(scheme));
  std::string line;
  std::getline(text, line);
  const auto plain = [&](std::string line) {
    // In %12 block[0].qkv: ... (%3, %4), numbers of objects become their sources.
    std::string out;
    for (size_t i = 0; i < line.size();) {
      if (line[i] != '%') {
        out += line[i++];
        continue;
      }
      size_t end = ++i;
      while (end < line.size() && std::isdigit(static_cast<unsigned char>(line[end]))) ++end;
      const Value v = std::stoi(line.substr(i, end - i));
      i = end;
      if (i < line.size() && line[i] == ' ') {
        ++i;  // its own source follows
      } else {
        out += known_as(v);
      }
    }
    return out;
  };
  while (std::getline(text, line)) {
    const std::string said = plain(line);
    const size_t at = said.find(": ");
    std::string key = said.substr(0, at);
    while (lines.count(key)) key += "'";
    lines[key] = said;
  }
  return lines;
}

}  // namespace

std::string scheme_difference(const Scheme& before, const Scheme& after) {
  const auto old_lines = lines_by_source(before), new_lines = lines_by_source(after);
  std::string out;
  for (const auto& [key, line] : old_lines) {
    if (!new_lines.count(key)) out += "-" + line + "\n";
  }
  for (const auto& [key, line] : new_lines) {
    const auto found = old_lines.find(key);
    if (found == old_lines.end()) {
      out += "+" + line + "\n";
    } else if (found->second != line) {
      out += "~" + line + "\n";
    }
  }
  return out;
}

}  // namespace adjoint

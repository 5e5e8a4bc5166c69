#include "report/stack_table.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "base/text.h"

namespace adjoint {

namespace {

constexpr size_t kMostWidth = 44;  // a list of residences is longer than a line

std::string shortened(const std::string& name) {
  return name.size() <= kMostWidth ? name : name.substr(0, kMostWidth - 4) + "...)";
}

std::string counts_in_words(const Applied& applied) {
  std::vector<std::string> counts;
  for (const auto& [what, count] : applied.counts) {
    // The others are adjectives and names of uses.
    const bool one_gang = count == 1 && what == "gangs";
    counts.push_back(fmt::format("{} {}", with_commas(count), one_gang ? "gang" : what));
  }
  return join(counts, ", ");
}

}  // namespace

std::string stack_table(const std::vector<Applied>& applied) {
  size_t width = 10;
  for (const Applied& a : applied) width = std::max(width, shortened(a.name).size());
  std::string out =
      fmt::format("{:<{}}  {:<14} {:>8}  {}\n", "functor", width, "law", "matches", "of which");
  for (const Applied& a : applied) {
    if (a.idle) continue;
    std::string rest = counts_in_words(a);
    if (a.by_default) rest += rest.empty() ? "(on by default)" : " (on by default)";
    out += fmt::format("{:<{}}  {:<14} {:>8}  {}\n", shortened(a.name), width, name(a.law),
                       a.matches, rest);
  }
  for (const Applied& a : applied) {
    if (!a.against.empty()) {
      out += fmt::format("{} is {} against {}\n", shortened(a.name), name(a.law), a.against);
    }
  }
  for (const Applied& a : applied) {
    for (const std::string& rule : a.idle_rules) out += rule + "\n";
  }
  return out;
}

std::string what_it_did(const Applied& applied) {
  std::string out = counts_in_words(applied);
  if (out.empty()) {
    out = applied.matches == 0 ? "found nothing to do"
                               : fmt::format("{} {}", with_commas(applied.matches),
                                             applied.matches == 1 ? "match" : "matches");
  }
  if (const int64_t added = applied.calls_added; added != 0) {
    out += fmt::format("; {} {} {}", with_commas(std::abs(added)),
                       std::abs(added) == 1 ? "call" : "calls", added > 0 ? "more" : "fewer");
  }
  return out;
}

std::string deeds(const std::vector<Applied>& applied) {
  std::string out;
  for (const bool by_default : {false, true}) {
    for (const Applied& a : applied) {
      if (a.idle || a.by_default != by_default || (by_default && a.matches == 0)) continue;
      out += fmt::format("{}{}: {}\n", shortened(a.name), by_default ? " (on by default)" : "",
                         what_it_did(a));
    }
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

// What is said and not realized is no difference: attributes of objects whose type and calls are
// the same. What stays says where bytes are, and how a parameter is trained.
Scheme without_sayings(Scheme scheme) {
  for (Object& o : scheme.objects) {
    o.attributes = {.tier = o.attributes.tier,
                    .placement = o.attributes.placement,
                    .training = o.attributes.training};
  }
  return scheme;
}

}  // namespace

Difference difference_of(const Scheme& before, const Scheme& after) {
  const auto old_lines = lines_by_source(without_sayings(before));
  const auto new_lines = lines_by_source(without_sayings(after));
  Difference difference;
  for (const auto& [key, line] : old_lines) {
    if (!new_lines.count(key)) difference.gone.push_back(line);
  }
  for (const auto& [key, line] : new_lines) {
    const auto found = old_lines.find(key);
    if (found == old_lines.end()) {
      difference.added.push_back(line);
    } else if (found->second != line) {
      difference.changed.push_back({key, found->second, line});
    }
  }
  return difference;
}

std::string scheme_difference(const Scheme& before, const Scheme& after) {
  const Difference difference = difference_of(before, after);
  std::string out;
  for (const std::string& line : difference.gone) out += "-" + line + "\n";
  std::map<std::string, std::string> rest;  // in the order of their sources
  for (const std::string& line : difference.added) rest[line] = "+" + line + "\n";
  for (const auto& changed : difference.changed) rest[changed.is] = "~" + changed.is + "\n";
  for (const auto& [line, text] : rest) out += text;
  return out;
}

}  // namespace adjoint

#include "edit/format_modules.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "models/format_names.h"

namespace adjoint {

namespace {

using Components = std::vector<std::string>;

Components split_path(std::string_view path) {
  Components all;
  for (size_t from = 0; from <= path.size();) {
    const size_t end = std::min(path.find('.', from), path.size());
    all.emplace_back(path.substr(from, end - from));
    from = end + 1;
  }
  return all;
}

// "[3]" of block[3]; nothing of most.
std::string_view index_in(std::string_view component) {
  const size_t open = component.find('[');
  return open == component.npos ? std::string_view() : component.substr(open);
}

// For each component of `is` the one of `was` that it is, in the longest sequence that both have;
// -1 of one that is new.
std::vector<int> aligned(const Components& was, const Components& is) {
  std::vector<std::vector<size_t>> longest(was.size() + 1, std::vector<size_t>(is.size() + 1, 0));
  for (size_t i = was.size(); i-- > 0;) {
    for (size_t k = is.size(); k-- > 0;) {
      longest[i][k] = was[i] == is[k] ? longest[i + 1][k + 1] + 1
                                      : std::max(longest[i + 1][k], longest[i][k + 1]);
    }
  }
  std::vector<int> from(is.size(), -1);
  for (size_t i = 0, k = 0; i < was.size() && k < is.size();) {
    if (was[i] == is[k]) {
      from[k++] = static_cast<int>(i++);
    } else if (longest[i + 1][k] >= longest[i][k + 1]) {
      ++i;
    } else {
      ++k;
    }
  }
  return from;
}

// What a module must say for the path that `was` became: the same letters where the path is the
// same. Nothing where the two do not end alike.
std::optional<std::string> followed_name(const std::string& ours, const std::string& was_path,
                                         const std::string& is_path) {
  const Components pattern = split_path(ours);
  Components was = split_path(was_path), is = split_path(is_path);
  for (; was.size() > pattern.size(); was.pop_back(), is.pop_back()) {
    if (is.empty() || is.back() != was.back()) return std::nullopt;
  }
  if (was.size() != pattern.size() || is.empty()) return std::nullopt;
  const std::vector<int> from = aligned(was, is);
  Components out;
  for (size_t k = 0; k < is.size(); ++k) {
    if (from[k] >= 0) {
      out.push_back(pattern[static_cast<size_t>(from[k])]);
      continue;
    }
    std::string component = is[k];
    const std::string_view index = index_in(is[k]);
    for (size_t i = 0; i < was.size() && !index.empty(); ++i) {
      const bool same = std::count(from.begin(), from.end(), static_cast<int>(i)) == 0 &&
                        index_in(was[i]) == index;
      if (!same) continue;
      component = is[k].substr(0, is[k].size() - index.size());
      component += index_in(pattern[i]);
      break;
    }
    out.push_back(component);
  }
  return join(out, ".");
}

struct Named {
  std::string was, is;
};

// Paths of weights: parameters, and for calls without any in these settings one that they may have.
std::vector<Named> weights_of(const ComparedPaths& paths) {
  std::vector<Named> all;
  for (const auto& [was, is] : paths.parameters) all.push_back({was, is});
  for (const auto& [was, is] : paths.calls) {
    if (!was.empty() && !is.empty()) all.push_back({was + ".weight", is + ".weight"});
  }
  return all;
}

std::optional<std::vector<std::string>> stored_names(const Format& format,
                                                     const std::string& path) {
  const auto stored = stored_parameter(format, path, 1);
  return stored ? std::optional(stored->names) : std::nullopt;
}

// Whether a weight that had a name in the format has it still.
bool keeps_name(const Format& before, const Format& after, const Named& weight) {
  const auto was = stored_names(before, weight.was);
  return !was || was == stored_names(after, weight.is);
}

size_t module_of(const Format& format, const std::string& path) {
  Format one = format;
  for (size_t m = 0; m < format.modules.size(); ++m) {
    one.modules = {format.modules[m]};
    if (stored_names(one, path)) return m;
  }
  CHECK(false, "a weight that has a name in a format has a module there");
  return 0;
}

[[noreturn]] void refuse(const Format& format, const FormatModule& module, const Named& weight) {
  fail("after this edit module \"", module.ours, "\" of format ", format.kind,
       " could no longer name '", weight.was, "'");
}

TextRange text_of(const WrittenText& text, const FormatModule& module) {
  const TextRange at =
      text.range({module.at, module.at}, "module \"" + module.ours + "\" of a format");
  const TextRange inside{at.from + 1, at.from + 1 + module.ours.size()};  // behind the quote
  CHECK(text.slice(inside) == module.ours, "a module's place is that of its first text");
  return inside;
}

}  // namespace

bool follow_paths(const WrittenText& before, const Document& after, const ComparedPaths& paths,
                  std::vector<Change>& changes) {
  const std::vector<Named> weights = weights_of(paths);
  bool any = false;
  for (size_t f = 0; f < before.document().formats.size(); ++f) {
    const Format& was = before.document().formats[f];
    std::vector<std::string> wanted(was.modules.size());
    for (const Named& weight : weights) {
      if (keeps_name(was, after.formats[f], weight)) continue;
      const size_t m = module_of(was, weight.was);
      const auto name = followed_name(was.modules[m].ours, weight.was, weight.is);
      // Two weights of one module that part company: both names were needed.
      if (!name || (!wanted[m].empty() && wanted[m] != *name)) {
        refuse(was, was.modules[m], weight);
      }
      wanted[m] = *name;
    }
    for (size_t m = 0; m < wanted.size(); ++m) {
      if (wanted[m].empty()) continue;
      const TextRange at = text_of(before, was.modules[m]);
      std::erase_if(changes, [&](const Change& c) { return at.from <= c.from && c.to <= at.to; });
      changes.push_back({at.from, at.to, wanted[m]});
      any = true;
    }
  }
  return any;
}

void check_modules(const Document& before, const Document& after, const ComparedPaths& paths) {
  for (size_t f = 0; f < before.formats.size(); ++f) {
    for (const Named& weight : weights_of(paths)) {
      if (keeps_name(before.formats[f], after.formats[f], weight)) continue;
      const Format& was = before.formats[f];
      refuse(was, was.modules[module_of(was, weight.was)], weight);
    }
  }
}

}  // namespace adjoint

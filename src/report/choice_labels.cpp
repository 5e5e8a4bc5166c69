#include "report/choice_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/split.h"
#include "base/text.h"
#include "report/svg.h"

namespace adjoint {

namespace {

constexpr size_t kMostNames = 3;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (const SplitPart& part : split_outside_brackets(text, at)) {
    if (!part.text.empty()) parts.push_back(part.text);
  }
  return parts;
}

std::string name_of(const std::string& functor) { return functor.substr(0, functor.find('(')); }

// The tensor that a quoted path ends in: "block[0..11].attention#1.lse" -> attention#1.lse. Blocks
// are alike, so which of them it is tells less than what it is.
std::string tensor_of(std::string path) {
  std::erase(path, '"');
  const size_t bracket = path.rfind("].");
  return bracket == std::string::npos ? path : path.substr(bracket + 2);
}

// The lists that a functor is told: kept -> {attention#1, add#2}.
std::map<std::string, std::set<std::string>> lists_of(const std::string& functor) {
  std::map<std::string, std::set<std::string>> lists;
  const size_t open = functor.find('('), close = functor.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return lists;
  for (const std::string& argument : split(functor.substr(open + 1, close - open - 1), ',')) {
    const size_t equals = argument.find("=["), end = argument.rfind(']');
    if (equals == std::string::npos || end == std::string::npos) continue;
    std::set<std::string>& list = lists[argument.substr(0, equals)];
    for (const std::string& each : split(argument.substr(equals + 2, end - equals - 2), ',')) {
      list.insert(tensor_of(each));
    }
  }
  return lists;
}

std::vector<std::string> missing(const std::set<std::string>& from,
                                 const std::set<std::string>& in) {
  std::vector<std::string> out;
  std::set_difference(in.begin(), in.end(), from.begin(), from.end(), std::back_inserter(out));
  return out;
}

// One functor that is told something else than before.
std::string retold(const std::string& before, const std::string& now) {
  if (stack_in_short(before) == before && stack_in_short(now) == now) {
    return now + " instead of " + before;
  }
  auto old = lists_of(before), fresh = lists_of(now);
  std::vector<std::string> changes, folded;
  size_t tensors = 0;
  for (const auto& [list, names] : fresh) old[list];
  for (const auto& [list, names] : old) {
    const std::vector<std::string> more = missing(names, fresh[list]),
                                   less = missing(fresh[list], names);
    if (more.empty() && less.empty()) continue;
    if (!more.empty()) changes.push_back(list + " + " + join(more, ", "));
    if (!less.empty()) changes.push_back(list + " \u2212 " + join(less, ", "));
    folded.push_back(list + (more.empty() ? "" : fmt::format(" +{}", more.size())) +
                     (less.empty() ? "" : fmt::format(" \u2212{}", less.size())));
    tensors += more.size() + less.size();
  }
  if (changes.empty()) changes.push_back("in other blocks");
  // Many names tell a reader less than how many there are; --json has all of them.
  if (tensors > kMostNames) return name_of(now) + ": " + join(folded, ", ") + " tensors of a block";
  return name_of(now) + ": " + join(changes, "; ");
}

std::string difference(const std::string& above, const std::string& here) {
  std::vector<std::string> before = split(above, '|'), now = split(here, '|');
  std::vector<std::string> changes, with, without;
  // A default that is switched off, -fuse, is a step without it.
  const auto put = [](const std::string& functor, std::vector<std::string>& in,
                      std::vector<std::string>& out) {
    if (functor[0] == '-') {
      out.push_back(functor.substr(1));
    } else {
      in.push_back(stack_in_short(functor));
    }
  };
  for (const std::string& functor : now) {
    if (const auto same = std::find(before.begin(), before.end(), functor); same != before.end()) {
      before.erase(same);
      continue;
    }
    const auto named = std::find_if(before.begin(), before.end(), [&](const std::string& other) {
      return name_of(other) == name_of(functor);
    });
    if (named == before.end()) {
      put(functor, with, without);
      continue;
    }
    changes.push_back(retold(*named, functor));
    before.erase(named);
  }
  for (const std::string& functor : before) put(functor, without, with);
  if (!with.empty()) changes.push_back("with " + join(with, ", "));
  if (!without.empty()) changes.push_back("without " + join(without, ", "));
  return changes.empty() ? "the same stack" : join(changes, "; ");
}

}  // namespace

std::vector<std::string> choice_labels(const std::vector<std::string>& stacks) {
  std::vector<std::string> labels;
  for (size_t i = 0; i < stacks.size(); ++i) {
    labels.push_back(i == 0 ? stack_in_short(trimmed(stacks[0]).empty() ? "plain" : stacks[0])
                            : difference(stacks[i - 1], stacks[i]));
  }
  return labels;
}

}  // namespace adjoint

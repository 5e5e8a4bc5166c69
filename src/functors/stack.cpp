#include "functors/stack.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "functors/functor_text.h"

namespace adjoint {

namespace {

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::vector<std::string> split_items(std::string_view text) {
  std::vector<std::string> items;
  std::string item;
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == '|' && depth == 0) {
      items.push_back(trimmed(item));
      item.clear();
    } else {
      item += c;
    }
  }
  items.push_back(trimmed(item));
  if (items.size() == 1 && items[0].empty()) items.clear();
  return items;
}

const Functor* find_functor(std::string_view name) {
  for (const Functor* f : all_functors()) {
    if (f->name == name) return f;
  }
  return nullptr;
}

std::vector<std::string> functor_names(bool defaults_only) {
  std::vector<std::string> names;
  for (const Functor* f : all_functors()) {
    if (f->by_default || !defaults_only) names.push_back(f->name);
  }
  return names;
}

[[noreturn]] void fail_unknown(std::string_view what, const std::string& name,
                               const std::vector<std::string>& names) {
  fail("stack: there is no ", what, " '", name, "' (there are ", join(names, ", "), ")",
       did_you_mean(name, names));
}

// The rank of a functor within its phase: the list's order; users' own functors come after the
// named built-in ones and before the defaults.
struct Ranked {
  StackedFunctor functor;
  int rank;
};

int rank_of(const Functor& functor, bool from_file) {
  if (from_file) return 1000;
  const auto all = all_functors();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->name == functor.name) return static_cast<int>(i) + (functor.by_default ? 2000 : 0);
  }
  return 0;
}

// name or path, and (arguments) or nothing.
struct Item {
  std::string name, rest;
  bool from_file() const { return name.ends_with(".functor"); }
};

Item split_item(const std::string& item) {
  // A path may have brackets of its own.
  const size_t file_end = item.find(".functor");
  const size_t bracket = item.find('(', file_end == std::string::npos ? 0 : file_end);
  return {trimmed(item.substr(0, bracket)),
          bracket == std::string::npos ? "" : item.substr(bracket)};
}

Ranked read_item(const std::string& item) {
  const Item parts = split_item(item);
  const std::string& name = parts.name;
  const bool from_file = parts.from_file();
  Functor functor;
  if (from_file) {
    functor = parse_functor(read_file(name), name);
  } else {
    const Functor* found = find_functor(name);
    if (!found) fail_unknown("functor", name, functor_names(false));
    functor = *found;
  }
  const Term call = parse_term("_" + (parts.rest.empty() ? "()" : parts.rest), "stack");
  if (call.kind != Term::Kind::kCall) fail("stack: wanted a functor, found '", item, "'");
  Arguments args(functor.name, functor.params, call);
  const int rank = rank_of(functor, from_file);
  return {{std::move(functor), std::move(args), false}, rank};
}

}  // namespace

Stack parse_stack(std::string_view text) {
  std::vector<Ranked> ranked;
  Stack stack;
  for (const std::string& item : split_items(text)) {
    if (item.empty()) fail("stack: wanted a functor between two '|', found nothing");
    if (item[0] == '-') {
      const std::string name = trimmed(item.substr(1));
      const Functor* found = find_functor(name);
      if (!found) fail_unknown("functor", name, functor_names(true));
      if (!found->by_default) {
        fail("stack: '", name, "' is not on by default, so it cannot be switched off (on are ",
             join(functor_names(true), ", "), ")");
      }
      stack.off.push_back(name);
      continue;
    }
    ranked.push_back(read_item(item));
  }
  for (const Functor* f : all_functors()) {
    if (!f->by_default) continue;
    const auto is_this = [&](const Ranked& r) { return r.functor.functor.name == f->name; };
    const bool off = std::count(stack.off.begin(), stack.off.end(), f->name) > 0;
    const bool named = std::any_of(ranked.begin(), ranked.end(), is_this);
    if (off && named) fail("stack: '", f->name, "' is both named and switched off");
    if (off || named) continue;
    ranked.push_back({{*f, Arguments(f->name, f->params, Term{}), true}, rank_of(*f, false)});
  }
  // A functor that is named twice is ordered by its arguments, so that text order does not matter.
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.functor.print() < b.functor.print();
  });
  for (size_t i = 0; i + 1 < ranked.size(); ++i) {
    const StackedFunctor &a = ranked[i].functor, &b = ranked[i + 1].functor;
    if (a.print() == b.print() && a.functor.text == b.functor.text) {
      fail("stack: '", a.print(), "' is there twice");
    }
  }
  for (Ranked& r : ranked) stack.functors.push_back(std::move(r.functor));
  return stack;
}

std::string print(const Stack& stack) {
  std::vector<std::string> parts;
  for (const StackedFunctor& f : stack.functors) {
    if (!f.by_default) parts.push_back(f.print());
  }
  for (const std::string& name : stack.off) parts.push_back("-" + name);
  return join(parts, " | ");
}

std::string with_functor_files(std::string_view stack,
                               const std::function<std::string(const std::string&)>& renamed) {
  std::vector<std::string> items = split_items(stack);
  for (std::string& item : items) {
    const Item parts = split_item(item);
    if (parts.from_file()) item = renamed(parts.name) + parts.rest;
  }
  return join(items, " | ");
}

Law law_of(const Stack& stack) {
  Law law = Law::kExact;
  for (const StackedFunctor& f : stack.functors) {
    if (!f.by_default) law = std::max(law, f.functor.law);
  }
  return law;
}

Stack without(const Stack& stack, size_t index) {
  Stack rest = stack;
  rest.functors.erase(rest.functors.begin() + static_cast<int64_t>(index));
  return rest;
}

}  // namespace adjoint

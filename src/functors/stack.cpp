#include "functors/stack.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/file.h"
#include "base/file_view.h"
#include "base/split.h"
#include "base/text.h"
#include "functors/functor_text.h"
#include "functors/near_functor.h"
#include "models/settings.h"
#include "schedules/schedule.h"

namespace adjoint {

namespace {

using Piece = SplitPart;

// What stands between two bars of a stack, and where in the stack it begins.
std::vector<Piece> split_items(std::string_view text) {
  std::vector<Piece> items = split_outside_brackets(text, '|');
  if (items.size() == 1 && items[0].text.empty()) items.clear();
  return items;
}

std::vector<std::string> names_of_defaults() {
  std::vector<std::string> names;
  for (const Functor* f : all_functors()) {
    if (f->by_default) names.push_back(f->name);
  }
  return names;
}

// "stack:1:8: ", counted in the stack as it was written.
constexpr const char* kStackFile = "stack";
std::string place_in_stack(size_t at) { return join_parts(kStackFile, ":1:", at + 1, ": "); }

// Refuses a functor whose arguments have no brackets: lora rank=8.
void check_has_brackets(const Piece& item) {
  const size_t blank = item.text.find_first_of(" (");
  if (blank == item.text.npos || item.text[blank] == '(') return;
  const std::string name = item.text.substr(0, blank);
  std::vector<std::string> arguments;
  for (const Piece& listed : split_outside_brackets(item.text.substr(blank), ',')) {
    for (const Piece& part : split_outside_brackets(listed.text, ' ')) {
      if (part.text.empty()) continue;
      const bool number = part.text[0] >= '0' && part.text[0] <= '9';
      if (part.text.substr(0, part.text.find('(')).find('=') == part.text.npos && !number) return;
      arguments.push_back(part.text);
    }
  }
  if (arguments.empty() || name.ends_with(',') || name.find('=') != name.npos) return;
  fail(place_in_stack(item.at), "a functor's arguments stand in brackets, found '", item.text,
       "'; did you mean '", name, "(", join(arguments, ", "), ")'?");
}

// Refuses an item whose functors are joined by another sign, or by none: what stands between
// brackets is not meant.
void check_not_joined_otherwise(const Piece& item) {
  const bool has_path = item.text.find(kFunctorFile) != item.text.npos;  // may be of any signs
  for (const char sign : {',', '+', '&', ';', ' '}) {
    if (has_path && sign != ',') return;
    std::vector<std::string> parts;
    bool named = true;
    for (const Piece& part : split_outside_brackets(item.text, sign)) {
      if (part.text.empty() && sign == ' ') continue;
      const std::string word = part.text.substr(0, part.text.find('('));
      // `every=2` is an argument without brackets, and no functor.
      named = named && !word.empty() && word != "-" && word.find('=') == word.npos;
      parts.push_back(part.text);
    }
    if (parts.size() < 2 || (!named && sign != ',')) continue;
    fail(place_in_stack(item.at), "functors are joined by '|', found '", item.text,
         "'; did you mean '", join(parts, " | "), "'?");
  }
}

[[noreturn]] void fail_unknown(const std::string& name, const std::string& place) {
  const std::string near = did_you_mean_functor(name);
  fail(place, "there is no functor '", name, "'",
       near.empty() ? "; adjoint functors lists them" : near);
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
  bool from_file() const { return name.ends_with(kFunctorFile); }
};

Item split_item(const std::string& item) {
  // A path may have brackets of its own.
  const size_t file_end = item.find(kFunctorFile);
  const size_t bracket = item.find('(', file_end == std::string::npos ? 0 : file_end);
  return {trimmed(item.substr(0, bracket)),
          bracket == std::string::npos ? "" : item.substr(bracket)};
}

// The pieces of a text that are in quotes, each with what stands before it; the rest comes alone.
template <class F>
void for_each_text(std::string_view text, const F& f) {
  for (size_t at = 0;;) {
    const size_t open = text.find('"', at);
    const size_t close = open == text.npos ? text.npos : text.find('"', open + 1);
    if (close == text.npos) return f(text.substr(at), std::nullopt);
    f(text.substr(at, open - at),
      std::optional<std::string>(text.substr(open + 1, close - open - 1)));
    at = close + 1;
  }
}

// What a stack has named so far.
struct Reading {
  std::vector<Ranked> ranked = {};
  std::vector<std::string> off = {};
};

void switch_off(const std::string& name, Reading& into, const std::string& place) {
  const Functor* found = find_functor(all_functors(), name);
  if (!found) fail_unknown(name, place);
  if (!found->by_default) {
    fail(place, "'", name, "' is not on by default, so it cannot be switched off (on are ",
         join(names_of_defaults(), ", "), ")");
  }
  // A stack and a stack inside it may both want it off.
  if (std::find(into.off.begin(), into.off.end(), name) == into.off.end()) into.off.push_back(name);
}

// An argument of a part, with the parameters of the functor whose stack it is in filled in.
class Filling {
 public:
  Filling(const Functor& functor, const Arguments& args, const StackPart& part)
      : functor_(functor), args_(args), part_(part) {}

  Term call() const {
    Term filled = part_.call;
    filled.kind = Term::Kind::kCall;
    for (Term& arg : filled.args) arg = term(arg);
    for (auto& [word, arg] : filled.keywords) arg = term(arg);
    return filled;
  }

 private:
  bool is_param(std::string_view name) const {
    return std::any_of(functor_.params.begin(), functor_.params.end(),
                       [&](const FunctorParam& p) { return p.name == name; });
  }
  Term term(const Term& t) const {
    if (t.kind == Term::Kind::kName) return is_param(t.word) ? term(args_.term(t.word)) : t;
    if (t.kind == Term::Kind::kList) {
      Term list = t;
      for (Term& element : list.args) element = term(element);
      return list;
    }
    if (t.kind == Term::Kind::kText) return t;
    return {.number = number(t), .at = t.at};
  }
  double number(const Term& t) const {
    return evaluate_number(t, part_.file, [&](const Term& name) {
      if (is_param(name.word)) return number(args_.term(name.word));
      fail_at(part_.file, name.at, "there is no number '", name.word, "' here");
    });
  }

  const Functor& functor_;
  const Arguments& args_;
  const StackPart& part_;
};

// `file`: what the call was read from, where complaints should say its place.
void add(const Functor& functor, const Term& call, std::string_view file, bool from_file,
         std::vector<std::string> within, Reading& into) {
  Arguments args(functor.name, functor.params, call, file);
  if (functor.parts.empty()) {
    const int rank = rank_of(functor, from_file);
    into.ranked.push_back({{functor, std::move(args), false, std::move(within)}, rank});
    StackedFunctor& added = into.ranked.back().functor;
    if (functor.weakened) {
      added.functor.law = std::max(functor.law, functor.weakened(added.args));
    }
    return;
  }
  within.push_back(functor.name);
  const size_t first = into.ranked.size();
  for (const StackPart& part : functor.parts) {
    try {
      if (part.off) {
        switch_off(part.name, into, "");
        continue;
      }
      const Functor* found = find_functor(all_functors(), part.name);
      if (!found) fail_unknown(part.name, "");
      add(*found, Filling(functor, args, part).call(), "", false, within, into);
    } catch (const Error& e) {
      fail_at(part.file, part.at, functor.name, ": ", e.what());
    }
  }
  for (size_t i = first; i < into.ranked.size(); ++i) {
    const StackedFunctor& part = into.ranked[i].functor;
    if (part.functor.law <= functor.law) continue;
    fail_at(functor.parts[0].file, functor.parts[0].at, functor.name, ": says that it is ",
            name(functor.law), ", and ", part.print(), " is ", name(part.functor.law));
  }
}

void read_item(const Piece& item, Reading& into) {
  const Item parts = split_item(item.text);
  const std::string& name = parts.name;
  const bool from_file = parts.from_file();
  Functor functor;
  if (from_file) {
    functor = parse_functor(read_file(name), name);
    settle_law(functor, all_functors());
  } else {
    const Functor* found = find_functor(all_functors(), name);
    if (!found) {
      const std::string file = name + std::string(kFunctorFile);
      if (!name.empty() && is_visible(file)) {
        fail(place_in_stack(item.at), "there is no functor '", name, "'; did you mean '", file,
             "'?");
      }
      if (name.ends_with(".scheme")) {
        fail(place_in_stack(item.at), "'", name, "' is a model; say --model ", name);
      }
      fail_unknown(name, place_in_stack(item.at));
    }
    functor = *found;
  }
  // As far to the right as it stands in the stack, so that an error's column is the stack's.
  const size_t bracket = item.at + item.text.size() - parts.rest.size();
  Term call = parse_term(
      std::string(bracket - 1, ' ') + "_" + (parts.rest.empty() ? "()" : parts.rest), kStackFile);
  if (call.kind != Term::Kind::kCall) {
    fail(place_in_stack(item.at), "wanted a functor, found '", item.text, "'");
  }
  call.at.column = static_cast<int>(item.at) + 1;
  add(functor, call, kStackFile, from_file, {}, into);
}

// " (in qlora)" where a part of a stack is meant.
std::string where_named(const StackedFunctor& a, const StackedFunctor& b) {
  std::vector<std::string> places;
  for (const StackedFunctor* f : {&a, &b}) {
    if (!f->within.empty()) places.push_back("in " + join(f->within, ": "));
  }
  return places.empty() ? "" : " (" + join(places, ", and ") + ")";
}

}  // namespace

Stack parse_stack(std::string_view text) {
  Reading reading;
  for (const Piece& item : split_items(text)) {
    if (item.text.empty()) {
      fail(place_in_stack(item.at), "wanted a functor between two '|', found nothing");
    }
    check_has_brackets(item);
    check_not_joined_otherwise(item);
    if (item.text[0] == '-') {
      switch_off(trimmed(item.text.substr(1)), reading, place_in_stack(item.at));
    } else {
      read_item(item, reading);
    }
  }
  Stack stack{.functors = {}, .off = std::move(reading.off)};
  std::vector<Ranked> ranked = std::move(reading.ranked);
  for (const Functor* f : all_functors()) {
    if (!f->by_default) continue;
    const auto is_this = [&](const Ranked& r) { return r.functor.functor.name == f->name; };
    const bool off = std::count(stack.off.begin(), stack.off.end(), f->name) > 0;
    const bool named = std::any_of(ranked.begin(), ranked.end(), is_this);
    if (off && named) fail("stack: '", f->name, "' is both named and switched off");
    if (off || named) continue;
    ranked.push_back({{*f, Arguments(f->name, f->params, Term{}), true, {}}, rank_of(*f, false)});
  }
  // A functor that is named twice is ordered by its arguments, so that text order does not matter.
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.functor.print() < b.functor.print();
  });
  for (size_t i = 0; i + 1 < ranked.size(); ++i) {
    const StackedFunctor &a = ranked[i].functor, &b = ranked[i + 1].functor;
    if (a.print() == b.print() && a.functor.text == b.functor.text) {
      fail("stack: '", a.print(), "' is there twice", where_named(a, b));
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

std::string with_stack_files(std::string_view stack,
                             const std::function<std::string(const std::string&)>& renamed) {
  std::vector<std::string> items;
  for (const Piece& piece : split_items(stack)) {
    const Item parts = split_item(piece.text);
    std::string& item = items.emplace_back(parts.from_file() ? renamed(parts.name) : parts.name);
    for_each_text(parts.rest,
                  [&](std::string_view outside, const std::optional<std::string>& text) {
                    item += outside;
                    if (text)
                      item += '"' + (text->ends_with(kScheduleFile) ? renamed(*text) : *text) + '"';
                  });
  }
  return join(items, " | ");
}

std::vector<std::string> files_named_in(std::string_view functor_text) {
  std::vector<std::string> files;
  for_each_text(functor_text, [&](std::string_view, const std::optional<std::string>& text) {
    if (text && text->ends_with(kScheduleFile)) files.push_back(*text);
  });
  return files;
}

Law law_of(const Stack& stack) {
  Law law = Law::kExact;
  for (const StackedFunctor& f : stack.functors) {
    if (!f.by_default) law = std::max(law, f.functor.law);
  }
  return law;
}

Stack with_forward_functors(Stack stack, std::string_view items) {
  for (const StackedFunctor& f : stack.functors) {
    if (f.functor.of_forward) fail(f.functor.name, ": generation applies it by itself");
  }
  Reading reading;
  for (const Piece& item : split_items(items)) read_item(item, reading);
  for (Ranked& r : reading.ranked) {
    CHECK(r.functor.functor.of_forward, r.functor.functor.name + " is a functor of a step");
    stack.functors.push_back(std::move(r.functor));
  }
  return stack;
}

Stack without(const Stack& stack, size_t index) {
  Stack rest = stack;
  rest.functors.erase(rest.functors.begin() + static_cast<int64_t>(index));
  return rest;
}

Stack compared_with(const Stack& stack, size_t index) {
  const StackedFunctor& f = stack.functors[index];
  Stack rest = without(stack, index);
  const std::optional<Term> told = f.functor.against ? f.functor.against(f.args) : std::nullopt;
  if (!told) return rest;
  bool found = false;
  for (StackedFunctor& other : rest.functors) {
    if (other.functor.name != told->word) continue;
    found = true;
    Term call{.kind = Term::Kind::kCall};
    for (const FunctorParam& p : other.functor.params) {
      const auto said = std::find_if(told->keywords.begin(), told->keywords.end(),
                                     [&](const auto& k) { return k.first == p.name; });
      Term value = other.args.term(p.name);
      if (said != told->keywords.end()) {
        // In 2 parts, and each of them in 4 again.
        const bool counts = p.words.empty() && !p.list && said->second.word.empty();
        const double times = counts ? other.args.number(p.name) : 1;
        value = said->second;
        if (counts) value.number *= times;
      }
      call.keywords.emplace_back(p.name, std::move(value));
    }
    other.args = Arguments(other.functor.name, other.functor.params, call);
  }
  const Functor* named = found ? nullptr : find_functor(all_functors(), told->word);
  if (!named) return rest;
  // Where it belongs among the others.
  const int rank = rank_of(*named, false);
  const auto place =
      std::find_if(rest.functors.begin(), rest.functors.end(), [&](const StackedFunctor& other) {
        return rank_of(other.functor, !find_functor(all_functors(), other.functor.name)) > rank;
      });
  rest.functors.insert(place, {*named, Arguments(named->name, named->params, *told), false, {}});
  return rest;
}

namespace {

// Another functor as it is told because of this one, in the stack `compared` that its law compares
// with.
struct Told {
  StackedFunctor functor;
  Stack compared;
};
std::optional<Told> told_because_of(const Stack& stack, size_t index) {
  const StackedFunctor& f = stack.functors[index];
  const std::optional<Term> told = f.functor.against ? f.functor.against(f.args) : std::nullopt;
  if (!told) return std::nullopt;
  Stack compared = compared_with(stack, index);
  const auto named = [&](const StackedFunctor& other) { return other.functor.name == told->word; };
  const auto found = std::find_if(compared.functors.begin(), compared.functors.end(), named);
  const auto before = std::find_if(stack.functors.begin(), stack.functors.end(), named);
  if (found == compared.functors.end()) return std::nullopt;
  if (before != stack.functors.end() && before->print() == found->print()) return std::nullopt;
  return Told{*found, std::move(compared)};
}

}  // namespace

std::string against(const Stack& stack, size_t index) {
  const std::optional<Told> told = told_because_of(stack, index);
  return told ? told->functor.print() : "";
}

std::string against(const Stack& stack) {
  Stack rest = stack;
  std::map<std::string, StackedFunctor> all;  // by name: two may tell one
  for (size_t i = 0; i < rest.functors.size();) {
    std::optional<Told> told = told_because_of(rest, i);
    if (!told) {
      ++i;
      continue;
    }
    all.insert_or_assign(told->functor.functor.name, std::move(told->functor));
    rest = std::move(told->compared);
    i = 0;
  }
  Law law = law_of(stack);
  std::vector<std::string> calls;
  for (const auto& [name, told] : all) {
    law = std::max(law, told.functor.law);
    calls.push_back(told.print());
  }
  return law == law_of(stack) ? "" : join(calls, " | ");
}

}  // namespace adjoint

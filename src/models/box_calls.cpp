// Calls of boxes, once or repeated, and the notation's own words: a free parameter, and what deals
// with the lists that repetitions make.
//
// Repeating a box is a scan. Of its operands, the first are carried: they are what the repetition
// before gave. A list is dealt out, one object to each repetition. Operands that the box does not
// give back go to every repetition as they are, and what it gives beyond its operands is gathered
// in a list; losses are added up.
#include <algorithm>

#include "base/counts.h"
#include "base/text.h"
#include "models/elaborator.h"

namespace adjoint {

std::optional<std::string> name_seen_from(std::string_view around, const std::string& call) {
  const size_t dot = call.rfind('.');
  if (dot == call.npos) return call;
  const bool inside = around == call.substr(0, dot) || around.starts_with(call.substr(0, dot + 1));
  return inside ? std::optional(call.substr(dot + 1)) : std::nullopt;
}

namespace {

constexpr size_t kDeepestBoxes = 64;

const Term* keyword(const Term& call, std::string_view name) {
  for (const auto& [word, value] : call.keywords) {
    if (word == name) return &value;
  }
  return nullptr;
}

}  // namespace

Elaborator::Meaning Elaborator::call_box(Scope& scope, const Term& call, const Box& box) {
  std::vector<Meaning> given;  // one object or list each
  for (const Term& arg : call.args) {
    const Meaning meaning = evaluate(scope, arg);
    if (const auto* objects = std::get_if<Objects>(&meaning)) {
      for (const Value v : *objects) given.emplace_back(Objects{v});
    } else if (std::holds_alternative<List>(meaning)) {
      if (call.repeat.empty()) {
        fail_here(arg.at, box.name, ": only a repeated box takes a list, found ", print(arg));
      }
      given.push_back(meaning);
    } else {
      fail_here(arg.at, box.name, ": wants objects, found ",
                std::holds_alternative<double>(meaning) ? "the number" : describe(meaning), " ",
                print(arg));
    }
  }
  if (given.size() != box.formals.size()) {
    std::vector<std::string> names;
    for (const Formal& f : box.formals) names.push_back(f.name);
    fail_here(call.at, box.name, ": wants ",
              counted(static_cast<int64_t>(box.formals.size()), "object"), " (", join(names, ", "),
              "), found ", given.size());
  }
  for (const auto& [word, value] : call.keywords) {
    if (word != "name" && word != "weights") {
      fail_here(call.at, box.name, ": there is no argument '", word,
                "'; a box takes objects by position, and name and weights");
    }
  }
  // Found first: a call may not have its own weights.
  const std::string path = call_path(scope, call, box.name, true);
  if (!call.repeat.empty()) return repeat_box(scope, call, box, std::move(given), path);
  Objects objects;
  for (const Meaning& one : given) objects.push_back(std::get<Objects>(one)[0]);
  check_formals(box, objects, call.at);
  return run_box({.box = box,
                  .path = path,
                  .weights = weights_for(scope, call, path),
                  .repetition = scope.repetition},
                 objects, call.at);
}

// Refuses a result that would silently become an operand of another name in the next repetition:
// `h, all = h, h` of a box of h and e. The first result is the state, whatever it is called.
void Elaborator::check_carried(const Box& box, size_t result, const std::string& operand,
                               Position at) const {
  const std::vector<std::string>& names = box.body.back().names;
  if (result == 0 || result >= names.size() || names[result] == operand) return;
  fail_here(at, box.name, ": '", names[result], "' would be '", operand,
            "' in the next repetition; call it '", operand, "' if it is meant so, or give '",
            operand, "' back before '", names[result], "', which is gathered in a list then");
}

Elaborator::Meaning Elaborator::repeat_box(Scope& scope, const Term& call, const Box& box,
                                           std::vector<Meaning> given, const std::string& path) {
  const int64_t times = whole_number(scope, call.repeat[0], "how often a box is repeated");
  size_t carried = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* list = std::get_if<List>(&given[i]);
    carried += !list;
    if (list && static_cast<int64_t>(list->items.size()) != times) {
      fail_here(call.at, box.name, ": is repeated ", times, " times, and the list for '",
                box.formals[i].name, "' has ", list->items.size(), " objects");
    }
  }
  const Term* weights = keyword(call, "weights");
  const bool one = weights && weights->kind == Term::Kind::kName && weights->word == "one" &&
                   scope.taken.count("one") == 0;
  Term own = call;
  if (one) std::erase_if(own.keywords, [](const auto& k) { return k.first == "weights"; });
  const std::string owner = weights_for(scope, own, path);
  std::vector<List> gathered;
  std::vector<Loss> losses;
  size_t given_back = 0;
  for (int64_t i = 0; i < times; ++i) {
    const std::string index = "[" + std::to_string(i) + "]";
    Objects inputs;
    for (const Meaning& each : given) {
      const auto* list = std::get_if<List>(&each);
      inputs.push_back(list ? list->items[static_cast<size_t>(i)] : std::get<Objects>(each)[0]);
    }
    check_formals(box, inputs, call.at);
    const Meaning value = run_box({.box = box,
                                   .path = path + index,
                                   .weights = owner + (one ? "[0]" : index),
                                   .repetition = i},
                                  inputs, call.at);
    Tuple all;
    if (const auto* objects = std::get_if<Objects>(&value)) all.objects = *objects;
    if (const auto* loss = std::get_if<Loss>(&value)) all.losses = {*loss};
    if (const auto* tuple = std::get_if<Tuple>(&value)) all = *tuple;
    // What one repetition gathers all do, or lists and losses would lose some.
    if (i == 0) losses.resize(all.losses.size());
    if (all.losses.size() != losses.size()) {
      fail_here(call.at, box.name, ": repetition ", i, " gives ", all.losses.size(),
                all.losses.size() == 1 ? " loss" : " losses", ", those before it ", losses.size());
    }
    for (size_t k = 0; k < losses.size(); ++k) {
      losses[k].insert(losses[k].end(), all.losses[k].begin(), all.losses[k].end());
    }
    const Objects* results = &all.objects;
    if (i > 0 && results->size() != given_back + gathered.size()) {
      fail_here(call.at, box.name, ": repetition ", i, " gives ",
                counted(static_cast<int64_t>(results->size()), "object"), ", those before it ",
                given_back + gathered.size());
    }
    given_back = std::min(carried, results->size());
    size_t next = 0;
    for (size_t k = 0; k < given.size(); ++k) {
      if (!std::holds_alternative<Objects>(given[k]) || next == results->size()) continue;
      check_carried(box, next, box.formals[k].name, call.at);
      given[k] = Objects{(*results)[next++]};
    }
    gathered.resize(results->size() - next);
    for (List& list : gathered) list.items.push_back((*results)[next++]);
  }
  // Without a repetition the last statement tells how many objects a box gives.
  const size_t results = times ? given_back : std::min(carried, box.body.back().names.size());
  Tuple made;
  for (const Meaning& each : given) {
    const auto* object = std::get_if<Objects>(&each);
    if (object && made.objects.size() < results) made.objects.push_back(object->front());
  }
  if (gathered.empty() && losses.empty()) return made.objects;
  made.lists = std::move(gathered);
  made.losses = std::move(losses);
  return made;
}

// Whose parameters a call has: its own, or `weights=name` those of an earlier call in this box or
// in the boxes around it.
std::string Elaborator::weights_for(const Scope& scope, const Term& call, const std::string& path) {
  const Term* weights = keyword(call, "weights");
  if (!weights) {
    const std::string own = scope.weights + path.substr(scope.path.size());
    owners_.insert(own);
    return own;
  }
  if (weights->kind != Term::Kind::kName) {
    fail_here(weights->at, call.word, ": weights must be the name of an earlier call, found ",
              print(*weights));
  }
  std::string around = scope.weights;
  while (true) {
    const std::string of = around.empty() ? weights->word : around + "." + weights->word;
    if (owners_.count(of)) return of;
    if (around.empty()) break;
    const size_t dot = around.rfind('.');
    around.resize(dot == std::string::npos ? 0 : dot);
  }
  std::vector<std::string> known;
  for (const std::string& owner : owners_) {
    if (const auto name = name_seen_from(scope.weights, owner)) known.push_back(*name);
  }
  fail_here(weights->at, call.word, ": there is no call '", weights->word,
            "' above whose weights it could have", did_you_mean(weights->word, known));
}

void Elaborator::check_formals(const Box& box, const Objects& inputs, Position at) {
  const Scope scope{.box = box};
  for (size_t i = 0; i < inputs.size(); ++i) check_formal(scope, box.formals[i], inputs[i], at);
}

Elaborator::Meaning Elaborator::run_box(Scope scope, const Objects& inputs, Position at) {
  const Box& box = scope.box;
  if (std::count(open_boxes_.begin(), open_boxes_.end(), &box)) {
    fail_here(at, box.name, ": a box cannot call itself");
  }
  if (open_boxes_.size() >= kDeepestBoxes) {
    fail_here(at, box.name, ": more than ", kDeepestBoxes, " boxes inside each other");
  }
  count_call(at);
  open_boxes_.push_back(&box);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Formal& formal = box.formals[i];
    if (!scope.locals.emplace(formal.name, Objects{inputs[i]}).second) {
      fail_here(formal.at, box.name, ": '", formal.name, "' is named twice");
    }
  }
  Meaning value = run_body(scope);
  open_boxes_.pop_back();
  return value;
}

// param(...), reverse(...) or item(...).
Elaborator::Meaning Elaborator::call_word(Scope& scope, const Term& call) {
  if (call.word == "param") return free_parameter(scope, call);
  const bool reverse = call.word == "reverse";
  if (call.args.size() != (reverse ? 1 : 2) || !call.keywords.empty() || !call.repeat.empty()) {
    fail_here(call.at, call.word, ": wants a list", reverse ? "" : " and a number from 0",
              ", found ", print(call));
  }
  const Meaning meaning = evaluate(scope, call.args[0]);
  const auto* list = std::get_if<List>(&meaning);
  if (!list) {
    fail_here(call.args[0].at, call.word, ": wants a list, as a repeated box gives it, found ",
              describe(meaning), " ", print(call.args[0]));
  }
  if (reverse) return List{{list->items.rbegin(), list->items.rend()}};
  const int64_t at = whole_number(scope, call.args[1], "item: its number");
  if (at >= static_cast<int64_t>(list->items.size())) {
    fail_here(call.args[1].at, "item: the list has items 0 to ", list->items.size() - 1, ", found ",
              at);
  }
  return Objects{list->items[static_cast<size_t>(at)]};
}

// param(heads, dim, init=ones, name=gain): a learned object that no op owns.
Elaborator::Objects Elaborator::free_parameter(Scope& scope, const Term& call) {
  if (!call.repeat.empty()) fail_here(call.at, "param: only a box can be repeated");
  std::vector<Axis> axes;
  for (const Term& size : call.args) {
    const int64_t n = whole_number(scope, size, "param: the size of an axis");
    const bool plain = size.kind == Term::Kind::kNumber;
    axes.push_back({plain ? "n" + std::to_string(axes.size()) : axis_label(size), n});
  }
  Init start{.kind = Init::Kind::kZeros};
  for (const auto& [word, value] : call.keywords) {
    if (word == "init") {
      start = init(scope, value);
    } else if (word != "name" && word != "frozen") {
      fail_here(call.at, "param: there is no argument '", word,
                "'; it takes sizes, and init=zeros, name and frozen",
                did_you_mean(word, std::vector<std::string>{"init", "name", "frozen"}));
    }
  }
  count_call(call.at);
  SurfaceCall surface = surface_call(scope, call_path(scope, call, call.word, false));
  const size_t first = scheme_.objects.size();
  Value made = 0;
  try {
    made = surface.parameter("", std::move(axes), start);
  } catch (const Error& error) {
    fail_here(call.at, "param: ", error.what());
  }
  accept_objects(static_cast<Value>(first), call.word, call.at);
  if (is_frozen(scope, call)) freeze(first, call.word, call.at);
  return {made};
}

}  // namespace adjoint

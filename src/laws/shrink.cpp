#include "laws/shrink.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "laws/compare.h"
#include "laws/reach.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr int64_t kSmallestHead = 8;
constexpr int64_t kShownReach = 4;  // half of a copy's positions

void collect_names(const Term& term, std::set<std::string>& names) {
  if (term.kind == Term::Kind::kName) names.insert(term.word);
  for (const Term& arg : term.args) collect_names(arg, names);
  for (const auto& [word, value] : term.keywords) collect_names(value, names);
  for (const Term& r : term.repeat) collect_names(r, names);
}

template <class Visit>
void visit_calls(const Term& term, const Visit& visit) {
  if (term.kind == Term::Kind::kCall) visit(term);
  for (const Term& arg : term.args) visit_calls(arg, visit);
  for (const auto& [word, value] : term.keywords) visit_calls(value, visit);
}

template <class Visit>
void visit_calls(const Document& document, const Visit& visit) {
  for (const Box& box : document.boxes) {
    for (const Statement& s : box.body) {
      for (const Term& value : s.values) visit_calls(value, visit);
    }
  }
}

// The term that gives each setting its value in this preset.
std::map<std::string, Term> effective_terms(const Document& document, const std::string& preset) {
  std::map<std::string, Term> terms;
  for (const auto* list : {&document.axes, &document.numbers}) {
    for (const Setting& s : *list) terms[s.name] = s.value;
  }
  if (const Preset* chosen = document.preset(preset)) {
    for (const Setting& s : chosen->settings) terms[s.name] = s.value;
  }
  return terms;
}

// The names, and all names that define them.
std::set<std::string> with_origins(std::set<std::string> names,
                                   const std::map<std::string, Term>& terms) {
  std::vector<std::string> open(names.begin(), names.end());
  while (!open.empty()) {
    const auto found = terms.find(open.back());
    open.pop_back();
    if (found == terms.end()) continue;
    std::set<std::string> more;
    collect_names(found->second, more);
    for (const std::string& name : more) {
      if (names.insert(name).second) open.push_back(name);
    }
  }
  return names;
}

// The axes of the tables that the model's inputs look up: rows and width.
struct Tables {
  std::set<std::string> rows;
  int64_t width = 1;
};

Tables tables_of(const Scheme& forward) {
  Tables tables;
  std::set<Value> ids;
  for (const Value in : forward.inputs) {
    if (forward[in].role == Role::kInput) ids.insert(in);
  }
  for (const Morphism& m : forward.morphisms) {
    if (op_named(m.op).loss) tables.rows.insert(forward[m.inputs[0]].type.axes.back().name);
    const int table = op_named(m.op).table;
    if (table < 0 || !ids.count(m.inputs[0])) continue;
    tables.rows.insert(forward[m.inputs[table]].type.axes[0].name);
    tables.width = std::max(tables.width, forward[m.inputs[table]].type.dim(-1));
  }
  return tables;
}

int64_t random_calls(const Scheme& scheme) {
  return std::count_if(scheme.morphisms.begin(), scheme.morphisms.end(), [&](const Morphism& m) {
    return effect_of(call_of(scheme, m)) == Effect::kRandom;
  });
}

// Numbers that are 0, and with which the model draws more random numbers once they are not. They
// are tried, so it does not matter how the text hands a rate on: by position, by name or through a
// box.
std::set<std::string> rates_at_zero(const BoundModel& model, const nlohmann::json& set,
                                    double rate) {
  const int64_t before = random_calls(model.forward(1, model.context()));
  std::set<std::string> rates;
  for (const Setting& number : parse_document(model.text().text, model.text().file).numbers) {
    if (model.settings().at(number.name) != 0.0) continue;
    nlohmann::json said = set.is_object() ? set : nlohmann::json::object();
    said[number.name] = rate;
    try {
      const BoundModel other(model.text(),
                             {.batch = 1, .context = model.context(), .settings = said});
      if (random_calls(other.forward()) > before) rates.insert(number.name);
    } catch (const Error&) {  // a number that may not be a fraction is no rate
    }
  }
  return rates;
}

int64_t smaller(int64_t size, double factor) {
  const auto scaled = static_cast<int64_t>(std::ceil(static_cast<double>(size) * factor));
  return std::max(std::min<int64_t>(size, 2), scaled);
}

int64_t wide(int64_t size, double factor) {
  const double scaled = static_cast<double>(size) * factor;
  return std::max<int64_t>(8, static_cast<int64_t>(std::lround(scaled / 8)) * 8);
}

bool divides_alike(int64_t a, int64_t b, const std::vector<int64_t>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int64_t n) { return (a % n == 0) == (b % n == 0); });
}

// The next size from `wanted` on, in steps, that ranks divide as they divide the model's; `wanted`
// itself where there is none that is not much larger.
int64_t divided_like(int64_t size, int64_t wanted, int64_t step,
                     const std::vector<int64_t>& ranks) {
  if (wanted >= size) return wanted;
  for (int64_t n = wanted; n <= std::min(size, 2 * wanted + 64); n += step) {
    if (divides_alike(n, size, ranks)) return n;
  }
  return wanted;
}

struct Shrinker {
  const BoundModel& model;
  const nlohmann::json& set;
  const ShrinkWish& wish;
  std::map<std::string, AxisUse> uses = axis_uses(model, set);
  int64_t width = tables_of(model.forward(1, model.context())).width;
  std::set<std::string> rates = rates_at_zero(model, set, wish.dropout);

  int64_t full(const std::string& name) const {
    return static_cast<int64_t>(model.settings().at(name));
  }

  nlohmann::json settings(int64_t new_width, double small) const {
    nlohmann::json said = nlohmann::json::object();
    const double factor = static_cast<double>(new_width) / static_cast<double>(width);
    for (const auto& [name, use] : uses) {
      const int64_t size = full(name);
      switch (use) {
        case AxisUse::kRepeats:
          said[name] = std::min(size, wish.repeats);
          break;
        case AxisUse::kVocab:
          said[name] = divided_like(size, std::min(size, wish.vocab), 1, wish.ranks);
          break;
        case AxisUse::kWidth:
          said[name] =
              size == width ? new_width : divided_like(size, wide(size, factor), 8, wish.ranks);
          break;
        case AxisUse::kSmall:
          said[name] = smaller(size, small);
          break;
        case AxisUse::kDerived:
        case AxisUse::kContext:
          break;
      }
    }
    const Document document = parse_document(model.text().text, model.text().file);
    for (const Setting& number : document.numbers)
      said[number.name] = model.settings().at(number.name);
    for (const std::string& rate : rates) said[rate] = wish.dropout;
    for (const auto& [name, value] : wish.said) said[name] = value;
    return said;
  }

  bool heads_are_reasonable(const nlohmann::json& said, int64_t new_width) const {
    for (const auto& [name, use] : uses) {
      if (use != AxisUse::kSmall || wish.said.count(name)) continue;
      const int64_t before = width / full(name), now = new_width / said[name].get<int64_t>();
      if (now < std::min(before, kSmallestHead)) return false;
    }
    return true;
  }

  bool is_divided_alike(const nlohmann::json& said) const {
    for (const auto& [name, use] : uses) {
      if ((use != AxisUse::kWidth && use != AxisUse::kSmall) || wish.said.count(name)) continue;
      if (!divides_alike(said[name].get<int64_t>(), full(name), wish.ranks)) return false;
    }
    return true;
  }

  std::optional<BoundModel> attempt(int64_t new_width, double small, bool alike,
                                    std::string& complaint) const {
    const nlohmann::json said = settings(new_width, small);
    if (!heads_are_reasonable(said, new_width)) return std::nullopt;
    if (alike && !is_divided_alike(said)) return std::nullopt;
    try {
      const int64_t context = std::min(model.context(), wish.context);
      BoundModel small_model(model.text(),
                             {.batch = wish.batch,
                              .context = divided_like(model.context(), context, 1, wish.ranks),
                              .settings = said});
      small_model.forward();
      return small_model;
    } catch (const Error& e) {
      if (complaint.empty()) complaint = e.what();
      return std::nullopt;
    }
  }
};

}  // namespace

std::map<std::string, AxisUse> axis_uses(const BoundModel& model, const nlohmann::json& set) {
  const Document document = parse_document(model.text().text, model.text().file);
  const std::map<std::string, Term> terms = effective_terms(document, model.text().preset);
  std::set<std::string> repeats;
  visit_calls(document, [&](const Term& call) {
    for (const Term& r : call.repeat) collect_names(r, repeats);
  });
  repeats = with_origins(std::move(repeats), terms);
  const Tables tables = tables_of(model.forward(1, model.context()));
  std::map<std::string, AxisUse> uses;
  for (const Setting& axis : document.axes) {
    const std::string& name = axis.name;
    const auto size = static_cast<int64_t>(model.settings().at(name));
    AxisUse use = size * 2 > tables.width ? AxisUse::kWidth : AxisUse::kSmall;
    const bool plain = terms.at(name).kind == Term::Kind::kNumber || set.contains(name);
    if (!plain) use = AxisUse::kDerived;
    if (tables.rows.count(name)) use = AxisUse::kVocab;
    if (name == "context") use = AxisUse::kContext;
    if (repeats.count(name) && plain) use = AxisUse::kRepeats;
    uses[name] = use;
  }
  return uses;
}

BoundModel shrunken(const BoundModel& model, const nlohmann::json& set, const ShrinkWish& wish) {
  const Shrinker shrinker{.model = model, .set = set, .wish = wish};
  std::string complaint;
  int64_t largest = 1;
  for (const auto& [name, use] : shrinker.uses) {
    if (use == AxisUse::kSmall && !wish.said.count(name))
      largest = std::max(largest, shrinker.full(name));
  }
  // First among the sizes that ranks divide as they divide the model's, wider ones if need be: 8
  // heads of keys for 8 ranks want their width.
  for (const bool alike : {true, false}) {
    const int64_t most = alike && !wish.ranks.empty() ? 4 * wish.width + 1 : 2 * wish.width;
    for (int64_t width = wish.width; width < most; width += 16) {
      for (int64_t divisor = 1; divisor <= largest; ++divisor) {
        const double small = 1.0 / static_cast<double>(divisor);
        if (auto found = shrinker.attempt(width, small, alike, complaint)) {
          return *std::move(found);
        }
      }
    }
    if (wish.ranks.empty()) break;
  }
  fail(model.name(), ": no size of this model near a width of ", wish.width,
       " fits; say --full, or sizes with --set",
       complaint.empty() ? "" : " (the first try said: " + complaint + ")");
}

std::map<std::string, int64_t> scaled_reaches(const BoundModel& model, const nlohmann::json& set) {
  const auto positions = [](const BoundModel& of) {
    std::multiset<std::pair<std::string, int64_t>> places;
    for (const Reach& reach : reaches_of(of.forward(1, of.context()))) {
      if (reach.of == Reach::Of::kPositions) places.emplace(reach.key, reach.at);
    }
    return places;
  };
  const auto places = positions(model);
  const auto is_far = [](const auto& place) { return place.second > kShownReach; };
  std::map<std::string, int64_t> scaled;
  if (std::none_of(places.begin(), places.end(), is_far)) return scaled;
  const std::map<std::string, Term> terms = effective_terms(model.document(), model.text().preset);
  const std::map<std::string, AxisUse> uses = axis_uses(model, set);
  for (const auto& [name, term] : terms) {
    const auto use = uses.find(name);
    const bool sized =
        use == uses.end() || use->second == AxisUse::kWidth || use->second == AxisUse::kSmall;
    const double value = model.settings().at(name);
    const bool plain = term.kind == Term::Kind::kNumber || set.contains(name);
    if (!sized || !plain || value <= kShownReach || value != std::floor(value)) continue;
    nlohmann::json said = set.is_object() ? set : nlohmann::json::object();
    said[name] = static_cast<int64_t>(value) - 1;
    try {
      const BoundModel other(model.text(),
                             {.batch = 1, .context = model.context(), .settings = said});
      if (positions(other) != places) scaled[name] = kShownReach;
    } catch (const Error&) {  // a size that others depend on is no length
    }
  }
  return scaled;
}

BoundModel with_rates(const BoundModel& model, const nlohmann::json& set, const ShrinkWish& wish) {
  nlohmann::json said = set.is_object() ? set : nlohmann::json::object();
  for (const std::string& rate : rates_at_zero(model, set, wish.dropout)) said[rate] = wish.dropout;
  return {model.text(),
          {.batch = model.batch(), .context = model.context(), .settings = std::move(said)}};
}

std::vector<int64_t> ranks_to_keep(const std::vector<MeshAxis>& mesh) {
  std::set<int64_t> all;
  for (size_t i = 0; i < mesh.size(); ++i) {
    all.insert(mesh[i].size);
    for (size_t j = 0; j < i; ++j) all.insert(int64_t{mesh[i].size} * mesh[j].size);
  }
  return {all.begin(), all.end()};
}

std::vector<std::string> divided_otherwise(const BoundModel& model, const BoundModel& copy,
                                           const std::vector<int64_t>& ranks) {
  std::vector<std::string> told;
  for (const auto& [axis, use] : axis_uses(model, {})) {
    if (use == AxisUse::kRepeats) continue;  // nobody shards blocks
    const auto size = static_cast<int64_t>(model.settings().at(axis));
    const auto small = static_cast<int64_t>(copy.settings().at(axis));
    for (const int64_t n : ranks) {
      if ((size % n == 0) == (small % n == 0)) continue;
      const bool even = size % n == 0;
      told.push_back(join_parts(even ? "even" : "padded", " pieces: ", n, " ranks ",
                                even ? "divide " : "do not divide ", axis, "=", size,
                                ", and in the copies it is ", small));
    }
  }
  return told;
}

std::string describe(const BoundModel& model) {
  const Document document = parse_document(model.text().text, model.text().file);
  std::vector<std::string> parts;
  for (const Setting& axis : document.axes) {
    parts.push_back(axis.name + "=" + shortest(model.settings().at(axis.name)));
  }
  return join(parts, " ") + join_parts(", batch ", model.batch(), " x ", model.context());
}

}  // namespace adjoint

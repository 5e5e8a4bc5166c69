// Object rules of a functor's text: `object activation -> recomputed`. A rule selects objects by
// their roles and says an attribute of each; what no realization would act on is left alone, and
// refused where a rule finds nothing else.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "analysis/named_axes.h"
#include "analysis/stages.h"
#include "base/text.h"
#include "functors/text_rules.h"
#include "models/settings.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

constexpr int kMostParts = 1 << 20;  // beyond this it is a mistake
constexpr int kMostRanks = 1 << 16;

// Per object: whether it is a state that follows a parameter, which is to say that what it becomes
// is made of what the parameter has become. A moment is made of gradients.
std::vector<bool> followers(const Scheme& scheme) {
  std::vector<bool> after_update(scheme.objects.size(), false), follows = after_update;
  for (const Carry& c : scheme.carries) {
    if (scheme[c.in].role == Role::kParameter) after_update[c.out] = true;
  }
  for (const Morphism& m : scheme.morphisms) {
    const auto is_after = [&](Value in) { return after_update[in]; };
    if (std::none_of(m.inputs.begin(), m.inputs.end(), is_after)) continue;
    for (const Value out : m.outputs) after_update[out] = true;
  }
  for (const Carry& c : scheme.carries) {
    if (scheme[c.in].role != Role::kState || !after_update[c.out]) continue;
    follows[c.in] = follows[c.out] = true;
  }
  return follows;
}

class ObjectRules : TextRules {
 public:
  using TextRules::TextRules;

  void say_attributes(Scheme& scheme, FunctorPhase phase) {
    const auto is_said_now = [&](const AttributeValue& value) { return phase_of(value) == phase; };
    const auto belongs = [&](const ObjectRule& rule) {
      return std::any_of(rule.choices.begin(), rule.choices.end(), [&](const Choice& choice) {
        return std::any_of(choice.values.begin(), choice.values.end(), is_said_now);
      });
    };
    const bool meshes = phase == FunctorPhase::kStepRules && !text_.mesh.empty();
    if (!meshes && std::none_of(text_.objects.begin(), text_.objects.end(), belongs)) return;
    // Roles are those of the scheme before anything is said: attributes change none, freezing may.
    const std::optional<Scheme> found =
        phase == FunctorPhase::kMorphisms ? std::optional(scheme) : std::nullopt;
    const Roles roles(found ? *found : scheme);
    Names names = names_for(roles.chain().length(), scheme.mesh);
    if (meshes) {
      names.set(std::string(kRanksLeft), application_.ranks_left);
      say_mesh(scheme, names);
    }
    if (text_.order && phase == FunctorPhase::kStepRules) {
      names.set_costs(chain_costs(scheme, roles.chain()));
      say_order(scheme, names);
    }
    const std::vector<int> made_by = producers(scheme);
    std::set<std::pair<Value, std::string>> said;
    // What comes out of a step is what went in, and a rule that means the one means the other.
    std::vector<Value> stands_for(scheme.objects.size());
    std::iota(stands_for.begin(), stands_for.end(), 0);
    for (const Carry& c : scheme.carries) stands_for[c.out] = c.in;
    std::optional<NamedAxes> axes;  // found when a rule first speaks of one
    const std::vector<bool> fixed = fixed_dtypes(scheme), follows = followers(scheme);
    const std::vector<bool> of_several = of_several_blocks(scheme, roles.chain());
    std::map<const ObjectRule*, std::vector<Value>> passed_over;  // because there is no one l
    for (const ObjectRule& rule : text_.objects) {
      if (!belongs(rule)) continue;
      std::string why_not;  // of the first that it speaks of and that cannot be so
      bool any = false, finds = false;
      for (Value v = 0; v < static_cast<Value>(scheme.objects.size()); ++v) {
        const Value meant = stands_for[v];
        const auto matches = [&](const Clause& c) {
          const bool inside_chain = c.kind == Clause::Kind::kInside && !c.negated &&
                                    (c.word == "chain" || c.word == "block");
          if (inside_chain && rule.by_block && of_several[meant]) return true;
          return object_matches(scheme, roles, names, meant, c);
        };
        if (!std::all_of(rule.selector.begin(), rule.selector.end(), matches)) continue;
        finds = true;
        if (rule.unless.made_here && made_here(scheme[v].source.path)) continue;
        if (rule.unless.made && application_.made(scheme[v].source.path)) continue;
        if (rule.by_block) {
          const int block = roles.chain().block_of[meant];
          if (of_several[v]) passed_over[&rule].push_back(v);
          if (block < 0) continue;
          names.set(std::string(kBlockNumber), block);
        }
        if (!rule.index.empty()) names.set(rule.index, *roles.state_index(meant));
        const auto chosen =
            std::find_if(rule.choices.begin(), rule.choices.end(),
                         [&](const Choice& choice) { return names.holds(choice.when); });
        if (chosen == rule.choices.end()) {
          application_.note(place(rule.at) + "left alone", to_string(scheme[v].source));
          continue;
        }
        for (const AttributeValue& value : chosen->values) {
          if (!is_said_now(value)) continue;
          const std::string& attribute = value.attribute;
          // Only what the forward pass makes is kept or computed again; of a parameter that is in
          // pieces, what is gathered is kept.
          const bool forward =
              made_by[v] >= 0 && scheme.morphisms[made_by[v]].phase == Phase::kForward;
          const bool parameter = scheme[v].role == Role::kParameter && value.word == "kept";
          if (attribute == "residence" && !forward && !parameter) continue;
          std::string why = why_cannot_be(scheme[v], value, forward, fixed[v]);
          std::optional<Placement> along;
          if (why.empty() && !mesh_axis_of(value).empty()) {
            if (!axes) axes.emplace(scheme);
            along = placement_of(scheme, v, value, *axes, why);
          }
          if (attribute == "precision" && follows[v] && value.word != "f32") {
            why = "what follows a parameter moves by less than narrow numbers tell apart, and '" +
                  to_string(scheme[v].source) + "' does";
          }
          if (!why.empty()) {
            if (why_not.empty()) why_not = std::move(why);
            continue;
          }
          any = true;
          if (phase != FunctorPhase::kStepRules) check_uses(scheme, roles, names, v, rule);
          if (!said.emplace(v, attribute).second) continue;
          if (!rule.refusal.empty()) check_agrees(scheme, roles, rule, v, value, names);
          application_.branches = branches_of(rule, *chosen, value, names);
          if (!set(scheme, v, value, names, rule.unless.yields)) continue;
          if (along) place_on_mesh(scheme[v], *std::move(along));
          if (meant != v) continue;
          ++application_.counts[count_as(scheme[v], value)];
        }
      }
      // A selector may sweep over what cannot be so, and leaves it alone; a rule that finds nothing
      // else would be silently without effect.
      if (!any && !why_not.empty()) fail_at(text_.file, rule.at, why_not);
      if (!finds && may_speak(rule, names)) {
        application_.idle.push_back(place(rule.at) + "this rule finds nothing here");
      }
    }
    for (auto& [rule, left] : passed_over) {
      // Another rule may have spoken for it.
      std::erase_if(left, [&](Value v) {
        const auto of_v = said.lower_bound({v, ""});
        return of_v != said.end() && of_v->first == v;
      });
      if (left.empty()) continue;
      std::string which = "'" + to_string(scheme[left[0]].source) + "'";
      if (left.size() > 1) which += " and " + std::to_string(left.size() - 1) + " more";
      application_.idle.push_back(place(rule->at) + "this rule speaks of l and leaves " + which +
                                  " alone, which several blocks share");
    }
  }

 private:
  // An axis of one rank is as good as none, and costs nothing.
  void say_mesh(Scheme& scheme, const Names& names) const {
    for (const MeshRule& rule : text_.mesh) {
      const double size = names.number(rule.size);
      if (size != std::floor(size) || size < 1 || size > kMostRanks) {
        fail_at(text_.file, rule.at, "an axis of the mesh has 1 to ", kMostRanks, " ranks, found ",
                rule.axis, " = ", shortest(size));
      }
      const auto [found, fresh] = application_.said->emplace(
          std::pair{rule.axis, "mesh"}, Application::Saying{shortest(size), application_.functor});
      if (!fresh && found->second.value != shortest(size)) {
        application_.refuse("says that the mesh has ", rule.axis, " = ", shortest(size), ", and ",
                            found->second.by, " says ", found->second.value,
                            "; leave one of them out");
      }
      ++application_.matches;
      if (fresh && size > 1) scheme.mesh.push_back({rule.axis, static_cast<int>(size)});
    }
  }

  // A mesh of one stage has no order but that of the parts.
  void say_order(Scheme& scheme, const Names& names) const {
    if (mesh_size(scheme.mesh, kStageAxis) == 1) return;
    const OrderRule& order = *text_.order;
    const bool is_told = names.is_param(order.word);
    scheme.schedule = is_told ? application_.args.term(order.word).word : order.word;
    if (const auto own = own_schedule(text_, application_.args)) scheme.schedule = print(*own);
    scheme.chunks = static_cast<int>(names.number(order.chunks));
  }

  // Per object: a parameter that blocks of the chain read and that is in none of them.
  static std::vector<bool> of_several_blocks(const Scheme& scheme, const Chain& chain) {
    std::vector<bool> of_several(scheme.objects.size(), false);
    for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
      const Morphism& m = scheme.morphisms[i];
      if (m.phase != Phase::kForward || chain.block_of_morphism[i] < 0) continue;
      for (const Value in : m.inputs) {
        of_several[in] = scheme[in].role == Role::kParameter && chain.block_of[in] < 0;
      }
    }
    return of_several;
  }

  // Whether what the functor was told lets a rule act, were there anything to act on.
  static bool may_speak(const ObjectRule& rule, const Names& names) {
    if (rule.by_block || !rule.index.empty()) return true;
    return std::any_of(rule.choices.begin(), rule.choices.end(),
                       [&](const Choice& choice) { return names.holds(choice.when); });
  }

  // How a value is counted in reports. Rates may differ from block to block.
  static std::string count_as(const Object& o, const AttributeValue& value) {
    if (value.attribute.starts_with("parts")) {
      return "in " + std::to_string(o.attributes.parts) + " parts";
    }
    if (value.attribute == "stage") return "on stage " + std::to_string(o.attributes.stage);
    return value.number.empty() ? print(value) : value.attribute;
  }

  // One per way in which the choice's condition holds.
  std::vector<std::string> branches_of(const ObjectRule& rule, const Choice& choice,
                                       const AttributeValue& value, const Names& names) const {
    if (!application_.firings) return {};
    const std::string words =
        place(rule.at) + (&choice == &rule.choices[0] ? "" : "else ") + print(value);
    std::vector<std::string> branches;
    for (const std::string& way : names.ways(choice.when)) {
      branches.push_back(way.empty() ? words : words + " when " + way);
    }
    return branches;
  }

  // What no realization would act on, in a sentence; nothing where one does.
  static std::string why_cannot_be(const Object& o, const AttributeValue& value, bool forward,
                                   bool fixed) {
    const std::string& attribute = value.attribute;
    const auto because = [&](std::string_view rule, std::string_view what) {
      return std::string(rule) + ", and '" + to_string(o.source) + "' " + std::string(what);
    };
    const std::string is = "is " + std::string(name(o.role));
    const bool state = o.role == Role::kParameter || o.role == Role::kState;
    if (attribute == "frozen" && o.role != Role::kParameter) {
      return because("only a parameter can be frozen", is);
    }
    if (phase_of(value) == FunctorPhase::kAdjoint && (o.role != Role::kParameter || o.frozen)) {
      return because("only a trained parameter can have '" + print(value) + "'",
                     o.role == Role::kParameter ? "is frozen" : is);
    }
    if (attribute.starts_with("parts") && o.role != Role::kInput) {
      return because("only a step's input comes in parts", is);
    }
    if (attribute == "tier" && !forward && !state) {
      return because(
          "only parameters, optimizer state and what the forward pass makes can live in another "
          "tier",
          is);
    }
    if (value.word == "bf16/stochastic" && (o.role != Role::kParameter || o.frozen)) {
      return because("only a trained parameter is rounded at random",
                     o.role == Role::kParameter ? "is frozen" : is);
    }
    const bool exact = value.word == "f32" || value.word == "tf32";
    if (value.word == "dyn8" && o.role != Role::kState) {
      return because("only the optimizer's state has codes of 8 bits", is);
    }
    if (attribute == "precision" && o.role == Role::kParameter && !o.frozen && !exact &&
        value.word != "bf16/stochastic") {
      return because("a trained parameter is held in float32 or as bf16 stochastic", "is trained");
    }
    // A norm overflows float16, and a rate rounded to it is another rate.
    if (attribute == "precision" && (o.role == Role::kMetric || o.role == Role::kControl)) {
      return because("what a step is told and what it measures stay float32", is);
    }
    if (!mesh_axis_of(value).empty() && value.word == "sharded") {
      if (o.type.rank() == 0) return because("a single number has no axis to shard", "is one");
      if (value.along == "samples" && o.role != Role::kInput) {
        return because("only a step's input is sharded along samples", is);
      }
      // Those of experts are matrices side by side.
      const bool matrix = o.role == Role::kParameter && o.type.rank() >= 2;
      if ((value.along == "out" || value.along == "in" || value.along == "classes") && !matrix) {
        return because("only a matrix has an axis " + value.along, "is none");
      }
    }
    if (attribute == "precision" && !is_float(o.type.dtype)) {
      return because("only floating numbers have a precision", "holds whole numbers");
    }
    if (attribute == "precision" && fixed) {
      return because("only what its op can store in another type has a precision",
                     "has the type that its op fixes");
    }
    return "";
  }

  // A number that a value says, from `least` up.
  double number(const AttributeValue& value, const Names& names, double least) const {
    const double n = names.number(value.number[0]);
    if (n < least) {
      fail_at(text_.file, value.at, "wanted a ", value.attribute, " of at least ", shortest(least),
              ", found ", print(value.number[0]), " = ", shortest(n));
    }
    return n;
  }

  // Refuses, in the rule's own words, what another functor says otherwise of a state of the chain.
  void check_agrees(const Scheme& scheme, const Roles& roles, const ObjectRule& rule, Value v,
                    const AttributeValue& value, Names names) const {
    const auto earlier = [&](Value state) -> const Application::Saying* {
      const auto found =
          application_.said->find({to_string(scheme[state].source), value.attribute});
      return found == application_.said->end() ? nullptr : &found->second;
    };
    const Application::Saying* other = earlier(v);
    if (!other || other->value == value.word || other->yields || rule.unless.yields) return;
    std::vector<int> wanted, kept;  // states, by this rule and by the other functor
    const std::vector<Value>& states = roles.chain().states;
    for (size_t l = 0; l < states.size(); ++l) {
      names.set(rule.index, static_cast<double>(l));
      const auto chosen =
          std::find_if(rule.choices.begin(), rule.choices.end(),
                       [&](const Choice& choice) { return names.holds(choice.when); });
      if (chosen != rule.choices.end()) wanted.push_back(static_cast<int>(l));
      const Application::Saying* said = earlier(states[l]);
      if (said && said->by == other->by && said->value == value.word) {
        kept.push_back(static_cast<int>(l));
      }
    }
    const int last = roles.chain().length();
    const std::map<std::string, std::string> words = {
        {"{other}", other->by},
        {"{wanted}", listed(wanted)},
        {"{kept}", listed(kept)},
        {"{segment}", nearest_segments(wanted, kept)},
        {"{most}", std::to_string(std::count_if(kept.begin(), kept.end(),
                                                [&](int l) { return l > 0 && l < last; }) +
                                  1)}};
    std::string why = rule.refusal;
    for (const auto& [name, word] : words) {
      for (size_t at = why.find(name); at != why.npos; at = why.find(name)) {
        why.replace(at, name.size(), word);
      }
    }
    application_.refuse(names.filled(why));
  }
  static std::string listed(const std::vector<int>& states) {
    if (states.empty()) return "none";
    std::string text;
    for (size_t i = 0; i < states.size(); ++i) {
      text += i == 0 ? "" : i + 1 == states.size() ? " and " : ", ";
      text += std::to_string(states[i]);
    }
    return text;
  }
  // The lengths of equal segments that end at every wanted state: those nearest to the length of
  // the segments that there are.
  static std::string nearest_segments(const std::vector<int>& wanted,
                                      const std::vector<int>& kept) {
    int all = 0;
    for (const int l : wanted) all = std::gcd(all, l);
    const int now = kept.size() > 1 ? kept[1] - kept[0] : all;
    int shorter = std::min(now, all), longer = now;
    while (all % shorter != 0) --shorter;
    while (longer < all && all % longer != 0) ++longer;
    if (longer > all || longer == shorter) return std::to_string(shorter);
    return std::to_string(shorter) + " or " + std::to_string(longer);
  }

  // Whether that is what holds: a value that yields may not.
  bool set(Scheme& scheme, Value v, const AttributeValue& value, const Names& names, bool yields) {
    const std::string text = said_as(value, names);
    if (!application_.say(scheme, v, value.attribute, text, yields)) return false;
    Object& o = scheme[v];
    if (value.attribute == "residence") {
      o.attributes.residence = value.word == "kept"         ? Residence::kKept
                               : value.word == "recomputed" ? Residence::kRecomputed
                                                            : Residence::kApart;
    } else if (value.attribute == "precision") {
      o.attributes.precision = value.word;
    } else if (value.attribute == "tier") {
      o.attributes.tier = value.word == "host" ? Tier::kHost : Tier::kDevice;
    } else if (value.attribute == "frozen") {
      o.frozen = value.word == "frozen";
    } else if (value.attribute == "parts") {
      o.attributes.parts = static_cast<int>(names.number(value.number[0]));
    } else if (value.attribute == "parts again") {
      o.attributes.parts *= static_cast<int>(names.number(value.number[0]));
    } else if (value.attribute == "stage") {
      o.attributes.stage = static_cast<int>(names.number(value.number[0]));
    } else if (value.attribute == "sums") {
      o.attributes.use_by_use = true;
    } else if (value.attribute == "rate") {
      o.attributes.training.rate = names.number(value.number[0]);
    } else if (value.attribute == "decay") {
      o.attributes.training.decay = names.number(value.number[0]);
    } else if (value.attribute == "optimizer") {
      o.attributes.training.optimizer = text;
    } else if (value.attribute == "clipped") {
      o.attributes.training.clipped_as = value.word;
    }
    return true;
  }

  // How an object lies along an axis of the mesh. Inputs begin with their samples, and rows of a
  // matrix are what comes out of a linear map. What is not said to lie along an axis is only kept
  // in pieces, of its first.
  std::optional<Placement> placement_of(const Scheme& scheme, Value v, const AttributeValue& value,
                                        const NamedAxes& axes, std::string& why) const {
    const std::string named = "'" + to_string(scheme[v].source) + "'";
    Placement placement{.mesh_axis = std::string(mesh_axis_of(value))};
    if (value.word == "replicated") return placement;
    placement.spread = Spread::kSharded;
    placement.home = value.along.empty();
    const int rank = scheme[v].type.rank();
    if (value.along == "in") placement.axis = rank - 1;
    if (value.along == "out" || value.along == "classes") {
      placement.axis = axes.rows(v).value_or(rank - 2);
    }
    const int64_t ranks = mesh_size(scheme.mesh, placement.mesh_axis);
    if (value.along == "heads") {
      const auto found = axes.heads(v);
      if (!found) {
        why = "only the parameters of maps that an attention reads lie along its heads, and " +
              named + " is of none";
        return std::nullopt;
      }
      placement.axis = found->axis;
      placement.segments = found->segments;
      check_divides(named, found->heads == 1 ? "head of keys" : "heads of keys", found->heads,
                    placement.mesh_axis, ranks);
    } else if (value.along == "positions") {
      const auto found = axes.positions(v);
      if (!found) {
        why =
            "only what has an axis of positions is sharded along them, and " + named + " has none";
        return std::nullopt;
      }
      placement.axis = *found;
      check_divides(named, "positions", scheme[v].type.dim(*found), placement.mesh_axis, ranks);
    }
    return placement;
  }
  void check_divides(const std::string& named, std::string_view what, int64_t count,
                     const std::string& mesh_axis, int64_t ranks) const {
    if (count % ranks == 0) return;
    int64_t fewer = ranks, more = ranks;
    while (count % fewer != 0) --fewer;
    while (more < count && count % more != 0) ++more;
    std::vector<std::string> nearest;
    if (fewer > 1) nearest.push_back(std::to_string(fewer));
    if (more <= count && more > 1) nearest.push_back(std::to_string(more));
    const std::string has = named + " has " + std::to_string(count) + " " + std::string(what);
    if (nearest.empty()) {
      application_.refuse(has, ", and each of ", ranks, " ranks of ", mesh_axis,
                          " needs one of its own; give the model a multiple of ", ranks,
                          ", or leave these ranks to data_parallel");
    }
    application_.refuse(has, ", which ", ranks, " ranks of ", mesh_axis, " do not divide; the ",
                        nearest.size() == 1 ? "nearest that does is " : "nearest that do are ",
                        join(nearest, " or "));
  }
  static void place_on_mesh(Object& o, Placement placement) {
    std::vector<Placement>& all = o.attributes.placement;
    std::erase_if(all, [&](const Placement& p) { return p.mesh_axis == placement.mesh_axis; });
    all.push_back(std::move(placement));
  }

  // A value as two functors compare it. Refuses numbers that it cannot be.
  std::string said_as(const AttributeValue& value, const Names& names) const {
    if (value.attribute == "stage") {
      const double stage = names.number(value.number[0]);
      if (stage != std::floor(stage) || stage < 1 || stage > kMostRanks) {
        fail_at(text_.file, value.at, "a stage is a whole number from 1, found ", shortest(stage));
      }
      return std::to_string(static_cast<int>(stage));
    }
    if (value.attribute.starts_with("parts")) {
      const double parts = names.number(value.number[0]);
      if (parts != std::floor(parts) || parts < 1 || parts > kMostParts) {
        fail_at(text_.file, value.at, "a batch comes in 1 to ", kMostParts, " parts, found ",
                shortest(parts));
      }
      return std::to_string(static_cast<int>(parts));
    }
    if (value.attribute == "rate" || value.attribute == "decay") {
      return shortest(number(value, names, 0));
    }
    if (!mesh_axis_of(value).empty()) return print(value);
    const bool is_param = value.attribute == "optimizer" && names.is_param(value.word);
    return is_param ? application_.args.word(value.word) : value.word;
  }

  // Freezing a parameter because of one of its uses must not freeze it for another: the clauses of
  // a rule together name all of its uses (of embedding, of readout), or none.
  void check_uses(const Scheme& scheme, const Roles& roles, const Names& names, Value v,
                  const ObjectRule& rule) const {
    const auto is_whole = [&](const std::string& word) { return roles.is(v, word); };
    std::vector<const Clause*> by_use;
    for (const Clause& c : rule.selector) {
      if (c.kind != Clause::Kind::kOf || any_word(names, c.word, is_whole)) continue;
      by_use.push_back(&c);
    }
    const std::vector<int>& readers = roles.readers_of(v);
    const auto is_meant = [&](int reader) {
      return std::any_of(by_use.begin(), by_use.end(), [&](const Clause* c) {
        return any_word(names, c->word,
                        [&](const std::string& word) { return roles.morphism_is(reader, word); });
      });
    };
    const auto meant = std::find_if(readers.begin(), readers.end(), is_meant);
    const auto other = std::find_if_not(readers.begin(), readers.end(), is_meant);
    if (meant == readers.end() || other == readers.end()) return;
    std::set<std::string> uses;
    for (const int reader : readers) uses.emplace(name(roles.use_of(reader)));
    std::vector<std::string> kinds;
    for (const char* kind : {"table", "matrix", "vector"}) {
      if (roles.is(v, kind)) kinds.emplace_back(kind);
    }
    application_.refuse(
        "'", scheme[v].source.path, "' is tied: '", scheme.morphisms[*meant].source.path,
        "' uses it as ", name(roles.use_of(*meant)), " and '", scheme.morphisms[*other].source.path,
        "' as ", name(roles.use_of(*other)), "; name all of its uses (",
        join({uses.begin(), uses.end()}, ", "), "), or what it is (", join(kinds, ", "), ")");
  }
};

}  // namespace

void say_attributes(const FunctorText& text, Application& application, Scheme& scheme,
                    FunctorPhase phase) {
  ObjectRules(text, application).say_attributes(scheme, phase);
}

}  // namespace adjoint

// A functor's text at work. Object rules select by roles and say attributes; morphism rules rewrite
// a use into a term of the models' own notation, which is elaborated as a small scheme of its own
// and set in the place of the use.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "analysis/roles.h"
#include "base/text.h"
#include "functors/functor_text.h"
#include "models/elaborate.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

constexpr int kMostParts = 1 << 20;  // beyond this it is a mistake

// What the names in a text mean: parameters, lets, L, and the index of a state.
class Names {
 public:
  Names(const FunctorText& text, const Arguments& args, int chain_length)
      : text_(text), args_(args) {
    numbers_["L"] = chain_length;
    for (const Let& let : text.lets) {
      for (const auto& [value, when] : let.choices) {
        if (!holds(when)) continue;
        numbers_[let.name] = number(value);
        chosen_.push_back("let " + let.name + " = " + print(value));
        break;
      }
    }
  }

  const std::vector<std::string>& chosen() const { return chosen_; }

  void set(const std::string& name, double value) { numbers_[name] = value; }
  const std::map<std::string, double>& numbers() const { return numbers_; }

  bool is_param(std::string_view name) const {
    return std::any_of(text_.params.begin(), text_.params.end(),
                       [&](const FunctorParam& p) { return p.name == name; });
  }

  double number(const Term& term) const {
    return evaluate_number(meant(term), text_.file, [&](const Term& name) {
      const auto found = numbers_.find(name.word);
      if (found != numbers_.end()) return found->second;
      if (is_param(name.word)) return number(args_.term(name.word));
      fail_at(text_.file, name.at, "there is no number '", name.word, "' here");
    });
  }

  bool holds(const Condition& c) const {
    const auto part_holds = [&](const Condition& part) { return holds(part); };
    switch (c.kind) {
      case Condition::Kind::kAll:
        return std::all_of(c.parts.begin(), c.parts.end(), part_holds);
      case Condition::Kind::kAny:
        return std::any_of(c.parts.begin(), c.parts.end(), part_holds);
      case Condition::Kind::kNumber:
        return is_number(meant(c.terms[0]));
      case Condition::Kind::kIn: {
        const std::vector<Term> list = elements(c.terms[1]);
        const double left = number(c.terms[0]);
        return std::any_of(list.begin(), list.end(),
                           [&](const Term& t) { return number(t) == left; });
      }
      case Condition::Kind::kCompare:
        return compare(c);
    }
    return false;
  }

  // The ways in which a condition holds, as text: of `l < 2 or l in keep` each alternative that is
  // true here, and of a list the element. One way that says nothing where there is no condition.
  std::vector<std::string> ways(const Condition& c) const {
    switch (c.kind) {
      case Condition::Kind::kAny: {
        std::vector<std::string> all;
        for (const Condition& part : c.parts) {
          if (!holds(part)) continue;
          for (std::string& way : ways(part)) all.push_back(std::move(way));
        }
        return all;
      }
      case Condition::Kind::kAll: {
        std::vector<std::string> all = {""};
        for (const Condition& part : c.parts) {
          std::vector<std::string> longer;
          for (const std::string& way : all) {
            for (const std::string& next : ways(part)) {
              longer.push_back(way.empty() ? next : way + " and " + next);
            }
          }
          all = std::move(longer);
        }
        return all;
      }
      case Condition::Kind::kNumber:
        return {"number(" + print(c.terms[0]) + ")"};
      case Condition::Kind::kIn: {
        std::vector<std::string> all;
        for (const Term& t : elements(c.terms[1])) {
          if (number(t) != number(c.terms[0])) continue;
          all.push_back(print(c.terms[0]) + " == " + shortest(number(t)));
        }
        return all;
      }
      case Condition::Kind::kCompare:
        break;
    }
    const std::string mod = c.mod.empty() ? "" : " mod " + print(c.mod[0]);
    return {print(c.terms[0]) + mod + " " + c.relation + " " + print(c.terms[1])};
  }

  // "{every}" becomes its value.
  std::string filled(std::string text) const {
    for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
      const size_t close = text.find('}', open);
      if (close == std::string::npos) break;
      const Term name = parse_term(text.substr(open + 1, close - open - 1), text_.file);
      const Term value = meant(name);
      text.replace(open, close - open + 1,
                   is_number(value) ? shortest(number(value)) : print(value));
    }
    return text;
  }

  // A parameter's name stands for what was given; `largest` of a list is a number.
  Term meant(const Term& term) const {
    if (term.kind == Term::Kind::kName && is_param(term.word)) return args_.term(term.word);
    if (term.kind == Term::Kind::kCall && term.word == "largest" && term.args.size() == 1) {
      Term most{.at = term.at};
      for (const Term& t : elements(term.args[0])) most.number = std::max(most.number, number(t));
      return most;
    }
    return term;
  }

 private:
  // Of a list; a single value is a list of one.
  std::vector<Term> elements(const Term& term) const {
    Term list = meant(term);
    return list.kind == Term::Kind::kList ? std::move(list.args) : std::vector<Term>{list};
  }

  bool is_number(const Term& t) const {
    if (t.kind == Term::Kind::kName) return numbers_.count(t.word) > 0;
    return t.kind != Term::Kind::kList && t.kind != Term::Kind::kText;
  }

  bool compare(const Condition& c) const {
    const Term a = meant(c.terms[0]), b = meant(c.terms[1]);
    if (!is_number(a) || !is_number(b)) {
      // Words and lists are equal or not.
      const bool same = print(a) == print(b);
      return c.relation == "==" ? same : c.relation == "!=" && !same;
    }
    double x = number(a);
    const double y = number(b);
    if (!c.mod.empty()) x = std::fmod(x, number(c.mod[0]));
    if (c.relation == "==") return x == y;
    if (c.relation == "!=") return x != y;
    if (c.relation == "<=") return x <= y;
    if (c.relation == ">=") return x >= y;
    return c.relation == "<" ? x < y : x > y;
  }

  const FunctorText& text_;
  const Arguments& args_;
  std::map<std::string, double> numbers_;
  std::vector<std::string> chosen_;  // what each let became
};

class TextRules {
 public:
  TextRules(const FunctorText& text, Application& application)
      : text_(text), application_(application) {}

  Scheme run(Scheme scheme, FunctorPhase phase) {
    if (phase == FunctorPhase::kMorphisms && !text_.morphisms.empty()) {
      for (const MorphismRule& rule : text_.morphisms) scheme = rewrite(scheme, rule);
    }
    const int64_t rewritten = application_.matches;
    say_attributes(scheme, phase);
    // What a rewriting functor matched are the uses that it rewrote.
    if (!text_.morphisms.empty()) application_.matches = rewritten;
    return scheme;
  }

 private:
  void check_requirements(const Names& names) const {
    for (const Requirement& r : text_.requirements) {
      if (!names.holds(r.condition)) application_.refuse(names.filled(r.message));
    }
  }

  // Any of the words that a clause may stand for; "all" is everything.
  template <class Predicate>
  bool any_word(const Names& names, const std::string& word, const Predicate& holds) const {
    if (!names.is_param(word)) return holds(word);
    for (const Term& t : application_.args.list(word)) {
      if (t.word == "all" || holds(t.word)) return true;
    }
    return false;
  }

  bool object_matches(const Roles& roles, const Names& names, Value v, const Clause& c) const {
    const auto holds = [&](const std::string& word) {
      switch (c.kind) {
        case Clause::Kind::kIs:
          return roles.is(v, word);
        case Clause::Kind::kOf:
          return roles.is_of(v, word) || roles.is(v, word);
        case Clause::Kind::kInside:
          return roles.is_inside(v, word);
        case Clause::Kind::kOutside:
          return !roles.is_inside(v, word);
        case Clause::Kind::kChainState:
          return roles.state_index(v).has_value();
      }
      return false;
    };
    return any_word(names, c.word, holds) != c.negated;
  }

  // ---- what acted, told to whoever asks

  void tell_lets(const Names& names) const {
    for (const std::string& let : names.chosen()) application_.note(let, "");
  }

  std::string place(Position at) const { return text_.file + ":" + std::to_string(at.line) + ": "; }

  // One per way in which the choice's condition holds.
  std::vector<std::string> branches_of(const ObjectRule& rule, const Choice& choice,
                                       const Names& names) const {
    if (!application_.firings) return {};
    const std::string words = place(rule.at) + (&choice == &rule.choices[0] ? "" : "else ") +
                              (choice.value.word.empty() ? "in parts" : choice.value.word);
    std::vector<std::string> branches;
    for (const std::string& way : names.ways(choice.when)) {
      branches.push_back(way.empty() ? words : words + " when " + way);
    }
    return branches;
  }

  // ---- object rules

  void say_attributes(Scheme& scheme, FunctorPhase phase) {
    const auto belongs = [&](const ObjectRule& rule) {
      const bool frozen = rule.choices[0].value.attribute == "frozen";
      return frozen == (phase == FunctorPhase::kMorphisms);
    };
    if (std::none_of(text_.objects.begin(), text_.objects.end(), belongs)) return;
    // Roles are those of the scheme before anything is said: attributes change none, freezing may.
    const std::optional<Scheme> found =
        phase == FunctorPhase::kMorphisms ? std::optional(scheme) : std::nullopt;
    const Roles roles(found ? *found : scheme);
    Names names(text_, application_.args, roles.chain().length());
    check_requirements(names);
    tell_lets(names);
    const std::vector<int> made_by = producers(scheme);
    std::set<std::pair<Value, std::string>> said;
    std::set<Value> carried;  // what comes out of a step is what went in
    for (const Carry& c : scheme.carries) carried.insert(c.out);
    const std::vector<bool> fixed = fixed_dtypes(scheme);
    for (const ObjectRule& rule : text_.objects) {
      if (!belongs(rule)) continue;
      std::string why_not;  // of the first that it speaks of and that cannot be so
      bool any = false;
      for (Value v = 0; v < static_cast<Value>(scheme.objects.size()); ++v) {
        const auto matches = [&](const Clause& c) { return object_matches(roles, names, v, c); };
        if (!std::all_of(rule.selector.begin(), rule.selector.end(), matches)) continue;
        if (rule.unless_made_here && made_here(scheme[v].source.path)) continue;
        if (!rule.index.empty()) names.set(rule.index, *roles.state_index(v));
        bool none = true;
        for (const Choice& choice : rule.choices) {
          if (!names.holds(choice.when)) continue;
          none = false;
          const std::string& attribute = choice.value.attribute;
          // Only what the forward pass makes is kept or computed again.
          const bool forward =
              made_by[v] >= 0 && scheme.morphisms[made_by[v]].phase == Phase::kForward;
          if (attribute == "residence" && !forward) break;
          if (std::string why = why_cannot_be(scheme[v], attribute, forward, fixed[v]);
              !why.empty()) {
            if (why_not.empty()) why_not = std::move(why);
            break;
          }
          any = true;
          if (attribute == "frozen") check_uses(scheme, roles, names, v, rule);
          if (!said.emplace(v, attribute).second) break;
          application_.branches = branches_of(rule, choice, names);
          set(scheme, v, choice.value, names, rule.at);
          if (carried.count(v)) break;
          ++application_.counts[choice.value.attribute == "parts"
                                    ? "in " + std::to_string(scheme[v].attributes.parts) + " parts"
                                    : choice.value.word];
          break;
        }
        if (none) application_.note(place(rule.at) + "left alone", to_string(scheme[v].source));
      }
      // A selector may sweep over what cannot be so, and leaves it alone; a rule that finds nothing
      // else would be silently without effect.
      if (!any && !why_not.empty()) fail_at(text_.file, rule.at, why_not);
    }
  }

  // What no realization would act on, in a sentence; nothing where one does.
  static std::string why_cannot_be(const Object& o, const std::string& attribute, bool forward,
                                   bool fixed) {
    const auto because = [&](std::string_view rule, std::string_view what) {
      return std::string(rule) + ", and '" + to_string(o.source) + "' " + std::string(what);
    };
    const std::string is = "is " + std::string(name(o.role));
    const bool state = o.role == Role::kParameter || o.role == Role::kState;
    if (attribute == "frozen" && o.role != Role::kParameter) {
      return because("only a parameter can be frozen", is);
    }
    if (attribute == "parts" && o.role != Role::kInput) {
      return because("only a step's input comes in parts", is);
    }
    if (attribute == "tier" && !forward && !state) {
      return because(
          "only parameters, optimizer state and what the forward pass makes can live in another "
          "tier",
          is);
    }
    // A norm overflows float16, and a rate rounded to it is another rate.
    if (attribute == "precision" && (o.role == Role::kMetric || o.role == Role::kControl)) {
      return because("what a step is told and what it measures stay float32", is);
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

  void set(Scheme& scheme, Value v, const AttributeValue& value, const Names& names, Position at) {
    Object& o = scheme[v];
    std::string text = value.word;
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
      const double parts = names.number(value.number[0]);
      if (parts != std::floor(parts) || parts < 1 || parts > kMostParts) {
        fail_at(text_.file, at, "a batch comes in 1 to ", kMostParts, " parts, found ",
                shortest(parts));
      }
      o.attributes.parts = static_cast<int>(parts);
      text = std::to_string(o.attributes.parts);
    } else {
      const bool sharded = value.attribute.ends_with("sharded");
      o.attributes.placement.push_back(
          {value.word, sharded ? Spread::kSharded : Spread::kReplicated, 0});
    }
    application_.say(scheme, v, value.attribute, text);
  }

  // Freezing a parameter because of one of its uses must not freeze it for another.
  void check_uses(const Scheme& scheme, const Roles& roles, const Names& names, Value v,
                  const ObjectRule& rule) const {
    for (const Clause& c : rule.selector) {
      if (c.kind != Clause::Kind::kOf) continue;
      const auto is_whole = [&](const std::string& word) { return roles.is(v, word); };
      if (any_word(names, c.word, is_whole)) continue;
      const std::vector<int>& readers = roles.readers_of(v);
      const auto is_meant = [&](int reader) {
        return any_word(names, c.word,
                        [&](const std::string& word) { return roles.morphism_is(reader, word); });
      };
      const auto meant = std::find_if(readers.begin(), readers.end(), is_meant);
      const auto other = std::find_if_not(readers.begin(), readers.end(), is_meant);
      if (meant == readers.end() || other == readers.end()) continue;
      application_.refuse("'", scheme[v].source.path, "' is tied: '",
                          scheme.morphisms[*meant].source.path, "' uses it as ",
                          name(roles.use_of(*meant)), " and '",
                          scheme.morphisms[*other].source.path, "' as ", name(roles.use_of(*other)),
                          "; name all of its uses, or what it is (table, matrix, vector)");
    }
  }

  // ---- morphism rules

  bool morphism_matches(const Scheme& scheme, const Roles& roles, const Names& names, int i,
                        const MorphismRule& rule) const {
    const Morphism& m = scheme.morphisms[i];
    if (m.op != rule.op || m.phase != Phase::kForward || made_here(m.source.path)) return false;
    if (m.inputs.size() < rule.operands.size()) return false;
    return std::all_of(rule.where.begin(), rule.where.end(), [&](const Clause& c) {
      if (c.variable.empty()) {
        const auto holds = [&](const std::string& word) {
          if (c.kind == Clause::Kind::kInside) return roles.morphism_is_inside(i, word);
          if (c.kind == Clause::Kind::kOutside) return !roles.morphism_is_inside(i, word);
          return roles.morphism_is(i, word);
        };
        return any_word(names, c.word, holds) != c.negated;
      }
      const auto at = std::find(rule.operands.begin(), rule.operands.end(), c.variable);
      return object_matches(roles, names, m.inputs[at - rule.operands.begin()], c);
    });
  }

  Scheme rewrite(const Scheme& before, const MorphismRule& rule) {
    const Roles roles(before);
    const Names names(text_, application_.args, roles.chain().length());
    check_requirements(names);
    tell_lets(names);
    Scheme after = before;
    after.morphisms.clear();
    std::vector<Value> renamed(before.objects.size());
    for (size_t v = 0; v < renamed.size(); ++v) renamed[v] = static_cast<Value>(v);
    int64_t matches = 0;
    for (size_t i = 0; i < before.morphisms.size(); ++i) {
      Morphism m = before.morphisms[i];
      for (Value& in : m.inputs) in = renamed[in];
      after.morphisms.push_back(m);
      if (!morphism_matches(before, roles, names, static_cast<int>(i), rule)) continue;
      ++matches;
      application_.note(place(rule.at) + rule.result + " = " + rule.op, to_string(m.source));
      ++application_.counts[std::string(name(roles.use_of(static_cast<int>(i))))];
      renamed[before.morphisms[i].outputs[0]] = graft(after, m, rule, names);
    }
    for (Value& out : after.outputs) out = renamed[out];
    application_.matches += matches;
    if (matches == 0) {
      application_.refuse("no '", rule.op, "' is what its rule asks for; this scheme has ",
                          roles.describe());
    }
    return without_dead(std::move(after));
  }

  // width(y): the size of the last axis of an operand.
  Term with_widths(Term term, const std::set<std::string>& variables) const {
    if (term.kind == Term::Kind::kCall && term.word == "width" && term.args.size() == 1) {
      const std::string& variable = term.args[0].word;
      if (!variables.count(variable)) {
        fail_at(text_.file, term.at, "width wants the result or an operand of this rule, found '",
                print(term.args[0]), "'");
      }
      return {.kind = Term::Kind::kName, .word = variable + "_width", .at = term.at};
    }
    for (Term& t : term.args) t = with_widths(std::move(t), variables);
    for (auto& [word, t] : term.keywords) t = with_widths(std::move(t), variables);
    return term;
  }

  // The rule's right side as a scheme of its own whose inputs are the rule's variables.
  Scheme fragment(const Scheme& scheme, const Morphism& m, const MorphismRule& rule,
                  const Names& names, std::map<std::string, std::string>& labels) const {
    Document document;
    Box box{.name = "model", .at = rule.at};
    std::set<std::string> variables;
    const auto bind = [&](const std::string& variable, Value v) {
      const Type& type = scheme[v].type;
      Formal formal{.name = variable, .dtype = type.dtype, .at = rule.at};
      for (int a = 0; a < type.rank(); ++a) {
        const std::string axis =
            variable + (a + 1 == type.rank() ? "_width" : "_" + std::to_string(a));
        labels[axis] = type.axes[a].name;
        document.axes.push_back(
            {axis, {.number = static_cast<double>(type.dim(a)), .at = rule.at}, rule.at});
        formal.axes.push_back({.kind = Term::Kind::kName, .word = axis, .at = rule.at});
      }
      box.formals.push_back(std::move(formal));
      variables.insert(variable);
    };
    for (size_t k = 0; k < rule.operands.size(); ++k) bind(rule.operands[k], m.inputs[k]);
    bind(rule.result, m.outputs[0]);
    std::set<std::string> set;
    const auto number = [&](const std::string& name, double value) {
      if (set.insert(name).second) document.numbers.push_back({name, {.number = value}, rule.at});
    };
    for (const auto& [name, value] : names.numbers()) number(name, value);
    for (const FunctorParam& p : text_.params) {
      if (p.words.empty() && !p.list) number(p.name, names.number(application_.args.term(p.name)));
    }
    box.body.push_back({{"result"}, {with_widths(rule.replacement, variables)}, rule.at});
    document.boxes.push_back(std::move(box));
    return elaborate(document, text_.file, {});
  }

  // Where the piece's own things go: under the use that they stand beside. Two functors at one use
  // may call something alike, so there the later one's go under its name.
  std::string prefix_for(const Scheme& into, const Morphism& m, const Scheme& piece,
                         const std::vector<Value>& known) const {
    const auto taken = [&](const std::string& prefix) {
      for (size_t v = 0; v < piece.objects.size(); ++v) {
        const Object& o = piece.objects[v];
        if (known[v] >= 0 || o.role == Role::kControl) continue;
        if (!into.find({prefix + o.source.path, o.source.facet})) continue;
        if (made_here(prefix + o.source.path)) {
          application_.refuse("'", m.source.path,
                              "' has been rewritten by it already; name it once");
        }
        return true;
      }
      return false;
    };
    const std::string prefix = m.source.path + ".", own = prefix + application_.functor + ".";
    if (!taken(prefix)) return prefix;
    CHECK(!taken(own), "what another made is not under this functor's name");
    return own;
  }

  Value graft(Scheme& into, const Morphism& m, const MorphismRule& rule, const Names& names) {
    std::map<std::string, std::string> labels;
    Scheme piece = fragment(into, m, rule, names, labels);
    std::vector<Value> known(piece.objects.size(), -1);
    for (size_t k = 0; k < rule.operands.size(); ++k) known[piece.inputs[k]] = m.inputs[k];
    known[piece.inputs[rule.operands.size()]] = m.outputs[0];
    const std::string prefix = prefix_for(into, m, piece, known);
    const Attributes attributes = into[m.outputs[0]].attributes;
    for (size_t v = 0; v < piece.objects.size(); ++v) {
      if (known[v] >= 0) continue;
      Object o = piece.objects[v];
      const bool control = o.role == Role::kControl;
      if (control) {
        if (const auto there = into.find(o.source)) {
          known[v] = *there;
          continue;
        }
      } else {
        o.source.path = prefix + o.source.path;
        o.attributes = attributes;
      }
      for (Axis& axis : o.type.axes) {
        if (const auto label = labels.find(axis.name); label != labels.end()) {
          axis.name = label->second;
        }
      }
      if (o.role == Role::kParameter) note_made(o.source.path);
      const bool input = std::count(piece.inputs.begin(), piece.inputs.end(), v) > 0;
      known[v] = input ? into.add_input(std::move(o)) : into.add(std::move(o));
    }
    for (Morphism made : piece.morphisms) {
      for (Value& in : made.inputs) in = known[in];
      for (Value& out : made.outputs) out = known[out];
      made.source.path = prefix + made.source.path;
      note_made(made.source.path);
      // Random bits are keyed by source path.
      if (const auto key = made.attrs.find("key"); key != made.attrs.end()) {
        key->second = prefix + std::get<std::string>(key->second);
      }
      into.morphisms.push_back(std::move(made));
    }
    const Value out = known[piece.outputs[0]];
    if (piece.outputs.size() != 1 || into[out].type.rank() != into[m.outputs[0]].type.rank() ||
        !same_shape(into[out].type, into[m.outputs[0]].type)) {
      fail_at(text_.file, rule.at, "what replaces '", rule.result, "' must have its shape ",
              shape_string(into[m.outputs[0]].type), ", found ", shape_string(into[out].type));
    }
    return out;
  }

  // What a functor made it does not rewrite, wherever in the stack it is named.
  void note_made(const std::string& path) const {
    application_.said->emplace(std::pair{path, "made"},
                               std::pair{"by a rule", application_.functor});
  }
  bool made_here(const std::string& path) const {
    const auto found = application_.said->find({path, "made"});
    return found != application_.said->end() && found->second.second == application_.functor;
  }

  const FunctorText& text_;
  Application& application_;
};

}  // namespace

Functor functor_of(FunctorText text) {
  Functor functor{.name = text.name,
                  .summary = text.summary,
                  .law = text.law,
                  .params = text.params,
                  .by_default = text.by_default,
                  .may_match_none = text.by_default};
  const auto shared = std::make_shared<const FunctorText>(std::move(text));
  const auto rule_for = [&](FunctorPhase phase) {
    functor.rules.push_back({phase, [shared, phase](Scheme scheme, Application& a) {
                               return TextRules(*shared, a).run(std::move(scheme), phase);
                             }});
  };
  bool frozen = false, other = false;
  for (const ObjectRule& rule : shared->objects) {
    (rule.choices[0].value.attribute == "frozen" ? frozen : other) = true;
  }
  if (frozen || !shared->morphisms.empty()) rule_for(FunctorPhase::kMorphisms);
  if (other) rule_for(FunctorPhase::kStepRules);
  return functor;
}

}  // namespace adjoint

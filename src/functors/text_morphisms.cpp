// Morphism rules of a functor's text: `morphism y = linear(x, W) -> y + ...`. A use that a rule
// asks for is rewritten into statements and a term of the models' own notation, which are
// elaborated as a small scheme of their own and set in the place of the use. Of several rules about
// one op the one that names most of a use's operands has it, and of those that name as many the
// first.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "functors/text_rules.h"
#include "models/elaborate.h"
#include "ops/loss_count.h"

namespace adjoint {

namespace {

class MorphismRules : TextRules {
 public:
  using TextRules::TextRules;

  Scheme rewrite_all(Scheme scheme) {
    std::set<std::string> ops;
    for (const MorphismRule& first : text_.morphisms) {
      if (!ops.insert(first.op).second) continue;
      std::vector<const MorphismRule*> rules;
      for (const MorphismRule& rule : text_.morphisms) {
        if (rule.op == first.op) rules.push_back(&rule);
      }
      std::stable_sort(rules.begin(), rules.end(), [](const auto* a, const auto* b) {
        return a->operands.size() > b->operands.size();
      });
      const int64_t before = application_.matches;
      for (const MorphismRule* rule : rules) scheme = rewrite(scheme, *rule);
      // A model that is sampled from has no loss, and what is evaluated is not trained.
      if (application_.matches == before && application_.training) {
        if (asked_before(rules)) {
          application_.refuse(join(application_.rewriters, " and "), " rewrote every '", first.op,
                              "' that its rule", rules.size() > 1 ? "s ask" : " asks",
                              " for; leave out one of them");
        }
        application_.refuse("no '", first.op, "' is what its rule",
                            rules.size() > 1 ? "s ask" : " asks", " for; this scheme has ",
                            Roles(scheme).describe());
      }
    }
    return scheme;
  }

 private:
  Names names_of_rules(const Roles& roles) const {
    Names names = names_for(roles.chain().length());
    const std::string training(kTraining);
    if (!names.is_param(training) && !names.numbers().count(training)) {
      names.set(training, application_.training);
    }
    return names;
  }

  // Whether these rules ask for something that was there before other functors rewrote the model.
  bool asked_before(const std::vector<const MorphismRule*>& rules) const {
    if (!application_.untouched || application_.rewriters.empty()) return false;
    const Scheme& scheme = *application_.untouched;
    const Roles roles(scheme);
    const Names names = names_of_rules(roles);
    for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
      for (const MorphismRule* rule : rules) {
        if (morphism_matches(scheme, roles, names, static_cast<int>(i), *rule)) return true;
      }
    }
    return false;
  }

  Scheme rewrite(const Scheme& before, const MorphismRule& rule) {
    const Roles roles(before);
    Names names = names_of_rules(roles);
    Scheme after = before;
    after.morphisms.clear();
    std::vector<Value> renamed(before.objects.size());
    for (size_t v = 0; v < renamed.size(); ++v) renamed[v] = static_cast<Value>(v);
    for (size_t i = 0; i < before.morphisms.size(); ++i) {
      Morphism m = before.morphisms[i];
      for (Value& in : m.inputs) in = renamed[in];
      after.morphisms.push_back(m);
      if (rewritten_.count(to_string(m.source))) continue;
      if (!morphism_matches(before, roles, names, static_cast<int>(i), rule)) continue;
      if (rule.by_block) {
        const int block = roles.chain().block_of_morphism[i];
        if (block < 0) continue;
        names.set(std::string(kBlockNumber), block);
      }
      const std::string branch = place(rule.at) + rule.result + " = " + rule.op;
      if (!names.holds(rule.when)) {
        application_.note(branch + " left alone", to_string(m.source));
        continue;
      }
      ++application_.matches;
      rewritten_.insert(to_string(m.source));
      for (const std::string& way : names.ways(rule.when)) {
        application_.note(way.empty() ? branch : branch + " when " + way, to_string(m.source));
      }
      expect(after, m, rule, names);
      const Use use = roles.use_of(static_cast<int>(i));
      ++application_.counts[use == Use::kNone ? rule.op : std::string(name(use))];
      const bool alone = std::equal(before.outputs.begin(), before.outputs.end(), m.outputs.begin(),
                                    m.outputs.begin() + std::min<int64_t>(2, m.outputs.size()));
      queries_ = roles.queries_of(static_cast<int>(i));
      const std::vector<Value> made = graft(after, m, rule, names, alone);
      for (size_t k = 0; k < made.size(); ++k) renamed[m.outputs[k]] = made[k];
    }
    tell_doubts();
    for (Value& out : after.outputs) out = renamed[out];
    return without_dead(std::move(after));
  }

  // Notes what a rule expects of its use and does not find.
  void expect(const Scheme& scheme, const Morphism& m, const MorphismRule& rule,
              const Names& names) {
    std::map<std::string, double> widths;
    const auto add = [&](const std::string& variable, Value v) {
      const Type& type = scheme[v].type;
      if (type.rank() > 0) widths[variable] = static_cast<double>(type.dim(type.rank() - 1));
    };
    for (size_t k = 0; k < rule.operands.size(); ++k) add(rule.operands[k], m.inputs[k]);
    add(rule.result, m.outputs[0]);
    const auto sized = [&](const auto& self, Term term) -> Term {
      if (term.kind == Term::Kind::kCall && term.word == "width") {
        return {.number = widths[term.args[0].word], .at = term.at};
      }
      for (Term& t : term.args) t = self(self, std::move(t));
      return term;
    };
    for (const Requirement& expected : rule.expectations) {
      if (names.holds(sized(sized, expected.condition))) continue;
      std::string message = expected.message;
      for (const auto& [variable, width] : widths) {
        const std::string asked = "{width(" + variable + ")}";
        for (size_t at; (at = message.find(asked)) != message.npos;) {
          message.replace(at, asked.size(), shortest(width));
        }
      }
      Doubt& doubt = doubts_[&expected];
      if (doubt.uses++ == 0) {
        doubt.first = to_string(m.source);
        doubt.message = names.filled(std::move(message));
      }
    }
  }

  // One sentence for all uses of a rule.
  void tell_doubts() {
    for (const auto& [expected, doubt] : doubts_) {
      const int64_t others = doubt.uses - 1;
      application_.doubts.push_back(join_parts(
          application_.functor, ": '", doubt.first, "'",
          others > 0 ? join_parts(" and ", others, others > 1 ? " others" : " other") : "", ": ",
          doubt.message));
    }
    doubts_.clear();
  }

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
      return object_matches(scheme, roles, names, m.inputs[at - rule.operands.begin()], c);
    });
  }

  // A state of an operand that a rule reads, mask(W), and what it is called in the elaborated
  // piece: a name that nobody can write.
  struct Held {
    std::string variable;
    Value state;
  };

  const StateRule* state_called(const Term& term) const {
    if (term.kind != Term::Kind::kCall) return nullptr;
    const auto found = std::find_if(text_.states.begin(), text_.states.end(),
                                    [&](const StateRule& rule) { return rule.name == term.word; });
    return found == text_.states.end() ? nullptr : &*found;
  }

  Term with_states(Term term) const {
    if (state_called(term)) {
      return {
          .kind = Term::Kind::kName, .word = term.word + "." + term.args[0].word, .at = term.at};
    }
    for (Term& t : term.args) t = with_states(std::move(t));
    for (auto& [word, t] : term.keywords) t = with_states(std::move(t));
    return term;
  }

  // Makes the states that a term reads, where another use has not. What the forward pass reads is a
  // frozen parameter: it is saved with the model, and whoever evaluates, samples or merges has it.
  void find_held(Scheme& into, const Morphism& m, const MorphismRule& rule, const Names& names,
                 const Term& term, std::vector<Held>& held) const {
    for (const Term& t : term.args) find_held(into, m, rule, names, t, held);
    for (const auto& [word, t] : term.keywords) find_held(into, m, rule, names, t, held);
    const StateRule* const state = state_called(term);
    if (!state) return;
    const auto operand =
        term.args.empty()
            ? rule.operands.end()
            : std::find(rule.operands.begin(), rule.operands.end(),
                        term.args[0].kind == Term::Kind::kName ? term.args[0].word : std::string());
    if (operand == rule.operands.end() || term.args.size() > 1 || !term.keywords.empty()) {
      fail_at(text_.file, term.at, "the state '", state->name,
              "' is one of a parameter: wanted an operand of this rule, found '", print(term), "'");
    }
    const Value parameter = m.inputs[operand - rule.operands.begin()];
    const Object of = into[parameter];
    if (of.role != Role::kParameter || !of.source.facet.empty()) {
      fail_at(text_.file, term.at, "the state '", state->name, "' follows parameters, and '",
              to_string(of.source), "' is ", of.role == Role::kParameter ? "held" : "computed",
              "; say where parameter(", *operand, ")");
    }
    const std::string variable = term.word + "." + *operand;
    const auto has_name = [&](const Held& h) { return h.variable == variable; };
    if (std::any_of(held.begin(), held.end(), has_name)) return;
    const Source source = source_of_state(of.source.path, *state);
    if (const auto there = into.find(source)) return held.push_back({variable, *there});
    Object object{.type = of.type, .source = source, .role = Role::kParameter, .frozen = true};
    object.init = beginning_of(*state, names);
    // Nobody else says how it is held or that it is trained: its rule says what becomes of it.
    object.attributes.precision = name(of.type.dtype);
    const auto say = [&](const std::string& attribute, const std::string& value) {
      application_.said->emplace(std::pair{to_string(source), attribute},
                                 Application::Saying{value, application_.functor});
    };
    say("frozen", "frozen");
    say("precision", object.attributes.precision);
    held.push_back({variable, into.add_input(std::move(object))});
  }

  // Whether a piece that stands for a loss counts the targets that the loss did.
  static bool counts_the_same(const Scheme& piece, const std::vector<Value>& known,
                              const Morphism& loss) {
    for (const Morphism& m : piece.morphisms) {
      if (m.outputs.size() < 2 || m.outputs[1] != piece.outputs[1] || !is_loss_term(m)) continue;
      auto mine = loss_count(m);
      if (mine) mine->targets = known[mine->targets];
      return mine && mine == loss_count(loss);
    }
    return false;
  }

  // The rule's right side as a scheme of its own whose inputs are the rule's variables.
  Scheme fragment(const Scheme& scheme, const Morphism& m, const MorphismRule& rule,
                  const Names& names, const std::vector<Held>& held, Labels& labels) const {
    Document document;
    Box box{.name = "model", .at = rule.at};
    Sizes sizes{.ranks = {}, .result = rule.result, .queries = queries_};
    const auto bind = [&](const std::string& variable, Value v) {
      const Type& type = scheme[v].type;
      Formal formal{.name = variable, .dtype = type.dtype, .at = rule.at};
      for (int a = 0; a < type.rank(); ++a) {
        const std::string axis = axis_of(variable, a, type.rank());
        labels[axis] = type.axes[a].name;
        document.axes.push_back(
            {axis, {.number = static_cast<double>(type.dim(a)), .at = rule.at}, rule.at});
        formal.axes.push_back({.kind = Term::Kind::kName, .word = axis, .at = rule.at});
      }
      box.formals.push_back(std::move(formal));
      sizes.ranks[variable] = type.rank();
    };
    KnownUse use{.op = m.op, .attrs = m.attrs, .named = rule.operands.size()};
    for (size_t k = 0; k < m.inputs.size(); ++k) {
      const Object& o = scheme[m.inputs[k]];
      if (o.role == Role::kControl) {
        if (k < use.named) {
          fail_at(text_.file, rule.at, "'", rule.operands[k], "' of ", m.op,
                  " is what the run says, '", o.source.path, "': a rule does not name it");
        }
        use.operands.push_back(o.source.path);
        use.controls[o.source.path] = o.type;
        continue;
      }
      // What the rule does not name has a name that nobody can write.
      use.operands.push_back(k < use.named ? rule.operands[k]
                                           : rule.result + "." + std::to_string(k));
      bind(use.operands[k], m.inputs[k]);
    }
    // A loss is made again, because what it counts is found in how it is made.
    bool speaks_of_result = mentions(rule.replacement, rule.result);
    for (const Statement& statement : rule.statements) {
      for (const Term& value : statement.values) {
        speaks_of_result = speaks_of_result || mentions(value, rule.result);
      }
    }
    if (!is_loss_term(m)) {
      bind(rule.result, m.outputs[0]);
    } else if (speaks_of_result) {
      const Term again{.kind = Term::Kind::kCall, .word = rule.result, .at = rule.at};
      box.body.push_back({{rule.result}, {again}, rule.at});
    }
    for (const Held& h : held) bind(h.variable, h.state);
    document.numbers = numbers_of(names, rule.at);
    const auto number = [&](std::string_view name, Term value) {
      const auto has_name = [&](const Setting& setting) { return setting.name == name; };
      if (std::none_of(document.numbers.begin(), document.numbers.end(), has_name)) {
        document.numbers.push_back({std::string(name), std::move(value), rule.at});
      }
    };
    // The use's own constants go by their names, and those that it does not say are as they are
    // when nobody says them.
    for (const auto& [name, value] : m.attrs) {
      if (const auto* whole = std::get_if<int64_t>(&value))
        number(name, {.number = static_cast<double>(*whole)});
      if (const auto* real = std::get_if<double>(&value)) number(name, {.number = *real});
    }
    for (const Param& param : op_named(m.op).params) {
      const bool said_by_default = !param.otherwise.empty() && param.otherwise != "none";
      if (param.kind != Param::Kind::kNumber || !said_by_default) continue;
      number(param.name, parse_term(param.otherwise, m.op));
    }
    for (Statement statement : rule.statements) {
      for (Term& value : statement.values) value = with_states(with_sizes(std::move(value), sizes));
      box.body.push_back(std::move(statement));
    }
    box.body.push_back({{"result"}, {with_states(with_sizes(rule.replacement, sizes))}, rule.at});
    document.boxes.push_back(std::move(box));
    return elaborate(document, text_.file, {}, {{rule.result, use}});
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
          application_.refuse("'", m.source.path, "' has been rewritten by another ",
                              application_.functor, " of this stack already; name ",
                              application_.functor, " once");
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

  // What stands for the use's first result, or for the pair of a loss; `alone` is one that is all
  // of the model's loss.
  std::vector<Value> graft(Scheme& into, const Morphism& m, const MorphismRule& rule,
                           const Names& names, bool alone) {
    Labels labels;
    std::vector<Held> held;
    for (const Statement& statement : rule.statements) {
      for (const Term& value : statement.values) find_held(into, m, rule, names, value, held);
    }
    find_held(into, m, rule, names, rule.replacement, held);
    Scheme piece = fragment(into, m, rule, names, held, labels);
    std::vector<Value> known(piece.objects.size(), -1);
    size_t next = 0;
    for (const Value in : m.inputs) {
      if (into[in].role != Role::kControl) known[piece.inputs[next++]] = in;
    }
    if (!is_loss_term(m)) known[piece.inputs[next++]] = m.outputs[0];
    for (const Held& h : held) known[piece.inputs[next++]] = h.state;
    if (is_loss_term(m)) check_loss(piece, known, labels, m, rule, alone);
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
      o.type = relabelled(std::move(o.type), labels);
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
    if (is_loss_term(m)) return {out, known[piece.outputs[1]]};
    if (piece.outputs.size() != 1 || into[out].type.rank() != into[m.outputs[0]].type.rank() ||
        !same_shape(into[out].type, into[m.outputs[0]].type)) {
      fail_at(text_.file, rule.at, "what replaces '", rule.result, "' must have its shape ",
              shape_string(into[m.outputs[0]].type), ", found ", shape_string(into[out].type));
    }
    return {out};
  }

  void check_loss(const Scheme& piece, const std::vector<Value>& known, const Labels& labels,
                  const Morphism& m, const MorphismRule& rule, bool alone) const {
    if (piece.outputs.size() != 2 || piece[piece.outputs[0]].type.rank() != 0) {
      fail_at(text_.file, rule.at, "what replaces '", rule.result,
              "' must be a loss, as cross_entropy and average give it, found ",
              piece.outputs.size() == 1
                  ? "an object " + shape_string(relabelled(piece[piece.outputs[0]].type, labels))
                  : "several objects");
    }
    if (alone || counts_the_same(piece, known, m)) return;
    fail_at(
        text_.file, rule.at, "this rule changes which targets '", m.source.path,
        "' counts, which is one term of several in the model's loss: the others are weighted by "
        "the count that it had");
  }

  std::set<std::string> rewritten_;  // by source: a use is rewritten once
  struct Doubt {
    std::string first, message;  // of the first use
    int64_t uses = 0;
  };
  std::map<const Requirement*, Doubt> doubts_;  // of the rule that is being applied
  std::optional<int64_t> queries_;              // of the use that is being rewritten
};

}  // namespace

Scheme rewrite_uses(const FunctorText& text, Application& application, Scheme scheme) {
  return MorphismRules(text, application).rewrite_all(std::move(scheme));
}

}  // namespace adjoint

// Morphism rules of a functor's text: `morphism y = linear(x, W) -> y + ...`. A use that a rule
// asks for is rewritten into a term of the models' own notation, which is elaborated as a small
// scheme of its own and set in the place of the use.
#include <algorithm>
#include <set>

#include "functors/text_rules.h"
#include "models/elaborate.h"

namespace adjoint {

namespace {

class MorphismRules : TextRules {
 public:
  using TextRules::TextRules;

  Scheme rewrite(const Scheme& before, const MorphismRule& rule) {
    const Roles roles(before);
    Names names = names_for(roles.chain().length());
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
      ++matches;
      for (const std::string& way : names.ways(rule.when)) {
        application_.note(way.empty() ? branch : branch + " when " + way, to_string(m.source));
      }
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

 private:
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
};

}  // namespace

Scheme rewrite_uses(const FunctorText& text, Application& application, const Scheme& before,
                    const MorphismRule& rule) {
  return MorphismRules(text, application).rewrite(before, rule);
}

}  // namespace adjoint

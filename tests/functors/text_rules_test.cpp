// What the built-in texts do: which objects they speak of, in models of different make, and that
// they leave everything else as it was. Rules alone: nothing is realized here.
#include <gtest/gtest.h>

#include <set>

#include "base/error_text.h"
#include "functors/functor_named.h"
#include "functors/functor_text.h"
#include "functors/pipeline.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

using Names = std::set<std::string>;

constexpr std::string_view kNested = R"(axes hidden=8 context=4 vocab=11 outer=2 inner=2
leaf y[batch, seq, hidden]:
  y = y + linear(gelu(linear(rms_norm(y), 2*hidden)), hidden)
stem z[batch, seq, hidden]:
  z = leaf^inner(z)
model tokens[batch, seq], targets[batch, seq]:
  x = stem^outer(embed(tokens, vocab, name=table))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)";

// A whole step, and what is known of it from its text.
struct Known {
  Scheme forward;
  std::vector<std::string> states;  // of the chain, by path
  std::string box;                  // what paths inside blocks begin with
  Scheme step() const { return apply_optimizer(apply_adjoint(forward), {}); }
};

Known gpt2() {
  return {elaborate_preset("char", {{"layers", 4},
                                    {"hidden", 8},
                                    {"heads", 2},
                                    {"context", 4},
                                    {"vocab", 11},
                                    {"batch", 4},
                                    {"dropout", 0.1}}),
          {"dropout#1", "block[0].add#2", "block[1].add#2", "block[2].add#2", "block[3].add#2"},
          "block["};
}
Known llama() {
  return {elaborate_preset("llama-tiny", {{"layers", 4}, {"context", 4}, {"batch", 2}}),
          {"wte", "block[0].add#2", "block[1].add#2", "block[2].add#2", "block[3].add#2"},
          "block["};
}
Known nested() {
  return {elaborate_text(kNested, {.settings = {{"batch", 2}}}),
          {"table", "stem[0].leaf[0].add#1", "stem[0].leaf[1].add#1", "stem[1].leaf[0].add#1",
           "stem[1].leaf[1].add#1"},
          "stem["};
}

template <class Predicate>
Names names_where(const Scheme& scheme, const Predicate& holds) {
  Names names;
  for (const Object& o : scheme.objects) {
    if (holds(o)) names.insert(to_string(o.source));
  }
  return names;
}

Names with_role(const Scheme& scheme, Role role) {
  return names_where(scheme, [&](const Object& o) { return o.role == role; });
}

// What the forward pass makes.
Names made_forward(const Scheme& scheme) {
  Names names;
  for (const Morphism& m : scheme.morphisms) {
    for (const Value out : m.outputs) {
      if (m.phase == Phase::kForward) names.insert(to_string(scheme[out].source));
    }
  }
  return names;
}

// The same but for attributes.
Scheme bare(Scheme scheme) {
  for (Object& o : scheme.objects) o.attributes = {};
  return scheme;
}

struct Residences {
  Names kept, recomputed, apart;
  bool operator==(const Residences&) const = default;
};

Residences residences(const Scheme& s) {
  const auto those = [&](Residence r) {
    return names_where(s, [&](const Object& o) { return o.attributes.residence == r; });
  };
  return {those(Residence::kKept), those(Residence::kRecomputed), those(Residence::kApart)};
}

void PrintTo(const Residences& r, std::ostream* out) {
  const auto list = [&](const char* what, const Names& names) {
    *out << "\n" << what << ":";
    for (const std::string& n : names) *out << " " << n;
  };
  list("kept", r.kept), list("recomputed", r.recomputed), list("apart", r.apart);
}

// With these states kept; the rest, and everything inside blocks, recomputed.
Residences chain_keeps(const Known& model, const std::set<int>& kept) {
  Residences r;
  for (const std::string& name : made_forward(model.forward)) {
    if (name.starts_with(model.box)) r.recomputed.insert(name);
  }
  for (size_t l = 0; l < model.states.size(); ++l) {
    r.recomputed.erase(model.states[l]);
    (kept.count(static_cast<int>(l)) ? r.kept : r.recomputed).insert(model.states[l]);
  }
  return r;
}

TEST(Checkpoint, KeepsSomeStatesOfTheChain) {
  struct Mode {
    const char* item;
    std::set<int> kept;
  };
  // The last state is always kept: the loss reads it at once.
  const std::vector<Mode> modes = {{"checkpoint(every=1)", {0, 1, 2, 3, 4}},
                                   {"checkpoint(every=2)", {0, 2, 4}},
                                   {"checkpoint(every=3)", {0, 3, 4}},
                                   {"checkpoint(every=4)", {0, 4}},
                                   {"checkpoint", {0, 2, 4}},
                                   {"checkpoint(sqrt)", {0, 2, 4}},
                                   {"checkpoint(block)", {0, 1, 2, 3, 4}},
                                   {"checkpoint(keep=[1, 3])", {1, 3, 4}},
                                   {"checkpoint(keep=[0])", {0, 4}},
                                   {"checkpoint(keep=3)", {3, 4}}};
  for (const Known& model : {gpt2(), llama(), nested()}) {
    for (const Mode& mode : modes) {
      const Scheme step = model.step(), after = apply_functor(mode.item, step);
      EXPECT_EQ(residences(after), chain_keeps(model, mode.kept)) << mode.item << model.box;
      EXPECT_EQ(bare(after), step) << mode.item;
    }
  }
}

TEST(Checkpoint, AllKeepsNothingAndBeginsAnEpochAtEveryState) {
  for (const Known& model : {gpt2(), llama(), nested()}) {
    Residences wanted = chain_keeps(model, {4});
    for (int l = 0; l < 4; ++l) {
      wanted.recomputed.erase(model.states[l]);
      wanted.apart.insert(model.states[l]);
    }
    EXPECT_EQ(residences(apply_functor("checkpoint(all)", model.step())), wanted);
  }
}

// Only what lies between the linear maps around an attention.
TEST(Checkpoint, SelectiveRecomputesAttention) {
  for (const Known& model : {gpt2(), llama()}) {
    Residences wanted;
    wanted.kept = {model.states.begin(), model.states.end()};
    for (const std::string& name : made_forward(model.forward)) {
      if (has(name, ".attention#") || has(name, ".rotary#")) wanted.recomputed.insert(name);
    }
    EXPECT_GE(wanted.recomputed.size(), 8u);
    EXPECT_EQ(residences(apply_functor("checkpoint(selective)", model.step())), wanted);
  }
}

TEST(Checkpoint, RefusesWhatTheChainHasNot) {
  const Scheme step = gpt2().step();
  const auto said = [&](const char* item) {
    return error_text([&] { apply_functor(item, step); });
  };
  EXPECT_TRUE(has(said("checkpoint(every=5)"), "every=5 is more than the 4 blocks"))
      << said("checkpoint(every=5)");
  EXPECT_TRUE(has(said("checkpoint(every=5)"), "at most every=4"));
  EXPECT_TRUE(has(said("checkpoint(keep=[1, 7])"), "states 0 to 4, so keep=[1, 7]"))
      << said("checkpoint(keep=[1, 7])");
  EXPECT_TRUE(has(said("checkpoint(keep=7)"), "keep=7"));
  EXPECT_TRUE(has(said("checkpoint(block, keep=[2])"), "every=block or keep=[2], not both"));
  const Scheme flat = elaborate_text(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  loss = cross_entropy(linear(gelu(linear(embed(tokens, vocab), hidden)), vocab), targets)
)");
  EXPECT_TRUE(has(error_text([&] { apply_functor("checkpoint", flat); }), "no chain of repeated"));
}

// Forward results that depend on data; not auxiliary results, tables or metrics.
Names activations(const Known& model) {
  Names names;
  for (const std::string& name : made_forward(model.forward)) {
    const bool other = name.ends_with(".lse") || name.starts_with("rotary_table") ||
                       name.starts_with("cross_entropy") || name.starts_with("position");
    if (!other) names.insert(name);
  }
  return names;
}

// gpt2 embeds positions too: no data in them.
Names data_activations(const Known& model) {
  Names names = activations(model);
  names.erase("wpe");
  return names;
}

TEST(Bf16, ActivationsAndTheirGradientsOnly) {
  for (const Known& model : {gpt2(), llama(), nested()}) {
    const Scheme step = model.step(), after = apply_functor("bf16", step);
    EXPECT_EQ(bare(after), step);
    const Names parameters = with_role(step, Role::kParameter);
    Names wanted = data_activations(model);
    for (const Object& o : step.objects) {
      // A row per position depends on no data, so its gradient is a sum over the batch.
      const bool activation = o.role == Role::kGradient && o.type.rank() > 0 &&
                              !parameters.count(o.source.path) && o.source.path != "wpe";
      if (activation) wanted.insert(to_string(o.source));
    }
    EXPECT_EQ(names_where(after, [](const Object& o) { return o.attributes.precision == "bf16"; }),
              wanted);
    EXPECT_EQ(names_where(after, [](const Object& o) { return !o.attributes.precision.empty(); }),
              wanted);
    // What must not change, told by what it is.
    for (const Object& o : after.objects) {
      if (o.role == Role::kParameter || o.role == Role::kState || o.role == Role::kMetric ||
          o.role == Role::kControl || o.role == Role::kInput || !is_float(o.type.dtype)) {
        EXPECT_EQ(o.attributes.precision, "") << to_string(o.source);
      }
    }
  }
}

TEST(Offload, EachKindAndNothingElse) {
  const auto on_host = [](const Scheme& s) {
    return names_where(s, [](const Object& o) { return o.attributes.tier == Tier::kHost; });
  };
  for (const Known& model : {gpt2(), llama(), nested()}) {
    const Scheme step = model.step();
    EXPECT_EQ(on_host(apply_functor("offload(optimizer)", step)), with_role(step, Role::kState));
    EXPECT_EQ(on_host(apply_functor("offload(parameters)", step)),
              with_role(step, Role::kParameter));
    EXPECT_EQ(on_host(apply_functor("offload(activations)", step)), data_activations(model));
    for (const char* what : {"optimizer", "parameters", "activations"}) {
      EXPECT_EQ(bare(apply_functor("offload(" + std::string(what) + ")", step)), step);
    }
  }
}

// State before and after a step is one object, and is counted once.
TEST(Offload, CountsStateOnce) {
  const Scheme forward = gpt2().forward;
  const Stack stack = parse_stack("offload(optimizer)");
  const BuiltStep plain = build_step(forward, {}, {});
  int64_t states = 0;
  for (const Value in : plain.scheme.inputs) states += plain.scheme[in].role == Role::kState;
  EXPECT_EQ(build_step(forward, stack, {}).applied[0].counts.at("host"), states);
}

TEST(Accumulate, OnlyDataComesInParts) {
  const Scheme step = gpt2().step(), after = apply_functor("accumulate(4)", step);
  EXPECT_EQ(names_where(after, [](const Object& o) { return o.attributes.parts == 4; }),
            (Names{"tokens", "targets"}));
  EXPECT_EQ(names_where(after, [](const Object& o) { return o.attributes.parts != 1; }),
            (Names{"tokens", "targets"}));
  EXPECT_EQ(bare(after), step);
  EXPECT_EQ(bare(apply_functor("accumulate(1)", step)), step);
}

TEST(Tf32, ActivationsAndGradients) {
  const Known model = llama();
  const Scheme step = model.step(), after = apply_functor("tf32", step);
  EXPECT_EQ(bare(after), step);
  for (const Object& o : after.objects) {
    if (o.role == Role::kGradient) {
      EXPECT_EQ(o.attributes.precision, "tf32") << to_string(o.source);
    }
    if (o.role == Role::kParameter || o.role == Role::kState || o.role == Role::kMetric) {
      EXPECT_EQ(o.attributes.precision, "") << to_string(o.source);
    }
  }
}

Names frozen(const Scheme& scheme) {
  return names_where(scheme, [](const Object& o) { return o.frozen; });
}

// Parameters of block l = 0, 1, ... with these names inside.
Names in_blocks(int count, const std::vector<std::string>& parts) {
  Names names;
  for (int l = 0; l < count; ++l) {
    for (const std::string& part : parts) names.insert("block[" + std::to_string(l) + "]." + part);
  }
  return names;
}

Names joined(Names a, const Names& b) {
  a.insert(b.begin(), b.end());
  return a;
}

TEST(Freeze, ByUseAndByKindInLlama) {
  const Scheme forward = llama().forward;
  const auto after = [&](const std::string& on) {
    return frozen(apply_functor("freeze(" + on + ")", forward));
  };
  const Names in = in_blocks(4, {"q.weight", "k.weight", "v.weight"}),
              out = in_blocks(4, {"o.weight"}),
              feed = in_blocks(4, {"gate.weight", "up.weight", "down.weight"}),
              norms = joined(in_blocks(4, {"rms_norm#1.weight", "rms_norm#2.weight"}),
                             {"rms_norm#1.weight"});
  EXPECT_EQ(after("embedding"), (Names{"wte.weight"}));
  EXPECT_EQ(after("readout"), (Names{"readout.weight"}));
  EXPECT_EQ(after("attention_in"), in);
  EXPECT_EQ(after("attention_out"), out);
  EXPECT_EQ(after("attention"), joined(in, out));
  EXPECT_EQ(after("feed_forward"), feed);
  EXPECT_EQ(after("norm"), norms);
  EXPECT_EQ(after("vector"), norms);
  EXPECT_EQ(after("table"), (Names{"wte.weight"}));
  EXPECT_EQ(after("matrix"), joined(joined(joined(in, out), feed), {"readout.weight"}));
  EXPECT_EQ(after("[attention_out, embedding]"), joined(out, {"wte.weight"}));
  // Nothing but the mark: types, uses and the rest of the objects stay.
  Scheme thawed = apply_functor("freeze(matrix)", forward);
  for (Object& o : thawed.objects) o.frozen = false;
  EXPECT_EQ(thawed, forward);
}

TEST(Freeze, BiasesGoWithTheirMatrices) {
  EXPECT_EQ(frozen(apply_functor("freeze(attention)", gpt2().forward)),
            in_blocks(4, {"qkv.weight", "qkv.bias", "proj.weight", "proj.bias"}));
}

TEST(Freeze, ATiedParameterIsNotFrozenThroughOneOfItsUses) {
  const Scheme forward = gpt2().forward;
  for (const char* item : {"freeze(embedding)", "freeze(readout)", "freeze([readout, norm])"}) {
    const std::string said = error_text([&] { apply_functor(item, forward); });
    EXPECT_TRUE(has(said, "freeze: 'wte.weight' is tied")) << item << said;
    EXPECT_TRUE(has(said, "'wte'") && has(said, "as embedding")) << said;
    EXPECT_TRUE(has(said, "'readout'") && has(said, "as readout")) << said;
  }
  EXPECT_EQ(frozen(apply_functor("freeze([embedding, readout])", forward)),
            (Names{"wte.weight", "wpe.weight"}));
  // By what it is: it is used as a matrix, so it is one.
  EXPECT_EQ(frozen(apply_functor("freeze(table)", forward)), (Names{"wpe.weight"}));
  EXPECT_TRUE(frozen(apply_functor("freeze(matrix)", forward)).count("wte.weight"));
}

TEST(Freeze, WhatIsFrozenHasNoGradientAndNoState) {
  const Scheme step = training_step(llama().forward, {.stack = "freeze([attention, embedding])"});
  const Names parameters = frozen(step);
  EXPECT_EQ(parameters.size(), 17u);
  for (const Object& o : step.objects) {
    if (o.role == Role::kGradient || o.role == Role::kState) {
      EXPECT_FALSE(parameters.count(o.source.path)) << to_string(o.source);
    }
  }
}

TEST(Freeze, NoMatchIsAnErrorThatListsWhatThereIs) {
  const std::string said =
      error_text([&] { build_step(llama().forward, parse_stack("freeze(router)"), {}); });
  for (const char* part : {"freeze(on=router): matches nothing", "4 blocks", "39 parameter",
                           "12 uses as attention_in", "9 uses as norm"}) {
    EXPECT_TRUE(has(said, part)) << part << " in: " << said;
  }
}

// Conditions, lets and attributes of a user's own.
TEST(TextRules, ConditionsAndLets) {
  const Known model = gpt2();
  const auto kept_by = [&](const std::string& lines, const std::string& args = "()") {
    const Functor f = parse_functor(
        "functor f(k = 2, how = some: some | none, list = [1]: list):\n"
        "  law exact\n" +
            lines,
        "f.functor");
    const Arguments given("f", f.params, parse_term("f" + args, "stack"));
    Application::Said said;
    const StepOptions options;
    Application application{.functor = "f", .args = given, .options = options, .said = &said};
    Scheme scheme = model.step();
    for (const FunctorRule& rule : f.rules) scheme = rule.apply(scheme, application);
    std::set<int> kept;
    for (size_t l = 0; l < model.states.size(); ++l) {
      if (residences(scheme).kept.count(model.states[l])) kept.insert(static_cast<int>(l));
    }
    return kept;
  };
  const std::string rule = "  object x_l in chain -> kept when ";
  EXPECT_EQ(kept_by(rule + "l < k\n"), (std::set<int>{0, 1}));
  EXPECT_EQ(kept_by(rule + "l <= k\n"), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(kept_by(rule + "l > k\n"), (std::set<int>{3, 4}));
  EXPECT_EQ(kept_by(rule + "l >= L - 1\n"), (std::set<int>{3, 4}));
  EXPECT_EQ(kept_by(rule + "l != k\n", "(3)"), (std::set<int>{0, 1, 2, 4}));
  EXPECT_EQ(kept_by(rule + "l mod 2 == 1 and l > 1 or l == 0\n"), (std::set<int>{0, 3}));
  EXPECT_EQ(kept_by(rule + "how == none\n"), (std::set<int>{}));
  EXPECT_EQ(kept_by(rule + "how == none\n", "(how=none)"), (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept_by(rule + "l in list\n", "(list=[0, 4])"), (std::set<int>{0, 4}));
  EXPECT_EQ(kept_by(rule + "l in list\n", "(list=2)"), (std::set<int>{2}));
  EXPECT_EQ(kept_by(rule + "l == largest(list)\n", "(list=[1, 3])"), (std::set<int>{3}));
  EXPECT_EQ(kept_by("  let m = max(k, 3) when how == some, else 0\n" + rule + "l == m\n"),
            (std::set<int>{3}));
  EXPECT_EQ(kept_by("  object state not inside block -> kept\n"), (std::set<int>{0, 1, 2, 3, 4}));
}

// A step after the rules of `lines`, or what they complain of.
Scheme after_rules(const Scheme& step, const std::string& lines, int64_t* matches = nullptr) {
  const Functor f = parse_functor("functor f:\n  law approximating\n" + lines, "f.functor");
  const Arguments none("f", {}, {});
  Application::Said said;
  const StepOptions options;
  Application application{.functor = "f", .args = none, .options = options, .said = &said};
  Scheme scheme = step;
  for (const FunctorRule& rule : f.rules) scheme = rule.apply(scheme, application);
  if (matches) *matches = application.matches;
  return scheme;
}

// A selector sweeps over what cannot be as it says, and leaves it alone: log-sums, whole numbers.
TEST(TextRules, ASweepLeavesAloneWhatCannotBe) {
  const Scheme step = gpt2().step();
  int64_t matches = 0;
  const Scheme told = after_rules(step, "  object inside attention -> bf16\n", &matches);
  const Names narrow =
      names_where(told, [](const Object& o) { return !o.attributes.precision.empty(); });
  EXPECT_EQ(narrow, (Names{"block[0].attention#1", "block[1].attention#1", "block[2].attention#1",
                           "block[3].attention#1"}));
  EXPECT_EQ(matches, 4);
  EXPECT_TRUE(step.find({"block[0].attention#1.lse"})) << print(step);

  // What a step measures and is told stays float32: rates, norms, sums of squares.
  const Scheme outside =
      after_rules(step, "  object outside chain, not parameter, not optimizer_state -> f16\n");
  for (const Object& o : outside.objects) {
    EXPECT_TRUE(o.attributes.precision.empty() ||
                (o.role != Role::kMetric && o.role != Role::kControl))
        << to_string(o.source);
  }
  EXPECT_EQ(object_at(outside, "wte").attributes.precision, "f16");

  const Scheme moved = after_rules(step, "  object of attention -> host\n");
  for (const Object& o : moved.objects) {
    EXPECT_TRUE(o.attributes.tier == Tier::kDevice || o.role != Role::kGradient)
        << to_string(o.source);
  }
  EXPECT_EQ(object_at(moved, "block[0].qkv.weight").attributes.tier, Tier::kHost);
}

// A rule that finds nothing else would say nothing, and is refused.
TEST(TextRules, ARuleThatSpeaksOnlyOfWhatCannotBeIsRefused) {
  const Scheme step = gpt2().step();
  const auto complaint = [&](const std::string& line) {
    return error_text([&] { after_rules(step, "  object " + line + "\n"); });
  };
  EXPECT_EQ(complaint("input -> bf16"),
            "f.functor:3:3: only floating numbers have a precision, and 'tokens' holds whole "
            "numbers");
  EXPECT_EQ(complaint("inside attention not activation -> f16"),
            "f.functor:3:3: only what its op can store in another type has a precision, and "
            "'block[0].attention#1.lse' has the type that its op fixes");
  EXPECT_EQ(complaint("activation -> frozen"),
            "f.functor:3:3: only a parameter can be frozen, and 'wte' is activation");
  EXPECT_EQ(complaint("trained, matrix -> bf16"),
            "f.functor:3:3: a trained parameter is held in float32 or as bf16 stochastic, and "
            "'wte.weight' is trained");
  EXPECT_EQ(complaint("activation -> dyn8"),
            "f.functor:3:3: only the optimizer's state has codes of 8 bits, and 'wte' is "
            "activation");
  EXPECT_TRUE(has(complaint("gradient of parameter -> host"), "can live in another tier, and '"));
  EXPECT_TRUE(has(complaint("parameter -> in 2 parts"), "only a step's input comes in parts"));
}

// An updated parameter has no reader, and is what it was before: a matrix, or that of a norm.
TEST(TextRules, WhatComesOutOfAStepIsMeantWithWhatWentIn) {
  const Scheme step = gpt2().step();
  for (const char* rule :
       {"trained, matrix -> bf16 stochastic", "trained, vector -> host",
        "parameter inside chain, not of norm -> host", "optimizer_state of matrix -> host"}) {
    const Scheme told = after_rules(step, "  object " + std::string(rule) + "\n");
    EXPECT_FALSE(told.carries.empty());
    int meant = 0;
    for (const Carry& c : told.carries) {
      const Attributes &in = told[c.in].attributes, &out = told[c.out].attributes;
      EXPECT_EQ(in.precision, out.precision) << rule << ": " << to_string(told[c.in].source);
      EXPECT_EQ(in.tier, out.tier) << rule << ": " << to_string(told[c.in].source);
      meant += in.tier == Tier::kHost || !in.precision.empty();
    }
    EXPECT_GT(meant, 0) << rule;
    EXPECT_LT(meant, static_cast<int>(told.carries.size())) << rule;
  }
  const Scheme moved = after_rules(step, "  object parameter inside chain, not of norm -> host\n");
  const Names there = names_where(moved, [](const Object& o) {
    return o.role == Role::kParameter && o.attributes.tier == Tier::kHost;
  });
  EXPECT_TRUE(there.count("block[0].qkv.weight"));
  for (const std::string& name : there) EXPECT_EQ(name.find("norm"), name.npos) << name;
}

TEST(TextRules, StatesAndGradientsByTheUseOfTheirParameter) {
  const Scheme step = gpt2().step();
  const Scheme moved = after_rules(step, "  object optimizer_state of embedding -> host\n");
  EXPECT_EQ(names_where(moved, [](const Object& o) { return o.attributes.tier == Tier::kHost; }),
            (Names{"wpe.weight:adamw.m", "wpe.weight:adamw.v", "wte.weight:adamw.m",
                   "wte.weight:adamw.v"}));
  const Scheme narrow =
      after_rules(step, "  object gradient of parameter of feed_forward -> bf16\n");
  const Names names =
      names_where(narrow, [](const Object& o) { return o.attributes.precision == "bf16"; });
  EXPECT_TRUE(names.count("block[0].up.weight:grad"));
  EXPECT_TRUE(names.count("block[3].down.weight:grad"));
  EXPECT_EQ(names.size(), 16u);  // two maps a block, with their biases
}

TEST(TextRules, PartsAreAWholeNumber) {
  const Scheme step = gpt2().step();
  for (const char* parts : {"0.5", "1 - 1", "1/3", "1e9"}) {
    const Functor f = parse_functor(
        "functor f:\n  law exact\n  object input -> in " + std::string(parts) + " parts\n",
        "f.functor");
    const Arguments none("f", {}, {});
    Application::Said said;
    const StepOptions options;
    Application application{.functor = "f", .args = none, .options = options, .said = &said};
    EXPECT_TRUE(has(error_text([&] { f.rules[0].apply(step, application); }), "f.functor:3:19: "))
        << parts;
  }
}

}  // namespace
}  // namespace adjoint

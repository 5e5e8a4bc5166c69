// Rules about states that follow parameters: whose they are, what is carried, and that a step that
// is not taken leaves them.
#include <gtest/gtest.h>

#include <set>

#include "base/error_text.h"
#include "functors/becomes.h"
#include "functors/pipeline.h"
#include "functors/with_rules.h"

namespace adjoint {
namespace {

Scheme gpt2() { return small_gpt2(3, 3); }
SourceNames states(const Scheme& s) {
  SourceNames names;
  for (const Carry& c : s.carries) {
    EXPECT_EQ(s[c.in].source, s[c.out].source);
    EXPECT_EQ(s[c.in].type, s[c.out].type);
    if (s[c.in].source.facet.starts_with("f.")) names.insert(to_string(s[c.in].source));
  }
  return names;
}
std::string refusal(const std::string& lines, const std::string& rest = "") {
  return error_text([&] { build_step(gpt2(), with_rules(lines, rest), {}); });
}

TEST(TextStates, FollowTheParametersThatTheySelect) {
  const auto followed = [](const std::string& selector, const std::string& rest = "") {
    return states(said_step(
        gpt2(), with_rules("  state mean of " + selector + " -> mean + parameter", rest), {}));
  };
  EXPECT_EQ(followed("table outside chain"),
            (SourceNames{"optimizer:f.steps", "wpe.weight:f.mean"}))
      << "the other table is the readout, too";
  EXPECT_EQ(followed("trained inside chain of attention_out, not vector", "freeze(norm)"),
            (SourceNames{"optimizer:f.steps", "block[0].proj.weight:f.mean",
                         "block[1].proj.weight:f.mean", "block[2].proj.weight:f.mean"}));
  // What is not trained does not change.
  EXPECT_EQ(followed("parameter of norm, inside chain", "freeze(norm, first=2)"),
            (SourceNames{"optimizer:f.steps", "block[2].layer_norm#1.weight:f.mean",
                         "block[2].layer_norm#1.bias:f.mean", "block[2].layer_norm#2.weight:f.mean",
                         "block[2].layer_norm#2.bias:f.mean"}));
  EXPECT_TRUE(has(refusal("  state mean of frozen -> mean"), "f: matches nothing"));
  // Twice in a stack, for different parameters: one count of steps.
  Stack twice = with_rules("  state mean of table -> parameter");
  const Stack other = with_rules("  state mean of vector, outside chain -> mean");
  twice.functors.insert(twice.functors.begin(), other.functors[0]);
  EXPECT_EQ(states(said_step(gpt2(), twice, {})),
            (SourceNames{"optimizer:f.steps", "wpe.weight:f.mean", "layer_norm#1.weight:f.mean",
                         "layer_norm#1.bias:f.mean"}));
  // A rule that names the block finds only what is inside one.
  const Scheme by_block = said_step(
      gpt2(), with_rules("  state mean of matrix, of attention_out -> parameter*(l + 2)"), {});
  EXPECT_EQ(states(by_block).size(), 4u);
  for (const Morphism& m : by_block.morphisms) {
    if (m.source.facet != "f.mean.scale#1") continue;
    EXPECT_EQ(std::get<double>(m.attrs.at("by")), m.source.path[6] - '0' + 2) << m.source.path;
  }
}

TEST(TextStates, AreStatesOfTheOptimizerForTheRestOfTheStack) {
  const Stack stack =
      with_rules("  state mean of table -> 0.5*mean + parameter", "offload(optimizer)");
  const Scheme s = said_step(gpt2(), stack, {});
  for (const Value in : s.inputs) {
    if (s[in].source.facet != "f.mean") continue;
    EXPECT_EQ(s[in].role, Role::kState);
    EXPECT_EQ(s[in].attributes.tier, Tier::kHost);
  }
}

constexpr const char* kOneMap = R"(scheme model:
  input %0 x: f32[b=3, h=2]
  input %1 t: i32[b=3]
  parameter %2 out.weight: f32[c=2, h=2]
  %3 out: f32[b=3, c=2] = linear(%0, %2) @out
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=3] = cross_entropy(%3, %1) {ignore=2} @loss
  return %4, %5
)";

// By name, all that a step carries to the next one.
std::map<std::string, Numbers> ran(Scheme step, const std::map<std::string, Numbers>& said) {
  step.outputs.clear();
  for (const Carry& c : step.carries) step.outputs.push_back(c.out);
  std::vector<Numbers> x;
  for (const Value in : step.inputs) {
    const auto found = said.find(to_string(step[in].source));
    x.push_back(found != said.end() ? found->second : Numbers(step[in].type.num_elements(), 0.0));
  }
  const auto made = run_scheme(step, x, false);
  std::map<std::string, Numbers> all;
  for (size_t k = 0; k < made.size(); ++k) {
    all[to_string(step[step.outputs[k]].source)] = made[k];
  }
  return all;
}

TEST(TextStates, AStepThatIsNotTakenLeavesThem) {
  const Stack stack = with_rules("  state mean of trained -> 3*mean + (steps + 2)*parameter",
                                 "-fuse | -gang_updates");
  const Scheme step = build_step(parse_scheme(kOneMap), stack, {.optimizer = "sgd"}).scheme;
  std::map<std::string, Numbers> said = {{"x", {1, 2, 3, 4, 5, 6}},
                                         {"t", {0, 1, 2}},
                                         {"scale", {1}},
                                         {"rate", {0.5}},
                                         {"optimizer:f.steps", {4}},
                                         {"out.weight", {1, 2, 3, 4}},
                                         {"out.weight:f.mean", {1, 1, 2, 2}}};
  const auto made = ran(step, said);
  EXPECT_EQ(made.at("optimizer:f.steps"), Numbers{5});
  EXPECT_NE(made.at("out.weight"), said["out.weight"]);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(made.at("out.weight:f.mean")[i],
                3 * said["out.weight:f.mean"][i] + 6 * made.at("out.weight")[i], 1e-5);
  }
  said["t"] = {2, 2, 2};  // nothing counts
  const auto left = ran(step, said);
  EXPECT_EQ(left.at("optimizer:f.steps"), Numbers{4});
  EXPECT_EQ(left.at("out.weight"), said["out.weight"]);
  EXPECT_EQ(left.at("out.weight:f.mean"), said["out.weight:f.mean"]);
}

const std::string kMasked =
    "  morphism y = linear(x, W) where parameter(W)\n"
    "    -> y(x, W*mask(W))\n"
    "  state mask of parameter = 1 every 3\n"
    "    -> where(parameter > width(parameter), 1, 0)";

// What the forward pass reads belongs to the model: a frozen parameter, that the step carries.
TEST(TextStates, TheForwardPassReadsWhatARuleNames) {
  const Scheme forward = parse_scheme(kOneMap);
  const Stack stack = with_rules(kMasked);
  const Scheme step = said_step(forward, stack, {});
  const auto is_mask = [](const Scheme& s) {
    const Value mask = s.find({"out.weight", "f.mask"}).value();
    EXPECT_EQ(s[mask].role, Role::kParameter);
    EXPECT_TRUE(s[mask].frozen);
    EXPECT_EQ(s[mask].init, Init{.kind = Init::Kind::kOnes});
    EXPECT_EQ(std::count(s.inputs.begin(), s.inputs.end(), mask), 1);
  };
  is_mask(step);
  EXPECT_EQ(states(step),
            (SourceNames{"optimizer:f.steps", "optimizer:f.mask.wait.3", "out.weight:f.mask"}));
  const Scheme evaluated = evaluation_scheme(forward, stack, {});
  is_mask(evaluated);
  EXPECT_TRUE(evaluated.carries.empty());
  // A frozen matrix has one, too, and a matrix that two maps read has one.
  EXPECT_EQ(states(said_step(gpt2(), with_rules(kMasked, "freeze(attention)"), {})).size(),
            2 + 3 * 4 + 1u);
  // No other functor says that it is trained, or held otherwise.
  const auto refused = [&](const std::string& rule) {
    Stack both = with_rules(kMasked);
    both.functors.push_back({parse_functor("functor g:\n  law exact\n" + rule, "g.functor"),
                             Arguments("g", {}, Term{}), false});
    return error_text([&] { build_step(gpt2(), both, {}); });
  };
  EXPECT_TRUE(has(refused("  object parameter -> trained\n"), "and f says frozen")) << "trained";
  EXPECT_TRUE(has(refused("  object frozen -> bf16\n"), "and f says f32")) << "bf16";
}

// Every third step, counted from the first; in between, and where a step is not taken, it stays.
TEST(TextStates, ChangeEverySoManySteps) {
  const Stack stack = with_rules(kMasked, "-fuse | -gang_updates");
  const Scheme step =
      build_step(parse_scheme(kOneMap), stack, {.optimizer = "sgd", .weight_decay = 0}).scheme;
  std::map<std::string, Numbers> said = {{"x", {1, 2, 3, 4, 5, 6}},
                                         {"t", {0, 1, 2}},
                                         {"scale", {1}},
                                         {"rate", {0.5}},
                                         {"out.weight", {1, 4, 3, 1}},
                                         {"out.weight:f.mask", {1, 0, 1, 1}}};
  const auto due = ran(step, said);
  EXPECT_EQ(due.at("out.weight")[1], 4) << "what is masked has no gradient";
  EXPECT_NE(due.at("out.weight")[0], 1);
  Numbers wanted;
  for (const double w : due.at("out.weight")) wanted.push_back(w > 2);
  EXPECT_EQ(due.at("out.weight:f.mask"), wanted);
  EXPECT_NE(wanted, said["out.weight:f.mask"]);
  EXPECT_EQ(due.at("optimizer:f.mask.wait.3"), Numbers{2});
  for (const double wait : {2, 1}) {
    said["optimizer:f.mask.wait.3"] = {wait};
    const auto made = ran(step, said);
    EXPECT_EQ(made.at("out.weight:f.mask"), said["out.weight:f.mask"]) << wait;
    EXPECT_EQ(made.at("optimizer:f.mask.wait.3"), Numbers{wait - 1});
  }
  said["optimizer:f.mask.wait.3"] = {0};
  said["t"] = {2, 2, 2};  // nothing counts
  const auto left = ran(step, said);
  EXPECT_EQ(left.at("out.weight:f.mask"), said["out.weight:f.mask"]);
  EXPECT_EQ(left.at("optimizer:f.mask.wait.3"), Numbers{0});
}

TEST(TextStates, MistakesNameTheirPlace) {
  struct Mistake {
    std::string lines, place, said;
  };
  const std::vector<Mistake> mistakes = {
      {"  state mean trained -> mean", "3:14", "wanted 'of' and which parameters it follows"},
      {"  state of trained -> mean", "3:12", "wanted 'of'"},
      {"  state mean of traned -> mean", "3:17", "did you mean 'trained'?"},
      {"  state steps of trained -> 1", "3:9", "'steps' is already the name of something"},
      {"  state a of trained -> a\n  state a of trained -> a", "4:9", "'a' is already the name"},
      {"  state a of trained\n    steps = 2\n    -> a", "4:5", "'steps' is already the name"},
      {"  state a of trained\n    b = 2*a\n    -> a", "4:5", "nothing below uses 'b'"},
      {"  state a of trained", "4:1", "wanted '->'"},
      {"  state a of trained ->", "3:24", "found the end of the line"},
      {"  state a of trained -> a + parametr", "3:29", "did you mean 'parameter'?"},
      {"  state a of trained -> sum(a)", "3:3", "the state 'a' of 'wte.weight' must stay f32["},
      {"  state a of trained -> 2*steps", "3:3", "must stay f32["},
      {"  state a of trained -> a + param(1)", "3:3",
       "a state is made of itself, the parameter and numbers; this rule makes 'param#1', "
       "parameter"},
      {"  state a of trained -> dropout(a)", "3:3", "this rule makes 'random', control"},
      {"  state a of trained = b -> a", "3:24", "there is no number or word 'b'"},
      {"  state a of trained every -> a", "3:28", "a name, a number"},
      {"  state a of trained every 1.5 -> a", "3:28", "a whole number of steps"},
      {"  state a of trained -> width(a)*a", "3:25", "width wants 'parameter', found 'a'"},
      {"  morphism y = linear(x, W) -> y(x, W*a(x))\n  state a of trained -> a", "3:39",
       "the state 'a' follows parameters, and"},
      {"  morphism y = linear(x, W) -> y(x, W*a(2))\n  state a of trained -> a", "3:39",
       "wanted an operand of this rule, found 'a(2)'"},
  };
  for (const Mistake& m : mistakes) {
    const std::string found = refusal(m.lines);
    EXPECT_TRUE(found.starts_with("f.functor:" + m.place + ": ")) << m.lines << "\n" << found;
    EXPECT_TRUE(has(found, m.said)) << m.lines << "\n" << found;
    EXPECT_EQ(found.find('\n'), std::string::npos) << found;
  }
  EXPECT_EQ(error_text([&] { build_step(gpt2(), parse_stack("ema | ema(decay=0.5)"), {}); }),
            "ema: it is in the stack twice; name it once");
  EXPECT_TRUE(has(error_text([&] { build_step(gpt2(), parse_stack("ema(decay=1)"), {}); }),
                  "ema: decay must be less than 1, found 1"));
}

}  // namespace
}  // namespace adjoint

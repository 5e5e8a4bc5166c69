// Wrong functors, planted, must be caught and named, functor and object; right ones must pass.
#include "laws/verify.h"

#include <gtest/gtest.h>

#include "functors/functor_text.h"
#include "laws/planted.h"

namespace adjoint {
namespace {

Report verified(std::vector<Functor> functors, std::vector<uint64_t> seeds = {1}) {
  return verify_stack({small_gpt2(std::move(seeds))}, with_planted(std::move(functors)));
}

void expect_broken(const Report& report, const std::string& functor, const std::string& where) {
  EXPECT_FALSE(report.ok);
  EXPECT_FALSE(report.refused);
  EXPECT_EQ(report.reason.find("law of " + functor + " broken: first at " + where + " (op "), 0u)
      << report.reason;
  EXPECT_EQ(report.smallest.substr(0, functor.size()), functor);
}

TEST(Verify, DefaultsKeepTheirLaws) {
  const Report report = verified({});
  EXPECT_TRUE(report.ok) << report.reason;
  EXPECT_EQ(report.law, Law::kExact);
  ASSERT_FALSE(report.functors.empty());
  for (const Verdict& v : report.functors) EXPECT_TRUE(v.by_default) << v.functor;
  EXPECT_GT(report.plain_error, 1e-9);
  EXPECT_LT(report.plain_error, 1e-5);
  EXPECT_EQ(report.max_error, report.plain_error);
}

TEST(Verify, AScaledActivationIsNotExact) {
  for (const Law law : {Law::kExact, Law::kReassociating}) {
    const Report report =
        verified({planted("calm", Law::kExact, FunctorPhase::kExact, nothing()),
                  planted("louder", law, FunctorPhase::kExact, scaled("block[0].down", 1.001)),
                  planted("quiet", Law::kExact, FunctorPhase::kStepRules, nothing())});
    expect_broken(report, "louder", "block[0].down");
    EXPECT_NE(report.reason.find("relative error 0.001"), std::string::npos) << report.reason;
    for (const Verdict& v : report.functors) EXPECT_EQ(v.ok, v.functor != "louder") << v.functor;
  }
}

// Some rules act on the scheme that is evaluated alone, and no training step shows what they do.
TEST(Verify, AnEvaluationIsJudgedToo) {
  const auto only_evaluated = [](Apply apply) -> Apply {
    return [=](const Scheme& before, Application& application) {
      if (!application.training) return apply(before, application);
      ++application.matches;
      return before;
    };
  };
  Subject evaluated = small_gpt2({1});
  evaluated.evaluation = true;
  evaluated.steps = 1;
  const std::vector<Subject> subjects = {small_gpt2({1}), evaluated};
  for (const Law law : {Law::kExact, Law::kReassociating, Law::kApproximating}) {
    const Apply wrong = only_evaluated(scaled("block[0].down", 1.01));
    const Report report = verify_stack(
        subjects, with_planted({planted("louder", law, FunctorPhase::kBitChanging, wrong)}));
    if (law == Law::kApproximating) {  // it is right about its own function, which is told
      EXPECT_TRUE(report.ok) << report.reason;
      EXPECT_GT(report.functors[0].moved->loss, 1e-5);
      continue;
    }
    expect_broken(report, "louder", "block[0].down");
    EXPECT_TRUE(report.reason.ends_with("when it is evaluated")) << report.reason;
  }
  for (const char* stack : {"", "bf16 | accumulate(4) | checkpoint(every=1)", "lora(2) | fp16"}) {
    const Report report = verify_stack(subjects, parse_stack(stack));
    EXPECT_TRUE(report.ok) << stack << ": " << report.reason;
  }
}

TEST(Verify, AModelIsEvaluatedAtOneOfItsSizes) {
  const Checkup checkup = checkup_for(find_model("char"), parse_stack(""), {});
  int evaluated = 0;
  for (const Subject& s : checkup.subjects) evaluated += s.evaluation;
  EXPECT_EQ(evaluated, 1);
}

// Of the two uses of a tied table only one counts.
// Samples that pad the last part must count for nothing, which only a part that is not full shows.
TEST(Verify, TheLastPartIsNotFull) {
  const auto samples = [](const ModelText& text, int n) {
    const Stack stack = parse_stack("accumulate(" + std::to_string(n) + ")");
    const Scheme forward = checkup_for(text, stack, {}).subjects.front().forward;
    return forward[forward.find({"tokens"}).value()].type.dim(0);
  };
  for (int n = 2; n < 10; ++n) {
    const int64_t all = samples(find_model("char"), n), part = (all + n - 1) / n;
    EXPECT_NE(all % part, 0) << all << " samples in " << n << " parts";
  }
  // Where targets are computed, nobody knows which of them do not count.
  const ModelText ahead{.file = "ahead.scheme", .text = R"(axes hidden=8 context=6 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  loss = cross_entropy(linear(embed(tokens, vocab), vocab), shift(targets, -1, fill=-1))
)"};
  EXPECT_EQ(samples(ahead, 4), 8);
}

TEST(Verify, ADroppedPartOfAGradient) {
  const auto drop = [](const Scheme& before, Application& application) {
    Scheme after = before;
    for (Morphism& m : after.morphisms) {
      if (m.op != "add" || after[m.outputs[0]].source != Source{"wte.weight", "grad"}) continue;
      m.op = "scale";
      m.inputs.pop_back();
      m.attrs = {{"by", 1.0}, {"plus", 0.0}};
      ++application.matches;
    }
    return after;
  };
  const Report report = verified({planted("tie", Law::kExact, FunctorPhase::kStepRules, drop)});
  expect_broken(report, "tie", "wte.weight:grad");
}

TEST(Verify, DropoutRecomputedWithAnotherKey) {
  const auto rekey = [](const Scheme& before, Application& application) {
    Scheme after = before;
    for (Morphism& m : after.morphisms) {
      if (m.phase != Phase::kBackward || m.op != "map") continue;
      auto& body = std::get<std::string>(m.attrs["body"]);
      const size_t at = body.find("block[1].dropout#1");
      if (at == std::string::npos) continue;
      body.replace(at, 18, "block[1].dropout#9");
      ++application.matches;
    }
    return after;
  };
  const Report report =
      verified({planted("recompute", Law::kExact, FunctorPhase::kStepRules, rekey),
                planted("calm", Law::kExact, FunctorPhase::kExact, nothing())});
  expect_broken(report, "recompute", "block[1].proj:grad");
}

// The same sums in another order keep the weaker law and break the stronger.
TEST(Verify, ReassociatingIsNotExact) {
  const Report weaker = verified(
      {planted("thirds", Law::kReassociating, FunctorPhase::kBitChanging, thirds("block[0].up"))},
      {1, 2, 3});
  EXPECT_TRUE(weaker.ok) << weaker.reason;
  EXPECT_EQ(weaker.law, Law::kReassociating);
  ASSERT_EQ(weaker.functors[0].functor, "thirds");
  EXPECT_EQ(weaker.functors[0].matches, 2);
  EXPECT_GT(weaker.functors[0].error, 0);

  const Report stronger =
      verified({planted("thirds", Law::kExact, FunctorPhase::kBitChanging, thirds("block[0].up"))});
  expect_broken(stronger, "thirds", "block[0].up");
}

// Rounding is another function: it is right under the law that says so, and only there.
TEST(Verify, RoundingIsNotReassociating) {
  const Report right = verify_stack({small_gpt2()}, parse_stack("bf16"));
  EXPECT_TRUE(right.ok) << right.reason;
  EXPECT_EQ(right.law, Law::kApproximating);
  EXPECT_LT(right.max_error, 0.02);

  Stack lying = parse_stack("bf16");
  lying.functors[0].functor.law = Law::kReassociating;
  const Report wrong = verify_stack({small_gpt2({1})}, lying);
  EXPECT_FALSE(wrong.ok);
  EXPECT_EQ(wrong.reason.find("law of bf16 broken: first at "), 0u) << wrong.reason;
}

TEST(Verify, WeightsGradientsMayBeRoundedToo) {
  for (const char* stack : {"bf16(gradients=bf16)", "bf16(gradients=bf16) | accumulate(2)",
                            "bf16(gradients=bf16) | checkpoint(every=1) | lora(rank=2)"}) {
    const Report report = verify_stack({small_gpt2()}, parse_stack(stack));
    EXPECT_TRUE(report.ok) << stack << ": " << report.reason;
    EXPECT_LT(report.max_error, 0.02) << stack;
  }
}

// Four bits a weight keep their law to the last digits, and cost what they cost.
TEST(Verify, AnApproximationTellsBothDistances) {
  const Report report =
      verify_stack({small_gpt2({1})},
                   parse_stack("freeze(feed_forward) | quantize(nf4, group=32) | accumulate(2)"));
  EXPECT_TRUE(report.ok) << report.reason;
  bool seen = false;
  for (const Verdict& v : report.functors) {
    EXPECT_EQ(v.moved.has_value(), v.law == Law::kApproximating) << v.functor;
    if (!v.functor.starts_with("quantize")) continue;
    seen = true;
    EXPECT_LT(v.error, 1e-4) << "from its own function";
    ASSERT_TRUE(v.moved->gradients);
    EXPECT_GT(*v.moved->gradients, 1e-2) << "a weight is off by some 10%";
    EXPECT_LT(*v.moved->gradients, 1);
    EXPECT_GT(v.moved->loss, 1e-6);
  }
  EXPECT_TRUE(seen);
  ASSERT_TRUE(report.moved && report.moved->gradients);
  EXPECT_GT(*report.moved->gradients, 1e-2);
}

// A user's own functor, as text.
TEST(Verify, AWrongFunctorAsText) {
  const char* text = R"(functor louder:
  law exact
  morphism y = linear(x, W) where parameter(W), inside chain
    -> 1.001 * y
)";
  const Report report = verified({parse_functor(text, "louder.functor")});
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.reason.find("law of louder broken: first at block[0]."), 0u) << report.reason;
}

// What a user may say of all that lies inside an attention reaches its log-sums too, which the
// gradient reads as float32.
TEST(Verify, WhatIsInsideAnAttentionMayBeNarrow) {
  const char* text = R"(functor narrow:
  law approximating
  object inside attention -> bf16
)";
  for (const Subject& subject :
       {small_gpt2({1}),
        small_subject(std::string(SOURCE_DIR) + "/tests/models/moe.scheme", {}, {1})}) {
    const Report report =
        verify_stack({subject}, with_planted({parse_functor(text, "narrow.functor")}));
    EXPECT_TRUE(report.ok) << report.reason;
    EXPECT_LT(report.max_error, 0.02);
  }
}

// What only together is wrong: each alone keeps its law, and the smallest broken stack has both.
TEST(Verify, TwoThatAreWrongTogether) {
  const auto marks = [](const Scheme& before, Application& application) {
    Scheme after = before;
    after.name += "!";
    ++application.matches;
    return after;
  };
  const auto if_marked = [](const Scheme& before, Application& application) {
    ++application.matches;
    return before.name.ends_with("!") ? scaled("block[1].down", 2)(before, application) : before;
  };
  // `marks` stands before `if_marked` in the stack, so it is applied first.
  const std::vector<Functor> both = {
      planted("if_marked", Law::kExact, FunctorPhase::kExact, if_marked),
      planted("calm", Law::kExact, FunctorPhase::kExact, nothing()),
      planted("marks", Law::kExact, FunctorPhase::kExact, marks)};
  EXPECT_TRUE(verified({both[0], both[1]}).ok);
  EXPECT_TRUE(verified({both[1], both[2]}).ok);
  const Report report = verified(both);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.smallest, "marks | if_marked");
  EXPECT_NE(report.reason.find("first at block[1].down (op scale)"), std::string::npos)
      << report.reason;
}

TEST(Verify, WhoThrowsIsNamed) {
  const auto refuses = [](const Scheme&, Application& a) -> Scheme { a.refuse("not today"); };
  Report report = verified({planted("moody", Law::kExact, FunctorPhase::kExact, refuses)});
  EXPECT_TRUE(report.refused);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.reason, "moody: not today");

  const auto throws = [](const Scheme&, Application&) -> Scheme {
    throw std::out_of_range("map::at");
  };
  report = verified({planted("calm", Law::kExact, FunctorPhase::kExact, nothing()),
                     planted("clumsy", Law::kExact, FunctorPhase::kExact, throws)});
  EXPECT_TRUE(report.refused);
  EXPECT_EQ(report.reason, "clumsy: map::at");

  // A call that its op refuses: the op complains, and the functor is named.
  report = verified({planted("misfit", Law::kExact, FunctorPhase::kMorphisms,
                             [](const Scheme& before, Application&) {
                               Scheme after = before;
                               Builder(after).emit("linear", {before.inputs[0], before.inputs[0]});
                               return after;
                             })});
  EXPECT_TRUE(report.refused);
  EXPECT_EQ(report.reason.find("misfit: linear: "), 0u) << report.reason;
}

TEST(Verify, MatchingNothingIsRefused) {
  const Report report =
      verified({planted("blind", Law::kExact, FunctorPhase::kExact, scaled("nowhere", 2))});
  EXPECT_TRUE(report.refused);
  EXPECT_EQ(report.reason.find("blind: matches nothing"), 0u) << report.reason;
}

}  // namespace
}  // namespace adjoint

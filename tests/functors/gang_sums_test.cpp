// What gang_sums and gang_casts join and what they must not, as text; what they leave of whole
// steps for a GPU, and that no more bytes live at once.
#include <gtest/gtest.h>

#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "plan/plan.h"

namespace adjoint {
namespace {

const StepOptions kOnGpu = {.target = Target::kCuda};

std::string summed(const std::string& text) { return applied("gang_sums", text, kOnGpu); }
std::string cast(const std::string& text) { return applied("gang_casts", text, kOnGpu); }

// Two gradients, the norm of both, and an update of each that asks it.
constexpr const char* kTwo = R"(scheme:
  parameter %0 w: f32[n=4, k=2]
  parameter %1 b: f32[n=4]
  input %2 x: f32[n=4, k=2]
  input %3 y: f32[n=4]
  control %4 rate: f32[]
  control %5 count: f32[]
  control %6 scale: f32[]
  %7 w:grad: f32[n=4, k=2] gradient = mul(%2, %0) @w:grad backward
  %8 w:grad.squares: f32[] metric = square_sum(%7) @w:grad.squares update
  %9 b:grad: f32[n=4] gradient = mul(%3, %1) @b:grad backward
  %10 b:grad.squares: f32[] metric = square_sum(%9) @b:grad.squares update
  %11 squares: f32[] metric = sum_all(%8, %10) @squares update
  %12 factor: f32[] metric, %13 factor.ok: f32[] metric, %14 factor.norm: f32[] metric = gradient_factor(%5, %6, %11) {clip=1.0} @factor update
  %15 w: f32[n=4, k=2] parameter = sgd(%0, %7, %4, %12, %13) {decay=0.0} @w update
  %16 b: f32[n=4] parameter = sgd(%1, %9, %4, %12, %13) {decay=0.0} @b update
  carry %0 -> %15
  carry %1 -> %16
  return %14
)";

// A part of it with another.
std::string with(const std::string& what, const std::string& instead) {
  return replaced(kTwo, what, instead);
}

TEST(GangSums, SumsThatAllUpdatesWaitForAreOne) {
  const std::string alone =
      "  %8 w:grad.squares: f32[] metric = square_sum(%7) @w:grad.squares update\n"
      "  %9 b:grad: f32[n=4] gradient = mul(%3, %1) @b:grad backward\n"
      "  %10 b:grad.squares: f32[] metric = square_sum(%9) @b:grad.squares update\n";
  const std::string one =
      "  %9 b:grad: f32[n=4] gradient = mul(%3, %1) @b:grad backward\n"
      "  %8 w:grad.squares: f32[] metric, %10 b:grad.squares: f32[] metric = gang(%7, %9) "
      "{calls=2, from=\"w:grad.squares b:grad.squares\", op=\"square_sum\", shared=0} "
      "@gradients:sums update\n";
  EXPECT_EQ(summed(kTwo), with(alone, one));
}

TEST(GangSums, IsDoneOnceAndForAGpuAlone) {
  const std::string once = summed(kTwo);
  EXPECT_EQ(summed(once), once);
  EXPECT_EQ(applied("gang_sums", kTwo), kTwo);
}

// Without clipping an update waits for its own gradient's sum only.
TEST(GangSums, WhoseUpdateDoesNotWaitForAllStaysAlone) {
  const std::string text = replaced(with("sgd(%0, %7, %4, %12, %13)", "sgd(%0, %7, %4, %5, %8)"),
                                    "sgd(%1, %9, %4, %12, %13)", "sgd(%1, %9, %4, %5, %10)");
  EXPECT_EQ(summed(text), text);
}

TEST(GangSums, AGradientThatDiesInItsSumIsNotKept) {
  const std::string text = with("sgd(%1, %9,", "sgd(%1, %3,");
  EXPECT_EQ(summed(text), text);
}

TEST(GangSums, WhoseSumIsNotWaitedForStaysAlone) {
  const std::string text = with("sum_all(%8, %10)", "sum_all(%8, %8)");
  EXPECT_EQ(summed(text), text);
}

// Until the piece is read, the whole gradient that was sent is there.
TEST(GangSums, APieceThatArrivesFromOtherRanksIsSummedAlone) {
  const std::string text =
      replaced(with("mul(%2, %0)", "reduce_scatter(%2) {mesh=\"data\", ranks=2}"),
               "input %2 x: f32[n=4, k=2]", "input %2 x: f32[n=8, k=2]");
  EXPECT_EQ(summed(text), text);
}

// What the ranks add up by itself travels while the backward goes on.
TEST(GangSums, ASumThatIsSentStaysAlone) {
  const std::string text =
      replaced(with("sum_all(%8, %10)", "sum_all(%17, %10)"), "  %11 squares",
               "  %17 w:grad.squares.sum: f32[] metric = all_reduce(%8) {mesh=\"data\", ranks=2} "
               "@w:grad.squares.sum update\n  %11 squares");
  EXPECT_EQ(summed(text), text);
}

// The second sum comes after a reader of the first, which cannot wait for it.
TEST(GangSums, WhatIsAskedForEarlierStaysAlone) {
  const std::string text = with("mul(%3, %1)", "mul(%3, %8)");
  EXPECT_EQ(summed(text), text);
}

// The old state is written over when its readers are done, and the gang would wait for the new one.
TEST(GangSums, SumsOfOldStateStayAlone) {
  const std::string text =
      replaced(with("square_sum(%7)", "square_sum(%0)"), "mul(%3, %1)", "mul(%3, %3)");
  EXPECT_EQ(summed(text), text);
}

TEST(GangSums, AnotherDtypeIsAnotherGang) {
  const std::string text = replaced(with("%3 y: f32[n=4]", "%3 y: bf16[n=4]"),
                                    "%9 b:grad: f32[n=4] gradient = mul(%3, %1)",
                                    "%9 b:grad: bf16[n=4] gradient = mul(%3, %1)");
  EXPECT_EQ(summed(text), text);
}

// Three parameters, two of which the backward reads as they were cast.
constexpr const char* kThree = R"(scheme:
  parameter %0 a: f32[n=4, k=2]
  parameter %1 b: f32[n=4, k=2]
  parameter %2 c: f32[n=4, k=2]
  input %3 x: bf16[n=4, k=2]
  %4 a:bf16: bf16[n=4, k=2] parameter = cast(%0) {dtype="bf16"} @a:bf16
  %5 u: bf16[n=4, k=2] = mul(%3, %4) @u
  %6 b:bf16: bf16[n=4, k=2] parameter = cast(%1) {dtype="bf16"} @b:bf16
  %7 v: bf16[n=4, k=2] = mul(%5, %6) @v
  %8 c:bf16: bf16[n=4, k=2] parameter = cast(%2) {dtype="bf16"} @c:bf16
  %9 w: bf16[n=4, k=2] = add(%7, %8) @w
  %10 v:grad: bf16[n=4, k=2] gradient = mul(%9, %6) @v:grad backward
  %11 u:grad: bf16[n=4, k=2] gradient = mul(%10, %4) @u:grad backward
  return %11
)";

TEST(GangCasts, CastsThatTheBackwardReadsAreOne) {
  const Scheme after = parse_scheme(cast(kThree));
  ASSERT_EQ(after.morphisms.size(), 7u);
  const Morphism& gang = after.morphisms[0];
  EXPECT_EQ(gang.op, "gang");
  EXPECT_EQ(gang.inputs, (std::vector<Value>{0, 1}));
  EXPECT_EQ(std::get<std::string>(gang.attrs.at("from")), "a:bf16 b:bf16");
  EXPECT_EQ(std::get<std::string>(gang.attrs.at("dtype")), "bf16");
  EXPECT_EQ(to_string(gang.source), "parameters:cast");
  EXPECT_EQ(after.morphisms[3].op, "cast") << "the backward does not read it";
}

TEST(GangCasts, AVectorJoinsWhoeverReadsIt) {
  std::string text = replaced(kThree, "parameter %2 c: f32[n=4, k=2]", "parameter %2 c: f32[k=2]");
  text = replaced(text, "%8 c:bf16: bf16[n=4, k=2]", "%8 c:bf16: bf16[k=2]");
  EXPECT_EQ(parse_scheme(cast(text)).morphisms[0].inputs, (std::vector<Value>{0, 1, 2}));
}

TEST(GangCasts, IsDoneOnceAndForAGpuAlone) {
  const std::string once = cast(kThree);
  EXPECT_EQ(cast(once), once);
  EXPECT_EQ(applied("gang_casts", kThree), kThree);
}

TEST(GangCasts, WhatIsNoParameterOfTheStepStaysAlone) {
  const std::string text = replaced(kThree, "parameter %1 b", "input %1 b");
  EXPECT_EQ(cast(text), text);
}

TEST(GangCasts, AnotherDtypeIsAnotherGang) {
  std::string text =
      replaced(kThree, "%6 b:bf16: bf16[n=4, k=2] parameter = cast(%1) {dtype=\"bf16\"}",
               "%6 b:bf16: f16[n=4, k=2] parameter = cast(%1) {dtype=\"f16\"}");
  EXPECT_EQ(cast(text), text);
}

// The same step by a CPU's kernels, which run the calls of a gang as they run them alone.
TEST(GangSums, GangsGiveTheBitsOfTheirCallsOnACpu) {
  for (const auto& [before, after] :
       {std::pair<std::string, std::string>{kTwo, summed(kTwo)}, {kThree, cast(kThree)}}) {
    const Scheme alone = parse_scheme(before), one = parse_scheme(after);
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    std::vector<Numbers> inputs;
    for (const Value in : alone.inputs) {
      inputs.emplace_back(alone[in].type.num_elements());
      for (double& x : inputs.back()) x = normal(random);
    }
    EXPECT_EQ(run_scheme(one, inputs, false), run_scheme(alone, inputs, false)) << after;
  }
}

Scheme small(const char* preset) {
  return elaborate_preset(
      preset,
      {{"batch", 3}, {"seq", 12}, {"layers", 3}, {"hidden", 24}, {"heads", 4}, {"vocab", 371}});
}

Scheme step_of(const Scheme& forward, const std::string& stack) {
  return training_step(forward, {.stack = stack, .target = Target::kCuda});
}

int64_t count(const Scheme& step, std::string_view op) {
  return std::count_if(step.morphisms.begin(), step.morphisms.end(),
                       [&](const Morphism& m) { return m.op == op; });
}
int64_t joined(const Scheme& step, std::string_view op) {
  int64_t calls = 0;
  for (const Morphism& m : step.morphisms) {
    if (m.op != "gang" || std::get<std::string>(m.attrs.at("op")) != op) continue;
    calls += std::get<int64_t>(m.attrs.at("calls"));
  }
  return calls;
}

TEST(GangSums, AllOfAStepAreOne) {
  for (const char* preset : {"gpt2", "llama-tiny"}) {
    const Scheme forward = small(preset);
    for (const char* stack : {"", "bf16", "fp16", "accumulate(3)", "bf16 | accumulate(2)",
                              "checkpoint(block)", "offload(optimizer)", "-gang_updates"}) {
      const Scheme step = step_of(forward, stack);
      const std::string off = std::string(stack) + (*stack ? " | " : "") + "-gang_sums";
      EXPECT_EQ(count(step, "square_sum"), 0) << preset << " " << stack;
      EXPECT_EQ(joined(step, "square_sum"), count(step_of(forward, off), "square_sum"))
          << preset << " " << stack;
    }
    const Scheme alone = training_step(forward, {.clip = 0, .target = Target::kCuda});
    EXPECT_EQ(joined(alone, "square_sum"), 0) << "without clipping: " << preset;
  }
}

// With recomputation a weight's copy dies in the forward, and only vectors are left to join.
TEST(GangCasts, AllOfAStepAreOneWhereTheyStay) {
  const Scheme forward = small("gpt2");
  for (const std::string stack : {"bf16", "fp16", "bf16 | accumulate(2)"}) {
    const Scheme stay = step_of(forward, stack + " | -recompute_cheap");
    EXPECT_EQ(joined(stay, "cast"), 3 * 8 + 1) << stack;
    EXPECT_EQ(joined(step_of(forward, stack + " | recompute_cheap(within=1)"), "cast"), 3 * 4)
        << stack;
  }
  EXPECT_EQ(joined(step_of(forward, ""), "cast"), 0);
}

// Sums of the parts: vectors in one launch, matrices by the products that make them; the bits stay.
TEST(GangAdds, VectorsOfAPartAreAddedInOneLaunch) {
  const Scheme forward = small("gpt2");
  for (const std::string stack : {"accumulate(2)", "bf16(gradients=bf16) | accumulate(2)"}) {
    const Scheme one = step_of(forward, stack), many = step_of(forward, stack + " | -gang_adds");
    int vectors = 0;
    for (const Morphism& m : many.morphisms) {
      vectors += m.op == "add" && many[m.outputs[0]].role == Role::kGradient &&
                 m.section == Section::kBody && many[m.outputs[0]].type.rank() == 1;
    }
    EXPECT_GT(vectors, 8) << stack;
    EXPECT_EQ(joined(one, "add"), vectors) << stack;
    std::vector<std::vector<Numbers>> results;
    for (const Scheme* step : {&one, &many}) {
      std::mt19937 random(7);
      std::vector<Numbers> inputs;
      for (const Value in : step->inputs) {
        const Type& type = (*step)[in].type;
        Numbers numbers(static_cast<size_t>(type.num_physical()));
        for (double& x : numbers) {
          x = is_float(type.dtype) ? 1e-3 * static_cast<double>(random() % 1000)
                                   : static_cast<double>(random() % 16);
        }
        inputs.push_back(std::move(numbers));
      }
      results.push_back(run_scheme(*step, inputs, false));
    }
    EXPECT_EQ(results[0], results[1]) << stack;
    EXPECT_TRUE(std::isfinite(results[0][2][0])) << "the gradient's norm";
  }
}

// Single numbers and vectors' copies take a few bytes each; weights' copies are a multiple of this.
TEST(GangSums, NoMoreBytesLiveAtOnce) {
  constexpr int64_t kNumbers = 8 << 10;
  for (const char* preset : {"gpt2", "llama-tiny"}) {
    const Scheme forward = small(preset);
    for (const std::string stack :
         {"accumulate(1)", "bf16", "bf16 | -recompute_cheap", "fp16 | -recompute_cheap",
          "accumulate(3)", "lora(2)", "checkpoint(block)", "bf16 | checkpoint(block)",
          "offload(optimizer)", "bf16 | offload(activations)"}) {
      const auto live = [&](const std::string& text) {
        return make_plan(step_of(forward, text), {.target = Target::kCuda})
            .arena_of(Tier::kDevice)
            .live_peak.count;
      };
      const int64_t plain = live(stack + " | -gang_sums | -gang_casts");
      EXPECT_LE(live(stack + " | -gang_casts"), plain + kNumbers) << preset << " " << stack;
      EXPECT_LE(live(stack), plain + kNumbers) << preset << " " << stack;
    }
  }
}

}  // namespace
}  // namespace adjoint

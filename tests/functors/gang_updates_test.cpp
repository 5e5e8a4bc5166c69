// What gang_updates joins and what it must not, as text; what it leaves of whole steps, and that no
// more bytes live at once. That no bit changes is in tests/train/exact_law_test.cpp.
#include <gtest/gtest.h>

#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "plan/plan.h"

namespace adjoint {
namespace {

void expect_left_alone(const std::string& text) { EXPECT_EQ(applied("gang_updates", text), text); }

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
  %8 b:grad: f32[n=4] gradient = mul(%3, %1) @b:grad backward
  %9 w:grad.squares: f32[] metric = square_sum(%7) @w:grad.squares update
  %10 b:grad.squares: f32[] metric = square_sum(%8) @b:grad.squares update
  %11 squares: f32[] metric = sum_all(%9, %10) @squares update
  %12 factor: f32[] metric, %13 factor.ok: f32[] metric, %14 factor.norm: f32[] metric = gradient_factor(%5, %6, %11) {clip=1.0} @factor update
  %15 w: f32[n=4, k=2] parameter = sgd(%0, %7, %4, %12, %13) {decay=0.0} @w update
  %16 b: f32[n=4] parameter = sgd(%1, %8, %4, %12, %13) {decay=0.0} @b update
  carry %0 -> %15
  carry %1 -> %16
  return %14
)";

// A line of it with another.
std::string with(const std::string& what, const std::string& instead) {
  return replaced(kTwo, what, instead);
}

TEST(GangUpdates, UpdatesThatAskOneNormAreOne) {
  const std::string text = kTwo;
  const size_t updates = text.find("  %15 w:"), rest = text.find("  carry");
  EXPECT_EQ(applied("gang_updates", text),
            text.substr(0, updates) +
                "  %15 w: f32[n=4, k=2] parameter, %16 b: f32[n=4] parameter = gang(%0, %7, %1, "
                "%8, %4, %12, %13) {calls=2, decay=0.0, from=\"w b\", op=\"sgd\", shared=3} "
                "@optimizer:sgd update\n" +
                text.substr(rest));
}

TEST(GangUpdates, IsDoneOnce) {
  const std::string once = applied("gang_updates", kTwo);
  EXPECT_EQ(applied("gang_updates", once), once);
}

TEST(GangUpdates, OtherConstantsAreAnotherGang) {
  expect_left_alone(
      with("sgd(%1, %8, %4, %12, %13) {decay=0.0}", "sgd(%1, %8, %4, %12, %13) {decay=0.5}"));
}

// Without clipping each update asks about its own gradient, which can die there and then.
TEST(GangUpdates, WhoAsksAboutItsOwnGradientStaysAlone) {
  std::string text =
      with("  %15 w: f32[n=4, k=2] parameter = sgd(%0, %7, %4, %12, %13)",
           "  %15 own: f32[] metric, %16 own.ok: f32[] metric, %17 own.norm: f32[] metric = "
           "gradient_factor(%5, %6, %9) @own update\n"
           "  %18 w: f32[n=4, k=2] parameter = sgd(%0, %7, %4, %12, %16)");
  text = replaced(text, "  %16 b: f32[n=4] parameter", "  %19 b: f32[n=4] parameter");
  text = replaced(text, "carry %0 -> %15", "carry %0 -> %18");
  text = replaced(text, "carry %1 -> %16", "carry %1 -> %19");
  expect_left_alone(text);
}

// A gradient that is made after the numbers that all share need not be there with the others.
TEST(GangUpdates, WhatIsMadeLaterIsNotWaitedFor) {
  std::string text = with("sum_all(%9, %10)", "sum_all(%9, %9)");
  expect_left_alone(text);
}

// Who else reads the old parameter would have to run before both updates, not before its own.
TEST(GangUpdates, WhoReadsTheOldStateLaterKeepsItsUpdateAlone) {
  std::string text = with("  %15 w: f32[n=4, k=2] parameter = sgd",
                          "  %15 seen: f32[n=4] metric = mul(%1, %13) @seen update\n"
                          "  %16 w: f32[n=4, k=2] parameter = sgd");
  text = replaced(text, "  %16 b: f32[n=4] parameter", "  %17 b: f32[n=4] parameter");
  text = replaced(text, "return %14", "return %14, %15");
  text = replaced(text, "carry %0 -> %15", "carry %0 -> %16");
  text = replaced(text, "carry %1 -> %16", "carry %1 -> %17");
  expect_left_alone(text);
}

// What goes home to another tier after its update has come from there for it.
TEST(GangUpdates, WhatSomebodyReadsBeforeTheNextStepStaysAlone) {
  const std::string text = with("  carry %0",
                                "  %17 home: f32[n=4] = gelu(%16) @home update\n"
                                "  carry %0");
  expect_left_alone(replaced(text, "return %14", "return %14, %17"));
}

TEST(GangUpdates, ResultsThatAreNoStateStayAlone) {
  expect_left_alone(replaced(with("  return %14", "  return %14, %16"), "  carry %1 -> %16\n", ""));
}

std::map<std::string, Scheme> models() {
  const auto made = [](const char* preset, double dropout) {
    return elaborate_preset(preset, {{"batch", 3},
                                     {"seq", 12},
                                     {"layers", 2},
                                     {"hidden", 24},
                                     {"heads", 4},
                                     {"vocab", 37},
                                     {"dropout", dropout}});
  };
  return {{"char", made("char", 0.1)}, {"llama-tiny", made("llama-tiny", 0.0)}};
}

struct Counted {
  int updates = 0, gangs = 0, joined = 0;
};
Counted counted(const Scheme& step) {
  Counted c;
  for (const Morphism& m : step.morphisms) {
    if (op_named(m.op).effect != Effect::kWritesState) continue;
    const bool gang = m.op == "gang";
    ++(gang ? c.gangs : c.updates);
    if (gang) c.joined += static_cast<int>(std::get<int64_t>(m.attrs.at("calls")));
  }
  return c;
}

int trained(const Scheme& forward) {
  int count = 0;
  for (const Value in : forward.inputs) {
    count += forward[in].role == Role::kParameter && !forward[in].frozen;
  }
  return count;
}

TEST(GangUpdates, AllOfAStepAreTwo) {
  for (const auto& [name, forward] : models()) {
    for (const char* stack : {"", "bf16", "accumulate(3)", "checkpoint(block)"}) {
      const Counted c = counted(training_step(forward, {.stack = stack}));
      EXPECT_EQ(c.updates, 0) << name << " " << stack;
      EXPECT_EQ(c.gangs, 2) << "with decay and without: " << name << " " << stack;
      EXPECT_EQ(c.joined, trained(forward)) << name << " " << stack;
    }
    const Counted alone = counted(training_step(forward, {.clip = 0}));
    EXPECT_EQ(alone.gangs, 0) << "without clipping: " << name;
    const Counted away = counted(training_step(forward, {.stack = "offload(optimizer)"}));
    EXPECT_EQ(away.gangs, 0) << "moments in another tier: " << name;
    EXPECT_EQ(away.updates, trained(forward)) << name;
  }
}

TEST(GangUpdates, NoMoreBytesLiveAtOnce) {
  for (const auto& [name, forward] : models()) {
    for (const std::string stack : {"accumulate(1)", "bf16", "fp16", "accumulate(3)", "lora(2)",
                                    "checkpoint(block)", "offload(optimizer)"}) {
      const auto live = [&](const std::string& text) {
        return make_plan(training_step(forward, {.stack = text}), {}).arena_of(Tier::kDevice);
      };
      EXPECT_LE(live(stack).live_peak.count, live(stack + " | -gang_updates").live_peak.count)
          << name << " " << stack;
    }
  }
}

}  // namespace
}  // namespace adjoint

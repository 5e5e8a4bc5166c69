// A measured step: the highest byte that was really written, poison that finds a wrong plan, and
// the process's own memory as a witness.
#include "run/profile.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/error_text.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "run/machine.h"

namespace adjoint {
namespace {

Scheme parsed(const char* text) {
  Scheme s = parse_scheme(text);
  verify(s);
  return s;
}

Plan plan_of(const Scheme& s) { return make_plan(s, {.threads = num_threads()}); }

Scheme small_step(const std::string& stack = "") {
  const Scheme forward = elaborate_preset(
      "char", {{"batch", 3}, {"seq", 8}, {"layers", 2}, {"hidden", 32}, {"dropout", 0.1}});
  return build_step(forward, parse_stack(stack), {}).scheme;
}

TEST(MeasureStep, FindsTheLastByteWhateverIsWrittenThere) {
  // Floats whose last byte is 0, and each of the two fillings.
  for (const uint32_t bits : {0u, 0xff000000u, 0x7e000000u}) {
    Scheme s = parsed("scheme:\n  parameter %0 w: f32[n=40] init=ones\n  return %0\n");
    s[0].init = Init{.kind = Init::Kind::kConstant, .scale = std::bit_cast<float>(bits)};
    EXPECT_EQ(measure_step(s, plan_of(s)).touched.count, 160) << bits;
  }
}

TEST(MeasureStep, DoesNotBelieveThePlan) {
  const Scheme s = small_step();
  Plan plan = plan_of(s);
  const Bytes before = plan.arena;
  plan.arena += Bytes{4096};  // that nobody uses
  EXPECT_EQ(measure_step(s, plan).touched, before);
}

TEST(MeasureStep, MeasuresBothTiers) {
  const Scheme s = small_step("offload(optimizer)");
  const Plan plan = plan_of(s);
  ASSERT_GT(plan.host.size.count, 0);
  const Measured m = measure_step(s, plan);
  EXPECT_EQ(m.touched, plan.arena);
  EXPECT_EQ(m.host_touched, plan.host.size);
}

// Kernels that go by an object's own sizes never touch the room behind its last row.
TEST(MeasureStep, RoomIsItsObjects) {
  for (const char* stack : {"pad_rows(least=4)", "offload(activations) | pad_rows(least=4)"}) {
    const Scheme s = small_step(stack);
    const Plan plan = plan_of(s);
    const Measured m = measure_step(s, plan);
    EXPECT_EQ(m.touched, plan.arena) << stack;
    EXPECT_EQ(m.host_touched, plan.host.size) << stack;
  }
}

TEST(MeasureStep, TellsOfStepsCallsAndLosses) {
  const Scheme s = small_step("accumulate(3)");
  const Plan plan = plan_of(s);
  std::vector<int64_t> told;
  int64_t all = 0;
  const Measured m = measure_step(
      s, plan, {.steps = 4, .told = [&](int64_t done, int64_t of, const std::string& what) {
                  if (what == "calls ready") return;  // before the first step
                  told.push_back(done);
                  all = of;
                }});
  EXPECT_EQ(m.seconds.size(), 4u);
  ASSERT_EQ(m.losses.size(), 6u) << "two more to warm up";
  EXPECT_NE(m.losses[1], m.losses[0]);
  ASSERT_EQ(m.call_seconds.size(), plan.calls.size());
  // Parts of a body are as often in the step as they run; what is between calls is little.
  double sum = 0;
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    EXPECT_GE(m.call_seconds[at], 0);
    sum += times_in_step(s, plan, static_cast<int>(at)) * m.call_seconds[at];
  }
  EXPECT_GT(sum, 0);
  EXPECT_EQ(times_in_step(s, plan, plan.body_begin), 3);
  EXPECT_EQ(times_in_step(s, plan, plan.body_end), 1);
  EXPECT_EQ(static_cast<int64_t>(told.size()), all);
  EXPECT_EQ(told.back(), all);
}

// ---- a wrong plan ----

// The storage of an activation that is read long after it is made.
int long_lived(const Plan& plan) {
  int best = -1;
  for (size_t i = 0; i < plan.storages.size(); ++i) {
    const Storage& s = plan.storages[i];
    if (s.objects.empty() || s.tenants[0].category != Category::kActivations) continue;
    const auto life = [&](const Storage& x) { return x.last - x.first; };
    if (best < 0 || life(s) > life(plan.storages[best])) best = static_cast<int>(i);
  }
  return best;
}

TEST(MeasureStep, AStorageThatDiesTooEarlyIsFound) {
  const Scheme s = small_step();
  Plan plan = plan_of(s);
  Storage& victim = plan.storages[long_lived(plan)];
  ASSERT_GT(victim.last, victim.first + 1);
  victim.last = victim.first;
  const std::string text = error_text([&] { measure_step(s, plan); });
  EXPECT_TRUE(has(text, "the plan of this step is wrong")) << text;
  EXPECT_NO_THROW(measure_step(s, plan, {.poison = false})) << "without poison nobody would know";
}

TEST(MeasureStep, EveryStorageThatDiesTooEarlyIsFound) {
  const Scheme s = small_step("checkpoint(every=1)");
  const Plan good = plan_of(s);
  int tried = 0;
  for (size_t i = 0; i < good.storages.size(); ++i) {
    const Storage& storage = good.storages[i];
    if (storage.objects.empty() || storage.last <= storage.first) continue;
    if (storage.size.count <= 4) continue;  // a flag that is poisoned says yes, as it did
    if (storage.last >= static_cast<int>(good.calls.size())) continue;
    if (++tried % 6) continue;  // enough of them
    Plan bad = good;
    bad.storages[i].last = storage.last - 1;  // its last reader finds poison
    EXPECT_THROW(measure_step(s, bad, {.steps = 1}), Error)
        << to_string(s[storage.objects[0]].source);
  }
  EXPECT_GT(tried, 30);
}

TEST(MeasureStep, StoragesThatOverlapAreFound) {
  const Scheme s = small_step();
  Plan plan = plan_of(s);
  const int victim = long_lived(plan);
  const Storage& kept = plan.storages[victim];
  // Another one that lives and dies while it is there.
  int other = -1;
  for (size_t i = 0; i < plan.storages.size(); ++i) {
    const Storage& o = plan.storages[i];
    const bool inside = o.first > kept.first && o.last < kept.last && !o.objects.empty();
    if (inside && o.size <= kept.size && static_cast<int>(i) != victim) other = static_cast<int>(i);
  }
  ASSERT_GE(other, 0);
  plan.storages[other].offset = kept.offset;
  EXPECT_THROW(measure_step(s, plan), Error);
}

TEST(MeasureStep, ALossThatIsNotFiniteTellsNothing) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=8]
  %1 big: f32[n=8] = scale(%0) {by=1e38} @big
  %2 y: f32[] = square_sum(%1) @y
  return %2
)");
  const std::string text = error_text([&] { measure_step(s, plan_of(s)); });
  EXPECT_TRUE(has(text, "the loss of step 1 on random tokens is inf")) << text;
}

// ---- the machine ----

TEST(MeasureStep, WhatDoesNotFitIsRefusedBeforeAnythingIsMade) {
  const Scheme s = small_step();
  Plan plan = plan_of(s);
  plan.arena = {int64_t{1} << 50};
  try {
    measure_step(s, plan);
    FAIL() << "a petabyte fits";
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "needs 1.00 PiB")) << e.what();
  }
}

TEST(Witness, AgreesWithArenasOf256MiB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  Scheme forward = elaborate_preset(
      "char", {{"batch", 1}, {"seq", 8}, {"hidden", 512}, {"layers", 1}, {"vocab", 28000}});
  // Drawing twenty million numbers would take longer than the steps.
  for (Object& object : forward.objects) {
    if (object.init) object.init = Init{.kind = Init::Kind::kConstant, .scale = 0.01};
  }
  for (const char* stack : {"", "offload(optimizer)"}) {
    const Scheme s = build_step(forward, parse_stack(stack), {}).scheme;
    const Plan plan = plan_of(s);
    const auto arenas = static_cast<double>((plan.arena + plan.host.size).count);
    ASSERT_GT(arenas, 256.0 * (1 << 20));
    const Measured m = measure_step(s, plan, {.steps = 1, .poison = false});
    EXPECT_NEAR(static_cast<double>(m.witness.count), arenas, 0.03 * arenas) << stack;
    EXPECT_GT(m.library.count, 1 << 20);
  }
}

TEST(Machine, HasAPeak) {
  const MachinePeak peak = measure_machine();
  EXPECT_GT(peak.flops, 1e8);
  EXPECT_GT(peak.bytes_per_second, 1e8);
  EXPECT_EQ(peak.threads, num_threads());
}

}  // namespace
}  // namespace adjoint

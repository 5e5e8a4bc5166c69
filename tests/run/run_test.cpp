// A run follows its plan: the same bits from the same state, initial values that depend on seed and
// path alone, and poison that makes a plan's mistakes visible.
#include "run/run.h"

#include <gtest/gtest.h>

#include <cstring>

#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

constexpr const char* kModel = R"(scheme model:
  input %0 tokens: i32[b=4, s=6]
  input %1 targets: i32[b=4, s=6]
  parameter %2 table: f32[v=13, h=8] init=normal(0.5)
  parameter %3 up.weight: f32[f=16, h=8] init=normal(0.5)
  parameter %4 up.bias: f32[f=16] init=zeros
  control %5 random: i64[counter=3]
  %6 x: f32[b=4, s=6, h=8] = embed(%0, %2) @x
  %7 up: f32[b=4, s=6, f=16] = linear(%6, %3, %4) @up
  %8 d: f32[b=4, s=6, f=16] = dropout(%7, %5) {key="d", rate=0.25} @d
  %9 down: f32[b=4, s=6, h=8] = slice(%8) {size=8, start=4} @down
  %10 logits: f32[b=4, s=6, v=13] = linear(%9, %2) @logits
  %11 loss: f32[] metric, %12 loss.count: f32[] metric, %13 loss.lse: f32[b=4, s=6] = cross_entropy(%10, %1) {ignore=-1} @loss
  return %11, %12
)";

Scheme parsed(const char* text) {
  Scheme s = parse_scheme(text);
  verify(s);
  return s;
}

Run run_of(const Scheme& s, RunOptions options = {.poison = true}) {
  return Run(s, make_plan(s, {.threads = num_threads()}), options);
}

void fill_data(Run& run) {
  const Scheme& s = run.scheme();
  if (const auto counter = s.find({"random"})) run.set_values(*counter, {1, 2, 0});
  for (const Value in : s.inputs) {
    if (s[in].role != Role::kInput) continue;
    Numbers ids(s[in].type.num_elements());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * 5 % 13);
    run.set_values(in, ids);
  }
}

std::vector<std::byte> state_of(const Run& run) {
  return {run.arena(), run.arena() + run.plan().state_end.count};
}

std::vector<Numbers> outputs_of(const Run& run) {
  std::vector<Numbers> all;
  for (const Value out : run.scheme().outputs) all.push_back(run.values(out));
  return all;
}

TEST(RunStep, TheSameStateAndDataGiveTheSameBits) {
  const Scheme step = training_step(parsed(kModel), {});
  auto run = run_of(step);
  initialize(run, 3);
  run.set_number(*step.find({"rate"}), 0.05);
  fill_data(run);
  run.step();  // so that the moments are something
  const auto before = state_of(run);
  fill_data(run);
  run.step();
  const auto after = state_of(run);
  const auto outputs = outputs_of(run);
  EXPECT_NE(after, before) << "a step changes something";

  std::memcpy(run.arena(), before.data(), before.size());
  fill_data(run);
  run.step();
  EXPECT_EQ(state_of(run), after);
  EXPECT_EQ(outputs_of(run), outputs);

  auto another = run_of(step, {.poison = false});
  std::memcpy(another.arena(), before.data(), before.size());
  fill_data(another);
  another.step();
  EXPECT_EQ(state_of(another), after) << "another run, without poison";
}

TEST(RunStep, LearnsWhatItIsShown) {
  const Scheme step = training_step(parsed(kModel), {});
  auto run = run_of(step);
  initialize(run, 3);
  run.set_number(*step.find({"rate"}), 0.03);
  double first = 0;
  for (int i = 0; i < 60; ++i) {
    fill_data(run);
    run.step();
    if (i == 0) first = run.number(step.outputs[0]);
  }
  EXPECT_LT(run.number(step.outputs[0]), 0.5 * first);
}

TEST(RunStep, TellsOfEveryCallInOrder) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[]
  %1 a: f32[] = scale(%0) {by=2.0} @a
  %2 b: f32[] = scale(%1) {by=3.0} @b
  %3 c: f32[] = add(%1, %2) @c
  return %1, %2, %3
)");
  auto run = run_of(s);
  run.set_number(0, 1);
  std::vector<int> calls;
  Numbers made;
  run.after_call = [&](int at) {
    calls.push_back(at);
    made.push_back(run.number(s.morphisms[run.plan().calls[at].morphism].outputs[0]));
  };
  run.step();
  EXPECT_EQ(calls, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(made, (Numbers{2, 6, 8})) << "after the call, not before";
}

TEST(RunValues, AreInLogicalOrderWhateverTheStrides) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[b=2, n=4~7]
  %1 part: f32[b=2, n=2] = slice(%0) {size=2, start=1} @part
  return %1
)");
  auto run = run_of(s);
  const Numbers x = {0, 1, 2, 3, 10, 11, 12, 13};
  run.set_values(0, x);
  run.step();
  EXPECT_EQ(run.values(0), x);
  EXPECT_EQ(run.values(1), (Numbers{1, 2, 11, 12}));
  EXPECT_EQ(run.data(1), static_cast<float*>(run.data(0)) + 1);
  EXPECT_EQ(run.number(0), 0);
  run.set_number(0, 5);
  EXPECT_EQ(run.values(0)[0], 5);
}

// ---- poison ----

// Something runs between making %1 and reading it.
Scheme chain() {
  return parsed(R"(scheme:
  input %0 x: f32[n=40]
  %1 a: f32[n=40] = exp(%0) @a
  %2 b: f32[] = square_sum(%0) @b
  %3 c: f32[n=40] = add(%1, %2) @c
  return %3
)");
}

TEST(RunPoison, MakesAUseAfterFreeVisible) {
  const Scheme s = chain();
  const Plan good = make_plan(s, {.threads = num_threads()});
  Plan bad = good;
  int maker = -1;
  for (size_t at = 0; at < bad.calls.size(); ++at) {
    if (bad.calls[at].morphism == 0) maker = static_cast<int>(at);
  }
  Storage& storage = bad.storages[bad.places[1].storage];
  ASSERT_GT(storage.last, maker);
  storage.last = maker;  // freed as soon as it is made, and read after that

  const Numbers x(40, 0.5);
  const auto result = [&](const Plan& plan, bool poison) {
    adjoint::Run run(s, plan, {.poison = poison});
    run.set_values(0, x);
    run.step();
    return run.values(3);
  };
  const auto has_nan = [](const Numbers& numbers) {
    return std::any_of(numbers.begin(), numbers.end(), [](double v) { return std::isnan(v); });
  };
  EXPECT_FALSE(has_nan(result(good, true)));
  EXPECT_TRUE(has_nan(result(bad, true)));
  EXPECT_FALSE(has_nan(result(bad, false))) << "without poison nobody would have known";
}

TEST(RunPoison, FillsWhatDiesAndNothingElse) {
  const Scheme s = chain();
  auto run = run_of(s);
  run.set_values(0, Numbers(40, 0.5));
  const Plan& plan = run.plan();
  run.after_call = [&](int at) {
    for (const Storage& storage : plan.storages) {
      const auto* bytes = run.arena() + storage.offset.count;
      const bool poisoned = std::all_of(bytes, bytes + storage.size.count,
                                        [](std::byte b) { return b == std::byte{0xff}; });
      if (storage.last == at) {
        EXPECT_TRUE(poisoned) << "call " << at;
      }
      if (storage.first <= at && at < storage.last) {
        EXPECT_FALSE(poisoned) << "call " << at;
      }
    }
  };
  run.step();
}

// ---- a step in time ----

Scheme loop() {
  return parsed(R"(scheme parts=3:
  input %0 x: f32[n=40]
  %1 begin: f32[n=40] = scale(%0) {by=10.0} @begin prologue
  %2 a: f32[n=40] = exp(%1) @a
  %3 b: f32[n=40] = gelu(%2) @b
  %4 sum: f32[n=40] = add(%1, %0) @sum
  %5 y: f32[n=40] = scale(%4) {by=2.0} @y epilogue
  loop %1 -> %4
  return %5
)");
}

TEST(RunInTime, ThePrologueOnceTheBodyPerPartTheEpilogueOnce) {
  auto run = run_of(loop());
  for (const double x : {1.0, 2.0}) {  // the same again
    run.set_values(0, Numbers(40, x));
    std::vector<int> morphisms;
    run.after_call = [&](int at) { morphisms.push_back(run.plan().calls[at].morphism); };
    run.step();
    EXPECT_EQ(run.values(5), Numbers(40, 2 * (10 * x + 3 * x)));
    EXPECT_EQ(morphisms.size(), 1u + 3 * 3 + 1);
    EXPECT_EQ(morphisms.front(), 0);
    EXPECT_EQ(std::count(morphisms.begin(), morphisms.end(), 3), 3);
    EXPECT_EQ(morphisms.back(), 4);
  }
}

TEST(RunInTime, PoisonSparesWhatTheNextIterationReads) {
  const Scheme s = loop();
  auto run = run_of(s);
  run.set_values(0, Numbers(40, 0.5));
  const Plan& plan = run.plan();
  int calls = 0, deaths = 0;
  run.after_call = [&](int at) {
    ++calls;
    const int iteration = (calls - 1 - plan.body_begin) / (plan.body_end - plan.body_begin);
    for (size_t i = 0; i < plan.storages.size(); ++i) {
      const Storage& storage = plan.storages[i];
      if (storage.last != at) continue;
      const auto* bytes = run.arena() + storage.offset.count;
      const bool poisoned = std::all_of(bytes, bytes + storage.size.count,
                                        [](std::byte b) { return b == std::byte{0xff}; });
      const bool is_input = static_cast<int>(i) == plan.places[0].storage;
      EXPECT_EQ(poisoned, !is_input || iteration >= s.parts - 1) << "call " << calls;
      deaths += poisoned;
    }
  };
  run.step();
  EXPECT_GE(deaths, s.parts) << "what is made in an iteration dies in it, every time";
}

// ---- tiers ----

TEST(RunTiers, StateOnTheHostBeginsAndIsReadLikeAnyOther) {
  const Scheme s = parsed(R"(scheme:
  parameter %0 w: f32[n=30] host init=normal(0.02)
  parameter %1 v: f32[n=30] init=ones
  %2 here: f32[n=30] = move(%0) {tier="device"} @here
  return %2
)");
  auto run = run_of(s);
  run.fill_arena(std::byte{0xff});
  initialize(run, 7);
  const auto* base = run.arena(Tier::kHost);
  EXPECT_EQ(run.data(0), base + run.plan().offset_of(0).count);
  EXPECT_NE(run.arena(Tier::kHost), run.arena());
  run.step();
  EXPECT_EQ(run.values(2), run.values(0));
  EXPECT_FALSE(std::isnan(run.values(0)[0]));
  EXPECT_EQ(run.values(1), Numbers(30, 1));
  run.set_number(0, 5);
  EXPECT_EQ(run.number(0), 5);
  run.fill_arena(std::byte{0xa5});
  run.arena(Tier::kHost)[7] = std::byte{0};
  EXPECT_EQ(run.touched(std::byte{0xa5}, Tier::kHost).count, 8);
  EXPECT_EQ(run.touched(std::byte{0xa5}).count, 0);
}

// ---- touched ----

TEST(RunTouched, IsTheEndOfTheHighestByteThatDiffers) {
  const Scheme s = chain();
  auto run = run_of(s, {.poison = false});
  run.fill_arena(std::byte{0xa5});
  EXPECT_EQ(run.touched(std::byte{0xa5}).count, 0);
  run.arena()[70] = std::byte{0};
  EXPECT_EQ(run.touched(std::byte{0xa5}).count, 71);
  run.arena()[run.plan().arena.count - 1] = std::byte{0};
  EXPECT_EQ(run.touched(std::byte{0xa5}), run.plan().arena);
}

TEST(RunTouched, AStepTouchesItsWholePlan) {
  const Scheme step = training_step(parsed(kModel), {});
  auto run = run_of(step, {.poison = false});
  run.fill_arena(std::byte{0xa5});
  initialize(run, 1);
  run.set_number(*step.find({"rate"}), 0.05);
  fill_data(run);
  run.step();
  const Bytes touched = run.touched(std::byte{0xa5});
  EXPECT_LE(touched, run.plan().arena);
  EXPECT_GT(touched, run.plan().state_end);
}

// ---- initial values ----

// The initial values of one parameter.
Numbers initial(const std::string& declaration, uint64_t seed) {
  const Scheme s = parse_scheme("scheme:\n  parameter %0 " + declaration + "\n  return %0\n");
  auto run = run_of(s);
  run.fill_arena(std::byte{0xff});
  initialize(run, seed);
  return run.values(0);
}

TEST(Initialize, DependsOnSeedAndPathAlone) {
  const Numbers one = initial("block[1].w: f32[o=30, i=20] init=normal(0.02)", 7);
  EXPECT_EQ(one, initial("block[1].w: f32[o=30, i=20] init=normal(0.02)", 7));
  EXPECT_NE(one, initial("block[2].w: f32[o=30, i=20] init=normal(0.02)", 7));
  EXPECT_NE(one, initial("block[1].w: f32[o=30, i=20] init=normal(0.02)", 8));
  EXPECT_EQ(one, initial("block[1].w: f32[rows=600] init=normal(0.02)", 7))
      << "element k is element k";
  const int threads = num_threads();
  set_num_threads(3);
  EXPECT_EQ(one, initial("block[1].w: f32[o=30, i=20] init=normal(0.02)", 7));
  set_num_threads(threads);
}

TEST(Initialize, OtherParametersBesideItDoNotMatter) {
  const Scheme s = parsed(R"(scheme:
  parameter %0 first: f32[n=50] init=normal(1)
  parameter %1 w: f32[n=50] init=normal(1)
  return %0
)");
  auto run = run_of(s);
  initialize(run, 7);
  EXPECT_EQ(run.values(1), initial("w: f32[n=50] init=normal(1)", 7));
  EXPECT_NE(run.values(1), run.values(0));
}

TEST(Initialize, PaddingChangesNoLogicalValue) {
  EXPECT_EQ(initial("w: f32[o=30, i=20~32] init=normal(0.02)", 7),
            initial("w: f32[o=30, i=20] init=normal(0.02)", 7));
  EXPECT_EQ(initial("w: f32[i=20~32] init=uniform(3)", 7),
            initial("w: f32[i=20] init=uniform(3)", 7));
}

TEST(Initialize, ADtypeRoundsTheSameValues) {
  const Numbers wide = initial("w: f32[n=500] init=normal(0.02)", 7);
  const Numbers narrow = initial("w: bf16[n=500] init=normal(0.02)", 7);
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(narrow[i], round_element(wide[i], Dtype::kBF16));
  }
}

struct Moments {
  double mean = 0, deviation = 0, kurtosis = 0;
};
Moments moments(const Numbers& x) {
  Moments m;
  double fourth = 0;
  for (const double v : x) m.mean += v / static_cast<double>(x.size());
  for (const double v : x) {
    const double square = (v - m.mean) * (v - m.mean);
    m.deviation += square / static_cast<double>(x.size());
    fourth += square * square / static_cast<double>(x.size());
  }
  m.kurtosis = fourth / (m.deviation * m.deviation);
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// Of n independent values the mean strays by 1/sqrt(n), the deviation by 1/sqrt(2n) and the
// kurtosis by sqrt(24/n) of a normal's; five times that is as good as never.
TEST(Initialize, NormalHasItsMeanAndDeviation) {
  const double n = 100000, sigma = 0.02;
  const Numbers x = initial("w: f32[o=1000, i=100] init=normal(0.02)", 5);
  const Moments m = moments(x);
  EXPECT_NEAR(m.mean, 0, 5 * sigma / std::sqrt(n));
  EXPECT_NEAR(m.deviation, sigma, 5 * sigma / std::sqrt(2 * n));
  EXPECT_NEAR(m.kurtosis, 3, 5 * std::sqrt(24 / n));
  // Neighbours, which Box and Muller's transform makes in pairs, do not know of each other.
  double together = 0;
  for (size_t i = 0; i + 1 < x.size(); ++i) together += x[i] * x[i + 1] / (n * sigma * sigma);
  EXPECT_NEAR(together, 0, 5 / std::sqrt(n));
}

TEST(Initialize, UniformHasItsRange) {
  const double n = 100000, half = 3;
  const Numbers x = initial("w: f32[o=1000, i=100] init=uniform(3)", 5);
  const Moments m = moments(x);
  EXPECT_NEAR(m.mean, 0, 5 * half / std::sqrt(3 * n));
  EXPECT_NEAR(m.deviation, half / std::sqrt(3), 0.01 * half);
  EXPECT_NEAR(m.kurtosis, 1.8, 0.05);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  EXPECT_GE(*low, -half);
  EXPECT_LE(*high, half);
  EXPECT_LT(*low, -0.999 * half);
  EXPECT_GT(*high, 0.999 * half);
}

TEST(Initialize, ZerosOnesAndWhatHasNone) {
  EXPECT_EQ(initial("w: f32[n=7] init=zeros", 7), Numbers(7, 0));
  EXPECT_EQ(initial("w: f32[n=7] init=ones", 7), Numbers(7, 1));
  EXPECT_EQ(initial("w: f32[] init=ones", 7), Numbers{1});
  for (const double v : initial("w: f32[n=7]", 7)) EXPECT_TRUE(std::isnan(v)) << "left alone";
}

// ---- what a run insists on ----

TEST(RunArena, AGuestMustFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Scheme small = parsed("scheme:\n  input %0 x: f32[n=4]\n  return %0\n");
  const Scheme large = parsed("scheme:\n  input %0 x: f32[n=4000]\n  return %0\n");
  auto host = run_of(small);
  EXPECT_DEATH(
      adjoint::Run(large, make_plan(large, {.threads = num_threads()}), host, RunOptions{}),
      "fits the host");
}

TEST(RunArena, WorkspacesAreForAsManyThreadsAsRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Scheme s = chain();
  const int threads = num_threads();
  set_num_threads(3);
  EXPECT_DEATH(adjoint::Run(s, make_plan(s, {.threads = 2})), "planned for every thread");
  set_num_threads(threads);
}

}  // namespace
}  // namespace adjoint

// Lanes of whole steps, held to a checker that looks at every pair of calls and every run of bytes,
// and to runs: in whatever order the lanes allow, a step gives the same bits.
#include "plan/lanes.h"

#include <gtest/gtest.h>

#include <random>

#include "cost/cost.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "models/small_models.h"
#include "plan/timing.h"
#include "run/random_steps.h"

namespace adjoint {
namespace {

const char* const kStacks[] = {"offload(optimizer)",
                               "offload(activations)",
                               "offload(parameters)",
                               "bf16 | offload(activations) | offload(optimizer)",
                               "offload(parameters) | checkpoint(every=1)",
                               "accumulate(2) | offload(activations) | offload(parameters)"};

Scheme step_of(const char* preset, const std::string& stack, Target target) {
  const Scheme forward = elaborate_preset(
      preset,
      {{"batch", 4}, {"seq", 8}, {"layers", 2}, {"hidden", 16}, {"heads", 2}, {"vocab", 61}});
  return training_step(forward, {.stack = stack, .target = target});
}

// ---- the checker ----

struct Bytewise {
  Tier tier;
  int64_t begin, end;
  bool writes;
};

// Every row by itself: between rows may lie what is others'.
void add_object(const Scheme& scheme, const Plan& plan, Value v, bool writes,
                std::vector<Bytewise>& all) {
  const Type& type = scheme[v].type;
  const int64_t size = size_of(type.dtype).count;
  const Strides& strides = plan.places[v].strides;
  const int64_t row = type.rank() && strides.back() == 1 ? type.dim(-1) : 1;
  for (int64_t k = 0; k < type.num_elements(); k += row) {
    int64_t rest = k, offset = 0;
    for (int a = type.rank(); a-- > 0;) {
      offset += rest % type.dim(a) * strides[a];
      rest /= type.dim(a);
    }
    const int64_t begin = plan.offset_of(v).count + offset * size;
    if (!all.empty() && all.back().end == begin && all.back().writes == writes &&
        all.back().tier == plan.tier_of(v)) {
      all.back().end += row * size;
    } else {
      all.push_back({plan.tier_of(v), begin, begin + row * size, writes});
    }
  }
}

std::vector<std::vector<Bytewise>> all_uses(const Scheme& scheme, const Plan& plan) {
  std::vector<std::vector<Bytewise>> uses(plan.calls.size());
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    const PlannedCall& call = plan.calls[at];
    if (call.is_view) continue;
    const Morphism& m = scheme.morphisms[call.morphism];
    for (const Value v : m.inputs) add_object(scheme, plan, v, false, uses[at]);
    for (const Value v : m.outputs) add_object(scheme, plan, v, true, uses[at]);
    if (call.workspace < 0) continue;
    const Storage& s = plan.storages[call.workspace];
    uses[at].push_back({s.tier, s.offset.count, s.offset.count + s.size.count, true});
  }
  return uses;
}

bool collide(const std::vector<Bytewise>& a, const std::vector<Bytewise>& b) {
  for (const Bytewise& x : a) {
    for (const Bytewise& y : b) {
      if ((x.writes || y.writes) && x.tier == y.tier && x.begin < y.end && y.begin < x.end) {
        return true;
      }
    }
  }
  return false;
}

// Per call: which calls are surely done when it begins.
std::vector<std::vector<bool>> done_before(const std::vector<LanedCall>& lanes) {
  std::vector<std::vector<bool>> done(lanes.size(), std::vector<bool>(lanes.size()));
  std::array<int, kNumLanes> last;
  last.fill(-1);
  for (size_t at = 0; at < lanes.size(); ++at) {
    std::vector<int> before = lanes[at].waits;
    int& own = last[static_cast<size_t>(lanes[at].lane)];
    if (own >= 0) before.push_back(own);
    for (const int b : before) {
      done[at][b] = true;
      for (size_t k = 0; k < lanes.size(); ++k) done[at][k] = done[at][k] || done[b][k];
    }
    own = static_cast<int>(at);
  }
  return done;
}

// Per call: the earlier ones of other lanes that use bytes of its own.
std::vector<std::vector<int>> collisions(const std::vector<LanedCall>& lanes,
                                         const std::vector<std::vector<Bytewise>>& uses) {
  std::vector<std::vector<int>> all(lanes.size());
  for (size_t later = 0; later < lanes.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      if (lanes[later].lane == lanes[earlier].lane) continue;
      if (collide(uses[earlier], uses[later])) all[later].push_back(static_cast<int>(earlier));
    }
  }
  return all;
}

// The first pair of calls that may meet in the same bytes, "" if there is none.
std::string race(const std::vector<LanedCall>& lanes,
                 const std::vector<std::vector<int>>& collisions) {
  const auto done = done_before(lanes);
  for (size_t later = 0; later < lanes.size(); ++later) {
    for (const int earlier : collisions[later]) {
      if (done[later][earlier]) continue;
      return std::to_string(later) + " overtakes " + std::to_string(earlier);
    }
  }
  return "";
}

TEST(Lanes, NothingIsOvertaken) {
  for (const char* preset : {"gpt2", "llama-tiny"}) {
    for (const std::string stack : kStacks) {
      for (const Target target : {Target::kCpu, Target::kCuda}) {
        const Scheme step = step_of(preset, stack, target);
        const Plan plan = make_plan(step, {.target = target});
        const std::vector<LanedCall> lanes = make_lanes(step, plan);
        EXPECT_EQ(race(lanes, collisions(lanes, all_uses(step, plan))), "")
            << preset << " " << stack;
        int copies = 0;
        std::vector<bool> awaited(lanes.size());
        for (const LanedCall& call : lanes) {
          copies += call.lane != Lane::kWork;
          for (const int w : call.waits) awaited[w] = true;
        }
        EXPECT_GT(copies, 4) << preset << " " << stack;
        for (size_t at = 0; at < lanes.size(); ++at) {
          EXPECT_EQ(lanes[at].is_awaited, awaited[at]) << preset << " " << stack;
        }
      }
    }
  }
}

// GPT-2's objects are dense; an object inside another one is waited for as a whole.
TEST(Lanes, NoWaitIsForNothing) {
  for (const std::string stack : kStacks) {
    const Scheme step = step_of("gpt2", stack, Target::kCuda);
    const Plan plan = make_plan(step, {.target = Target::kCuda});
    std::vector<LanedCall> lanes = make_lanes(step, plan);
    const auto collide = collisions(lanes, all_uses(step, plan));
    int waits = 0;
    for (LanedCall& call : lanes) {
      const std::vector<int> all = call.waits;
      for (size_t w = 0; w < all.size(); ++w, ++waits) {
        call.waits.erase(call.waits.begin() + static_cast<int64_t>(w));
        EXPECT_NE(race(lanes, collide), "") << stack << ": wait for " << all[w];
        call.waits = all;
      }
    }
    EXPECT_GT(waits, 4) << stack;
  }
}

// Collectives may overtake each other, and whoever waits for one waits for all before it.
TEST(Lanes, NobodyMeetsACollectiveThatIsUnderWay) {
  for (const std::string stack :
       {"data_parallel(2)", "data_parallel(3) | zero(1)",
        "data_parallel(2) | zero(3) | offload(optimizer)",
        "data_parallel(2) | zero(3) | checkpoint(every=1)",
        "data_parallel(2) | zero(2) | accumulate(2)",
        // Slices of what is gathered are copied where readers want them
        // dense, at the slice's own place.
        "tensor_parallel(2, sequence=yes) | lora(rank=4)", "tensor_parallel(2, sequence=shards)"}) {
    const Scheme forward = elaborate_preset(
        "gpt2",
        {{"batch", 8}, {"seq", 8}, {"layers", 3}, {"hidden", 16}, {"heads", 2}, {"vocab", 61}});
    const Scheme step = training_step(forward, {.stack = stack, .on_mesh = true});
    const Plan plan = make_plan(step, {});
    const std::vector<LanedCall> lanes = make_lanes(step, plan);
    const auto uses = all_uses(step, plan);
    const std::vector<int> done = done_before(step, plan);
    int landed = -1;  // the latest collective that was waited for
    int collectives = 0;
    for (int at = 0; at < static_cast<int>(lanes.size()); ++at) {
      for (const int w : lanes[at].waits) {
        if (lanes[w].lane == Lane::kRanks) landed = std::max(landed, w);
      }
      for (int before = 0; before < at; ++before) {
        if (lanes[before].lane != Lane::kRanks || !collide(uses[before], uses[at])) continue;
        EXPECT_LE(before, landed) << stack << ": call " << at;
        EXPECT_LE(done[before], at) << stack << ": collective " << before;
      }
      collectives += lanes[at].lane == Lane::kRanks;
    }
    EXPECT_GT(collectives, 20) << stack;
  }
}

TEST(Lanes, AStepWithoutCopiesIsOneLane) {
  const Scheme step = step_of("gpt2", "", Target::kCuda);
  for (const LanedCall& call : make_lanes(step, make_plan(step, {.target = Target::kCuda}))) {
    EXPECT_EQ(call.lane, Lane::kWork);
    EXPECT_TRUE(call.waits.empty());
    EXPECT_FALSE(call.is_awaited);
  }
}

// ---- runs ----

// A random order of calls [begin, end) that the lanes allow: each time the front of some lane.
void shuffle(const std::vector<LanedCall>& lanes, int begin, int end, std::mt19937& random,
             std::vector<int>& order) {
  std::array<std::vector<int>, kNumLanes> queue;
  std::vector<bool> done(lanes.size());
  for (int at = end; at-- > begin;) queue[static_cast<size_t>(lanes[at].lane)].push_back(at);
  // One lane always runs as far as it can: copies run far ahead, or stay far behind.
  std::array<size_t, kNumLanes> turns = {0, 1, 2, 3};
  for (int left = end - begin; left > 0;) {
    std::shuffle(turns.begin(), turns.end(), random);
    for (const size_t lane : turns) {
      while (!queue[lane].empty()) {
        const int next = queue[lane].back();
        const std::vector<int>& waits = lanes[next].waits;
        if (!std::all_of(waits.begin(), waits.end(), [&](int w) { return w < begin || done[w]; })) {
          break;
        }
        queue[lane].pop_back();
        done[next] = true;
        order.push_back(next);
        --left;
      }
    }
  }
}

std::vector<uint64_t> bits_after(const Scheme& step, const Plan& plan) {
  Run run(step, plan, {.reference = false, .poison = false});
  RandomSteps steps(run, 7);
  steps.begin();
  for (int i = 0; i < 2; ++i) {
    steps.feed();
    steps.step();
  }
  return steps.hashes();
}

TEST(Lanes, EveryOrderThatTheyAllowGivesTheSameBits) {
  std::mt19937 random(1);
  for (const std::string stack : kStacks) {
    const Scheme step = step_of("gpt2", stack, Target::kCpu);
    const Plan plan = make_plan(step, {.threads = num_threads()});
    const std::vector<LanedCall> lanes = make_lanes(step, plan);
    const std::vector<uint64_t> wanted = bits_after(step, plan);
    for (int trial = 0; trial < 3; ++trial) {
      std::vector<int> order;
      shuffle(lanes, 0, plan.body_begin, random, order);
      shuffle(lanes, plan.body_begin, plan.body_end, random, order);
      shuffle(lanes, plan.body_end, static_cast<int>(plan.calls.size()), random, order);
      Plan other = plan;
      for (size_t at = 0; at < order.size(); ++at) other.calls[at] = plan.calls[order[at]];
      EXPECT_EQ(bits_after(step, other), wanted) << stack;
    }
  }
}

// ---- time ----

constexpr const char* kSheet = R"(
arithmetic = 1e12
bandwidth = 1e12
launch = 1e-9
overlaps = true
link = 1e11
[products]
f32 = 1e12
)";

TEST(Lanes, CopiesHideBehindTheWorkUntilThereAreMore) {
  const Scheme step = step_of("gpt2", "offload(activations) | offload(parameters)", Target::kCuda);
  const Plan plan = make_plan(step, {.target = Target::kCuda});
  const auto time = [&](double link) {
    Costs costs{.sheet = parse_device(kSheet, "mine.device")};
    costs.sheet.link = link;
    return predict_time(step, plan, costs);
  };
  for (const double link : {1e8, 1e9, 1e10, 1e11, 1e12, 1e13}) {
    const StepTime t = time(link);
    EXPECT_GE(t.step, t.work * (1 - 1e-9)) << link;
    EXPECT_GE(t.step, t.copies / 2 * (1 - 1e-9)) << link;  // both directions at once
    EXPECT_LT(t.step, t.work + t.copies) << link;
  }
  const StepTime fast = time(1e12);
  EXPECT_LT(fast.step, fast.work + 0.5 * fast.copies) << "most of them hide";
}

TEST(Lanes, CollectivesHideBehindTheWorkUntilThereAreMore) {
  const Scheme forward = elaborate_preset(
      "gpt2",
      {{"batch", 8}, {"seq", 16}, {"layers", 4}, {"hidden", 32}, {"heads", 2}, {"vocab", 61}});
  for (const std::string stack : {"data_parallel(2)", "data_parallel(2) | zero(3)"}) {
    const Scheme step = training_step(forward, {.stack = stack, .on_mesh = true});
    const Plan hidden = make_plan(step, {}), beside = make_plan(step, {.overlap = false});
    Costs costs{.sheet = parse_device(kSheet, "mine.device")};
    costs.sheet.overlaps = false;  // as on a CPU: of copies alone
    double before = 0;
    for (const double latency : {1e-9, 1e-8, 1e-7, 1e-6}) {
      costs.sheet.fabric = {
          .latency = latency, .seconds_per_byte = 1e-12, .seconds_per_term = 1e-13};
      const StepTime t = predict_time(step, hidden, costs);
      EXPECT_NEAR(t.step, t.work + t.ranks_waited, 1e-9 * t.step) << stack;
      EXPECT_GT(t.ranks, t.ranks_waited) << stack << ": some of it hides";
      EXPECT_LE(t.ranks_waited, predict_time(step, beside, costs).ranks_waited * 1.001) << stack;
      EXPECT_GE(t.ranks_waited, before) << stack;
      before = t.ranks_waited;
    }
  }
  const Scheme alone = training_step(forward, {});
  const Costs costs{.sheet = parse_device(kSheet, "mine.device")};
  EXPECT_EQ(predict_time(alone, make_plan(alone, {}), costs).ranks, 0);
}

TEST(Lanes, EndTimesAreAsTheWaitsSay) {
  // Work of 3 s; a concurrent fetch of 2 s that the next work waits for; a send of that work's
  // result.
  const std::vector<LanedCall> lanes = {{.lane = Lane::kWork},
                                        {.lane = Lane::kFetch, .is_awaited = true},
                                        {.lane = Lane::kWork, .waits = {1}, .is_awaited = true},
                                        {.lane = Lane::kSend, .waits = {2}},
                                        {.lane = Lane::kWork}};
  EXPECT_EQ(end_times(lanes, {3, 2, 1, 5, 1}, 0, 5), (std::vector<double>{3, 2, 4, 9, 5}));
  EXPECT_EQ(end_times(lanes, {3, 7, 1, 5, 1}, 0, 5), (std::vector<double>{3, 7, 8, 13, 9}));
  EXPECT_EQ(end_times(lanes, {3, 7, 1, 5, 1}, 2, 5), (std::vector<double>{0, 0, 1, 6, 2}))
      << "what was before has ended";
}

}  // namespace
}  // namespace adjoint

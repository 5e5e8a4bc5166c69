// A measured pipeline: slots of every rank in the order of its list, one after the other; seconds
// that agree with the step's; the simulator on them; and a schedule that is searched with such
// times within a limit on memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error_text.h"
#include "cost/sheet.h"
#include "device/parallel.h"
#include "functors/stage_schedule.h"
#include "report/planned.h"
#include "report/schedule_chart.h"
#include "report/schedule_search.h"
#include "report/stage_table.h"
#include "report/timeline_json.h"
#include "report/xml.h"

namespace adjoint {
namespace {

Scheme staged(const std::string& stack) {
  StepOptions options;
  options.on_mesh = true;
  const std::map<std::string, double> sizes = {{"layers", 4}, {"hidden", 32}, {"heads", 4},
                                               {"batch", 8},  {"seq", 16},    {"vocab", 64}};
  return build_step(elaborate_preset("char", sizes), parse_stack(stack), options).scheme;
}

const PlanOptions kPlanned{.threads = num_threads()};
Costs costs() { return {.sheet = find_device("cpu"), .threads = 1}; }

double length(const TimedWork& work) { return work.end - work.begin; }

// In order, none begins before the one before it has ended.
void expect_in_order(const MeasuredWalk& walk) {
  std::vector<TimedWork> all = {walk.before};
  all.insert(all.end(), walk.slots.begin(), walk.slots.end());
  all.insert(all.end(), walk.after.begin(), walk.after.end());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_LE(all[i].begin, all[i].end) << i;
    if (i > 0) {
      EXPECT_LE(all[i - 1].end, all[i].begin) << i;
    }
  }
}

TEST(StageProfile, TakesWaitsOutOfSlots) {
  const Scheme whole = staged("pipeline(2, schedule=zero_bubble, parts=3)");
  const PlannedStages stages = plan_stages(whole, kPlanned, costs());
  const size_t rounds = rounds_of(stages.steps);
  for (size_t rank = 0; rank < 2; ++rank) {
    const Scheme& step = stages.steps[rank];
    const Plan& plan = stages.plans[rank];
    const size_t slots = stages.schedule.lists[rank].size();
    std::vector<int> calls_of(slots);
    for (const PlannedCall& call : plan.calls) {
      const PlaceInStep place = place_in_step(step.morphisms[call.morphism]);
      if (place.section == Section::kBody) ++calls_of[place.number];
    }
    for (const double waited : {0.0, 1.0}) {
      std::vector<CallSpan> calls;
      for (size_t at = 0; at < plan.calls.size(); ++at) {
        const double begin = 2.0 * static_cast<double>(at);
        calls.push_back({.begin = begin, .end = begin + 1, .waited = waited});
      }
      const MeasuredWalk walk = walk_of(step, plan, calls, slots, rounds);
      expect_in_order(walk);
      ASSERT_EQ(walk.slots.size(), slots);
      for (size_t i = 0; i < slots; ++i) {
        ASSERT_GT(calls_of[i], 0);
        EXPECT_EQ(length(walk.slots[i]), waited > 0 ? calls_of[i] : 2 * calls_of[i] - 1) << i;
      }
    }
  }
}

TEST(StageProfile, SlotsAreInOrderAndAgreeWithTheStep) {
  for (const char* stack : {"pipeline(2, schedule=zero_bubble, parts=4)",
                            "pipeline(2, schedule=interleaved, chunks=2, parts=4) | bf16",
                            "data_parallel(2) | pipeline(2, parts=2)"}) {
    const PlannedStages stages = plan_stages(staged(stack), kPlanned, costs());
    MeasuredPipeline found =
        measure_pipeline(stages.schedule, stages.steps, stages.plans, {.steps = 3});
    const std::vector<MeshAxis>& mesh = stages.steps[0].mesh;
    ASSERT_EQ(found.ranks.size(), static_cast<size_t>(num_ranks(mesh)));
    for (size_t rank = 0; rank < found.ranks.size(); ++rank) {
      const int stage = coordinates_of(static_cast<int>(rank), mesh).at(kStageAxis);
      EXPECT_EQ(found.ranks[rank].touched, stages.plans[stage].arena) << stack;
      EXPECT_EQ(found.ranks[rank].call_seconds.size(), stages.plans[stage].calls.size());
      EXPECT_EQ(found.ranks[rank].losses, found.ranks[0].losses) << stack;
    }
    const StagesAtWork work(stages, std::move(found.stages));
    ASSERT_EQ(work.measured.together.size(), 2u);
    ASSERT_EQ(work.measured.seconds.size(), 3u);
    for (size_t rank = 0; rank < 2; ++rank) {
      const MeasuredWalk& walk = work.measured.together[rank];
      ASSERT_EQ(walk.slots.size(), stages.schedule.lists[rank].size());
      expect_in_order(walk);
      // The step that is shown is the median one; on each rank it took no longer than on the
      // slowest.
      EXPECT_LE(walk.after.back().end - walk.before.begin, work.measured.step_seconds() + 1e-9);
      EXPECT_LE(work.real.ranks[rank].busy, work.measured.step_seconds() + 1e-9);
      const StageSeconds& alone = work.measured.alone[rank];
      ASSERT_EQ(alone.slots.size(), walk.slots.size());
      ASSERT_EQ(alone.rounds.size(), walk.after.size());
      for (const double seconds : alone.slots) EXPECT_GT(seconds, 0);
    }
    // Nobody ends a slot before the slot whose message it reads has begun. (That may be seen to end
    // later: whoever sends may be held up between the message and a look at the clock.)
    for (const Slot& slot : stages.schedule.lists[1]) {
      if (slot.kind != SlotKind::kForward || slot.chunk != 1) continue;
      const auto timed = [&](size_t rank, const Slot& which) {
        const auto& list = stages.schedule.lists[rank];
        const auto at = std::find(list.begin(), list.end(), which) - list.begin();
        return work.measured.together[rank].slots[static_cast<size_t>(at)];
      };
      EXPECT_LE(timed(0, {slot.kind, slot.part, 0}).begin, timed(1, slot).end) << stack;
    }
    EXPECT_GT(work.simulated.seconds, 0);
    EXPECT_GT(work.slots.send, 0);
    const std::string svg = schedule_chart(work, "t", "threads");
    EXPECT_EQ(xml_mistake(svg), "");
    EXPECT_TRUE(has(svg, "measured")) << stack;
    EXPECT_TRUE(has(svg, "simulated")) << stack;
    const nlohmann::json out = measured_stages_json(work);
    EXPECT_EQ(out["stages"][1]["slots"].size(), stages.schedule.lists[1].size());
    EXPECT_TRUE(has(measured_stage_table(work), "ratio"));
  }
}

// The memory of a stage runs along the step's own clock, with the time in which it waits.
TEST(StageProfile, TheClockOfAStageIsTheSteps) {
  for (const char* stack :
       {"pipeline(2, parts=4)", "pipeline(2, schedule=zb_2p, parts=4) | bf16"}) {
    const PlannedStages stages = plan_stages(staged(stack), kPlanned, costs());
    for (size_t i = 0; i < stages.steps.size(); ++i) {
      const StepClock clock = clock_of_stage(stages, i);
      const nlohmann::json t =
          timeline_json(stages.steps[i], stages.plans[i], stages.times[i].seconds, false, clock);
      EXPECT_DOUBLE_EQ(t["length"], stages.simulated.seconds) << stack;
      EXPECT_DOUBLE_EQ(t["step_s"], stages.simulated.seconds) << stack;
      for (const auto& call : t["calls"]) {
        const Morphism& m =
            stages.steps[i].morphisms[stages.plans[i].calls[call["place"].get<size_t>()].morphism];
        if (m.section != Section::kBody) continue;
        const TimedSlot& slot = stages.simulated.slots[i][m.slot - 1];
        EXPECT_GE(call["begins"].get<double>(), slot.begin - 1e-12) << call["source"];
        EXPECT_LE(call["begins"].get<double>(), slot.end + 1e-12) << call["source"];
      }
    }
  }
}

// Predicted: what is before the slots and after them is in the simulation, each rank's own.
TEST(StageProfile, ThePredictedStepHasItsBeginningAndItsEnd) {
  const PlannedStages stages =
      plan_stages(staged("pipeline(2, parts=4) | bf16"), kPlanned, costs());
  ASSERT_EQ(stages.slots.before.size(), 2u);
  EXPECT_GT(stages.slots.before[0], 0);  // casts of parameters
  ASSERT_GE(stages.slots.end.size(), 2u);
  bool hears[2] = {};
  for (const EndRound& round : stages.slots.end) {
    for (const EndRound::Message& message : round.messages) hears[message.to] = true;
  }
  EXPECT_TRUE(hears[0] && hears[1]);  // of the other's squares, for the norm
  EXPECT_FALSE(stages.simulated.ranks[0].after.empty());
}

TEST(StageProfile, SearchesAScheduleWithinAMemoryLimit) {
  const Scheme whole = staged("pipeline(2, schedule=zb_2p, parts=8)");
  const PlannedStages stages = plan_stages(whole, kPlanned, costs());
  const FoundSchedule free =
      search_schedule(whole, stages, stages.slots, kPlanned, costs(), {.most_parts = 4});
  const FoundSchedule least =
      search_schedule(whole, stages, stages.slots, kPlanned, costs(), {.most_parts = 1});
  ASSERT_LT(least.most, free.most);
  EXPECT_LE(free.simulated.seconds, free.asked.seconds + 1e-12);
  const Bytes between{(least.most.count + free.most.count) / 2};
  const FoundSchedule found = search_schedule(whole, stages, stages.slots, kPlanned, costs(),
                                              {.most_parts = 4, .most = between});
  EXPECT_LE(found.most, between);
  EXPECT_LE(found.simulated.seconds, least.simulated.seconds + 1e-12);
  // The text is a schedule that `schedule=` reads, and its plans are those that were judged.
  Scheme as_found = whole;
  as_found.schedule = print(found.schedule);
  EXPECT_EQ(schedule_of(as_found).lists, found.schedule.lists);
  Bytes most{0};
  for (const Plan& plan : plan_stages(as_found, kPlanned, costs()).plans) {
    most = std::max(most, plan.arena);
  }
  EXPECT_EQ(most, found.most);
  EXPECT_TRUE(has(error_text([&] {
                    search_schedule(whole, stages, stages.slots, kPlanned, costs(),
                                    {.most_parts = 4, .most = Bytes{1000}});
                  }),
                  "--schedule-memory: with one part in flight"));
  const Scheme other = staged("pipeline(2, parts=8)");
  const PlannedStages plain = plan_stages(other, kPlanned, costs());
  EXPECT_TRUE(has(error_text([&] {
                    search_schedule(other, plain, plain.slots, kPlanned, costs(),
                                    {.most_parts = 4});
                  }),
                  "has no slots for the weights' gradients"));
}

}  // namespace
}  // namespace adjoint

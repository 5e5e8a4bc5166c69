// Steps that several ranks run, threads of this process: collectives under way while calls run,
// memory as it was planned, no allocation.
#include <gtest/gtest.h>

#include <map>

#include "functors/pipeline.h"
#include "models/small_models.h"
#include "plan/lanes.h"
#include "plan/owners.h"
#include "run/profile.h"
#include "run/rank_bits.h"

namespace adjoint {
namespace {

const char* const kStacks[] = {"data_parallel(2)",
                               "data_parallel(3)",
                               "data_parallel(2) | zero(1)",
                               "data_parallel(2) | zero(2)",
                               "data_parallel(2) | zero(3)",
                               "data_parallel(3) | zero(3) | bf16",
                               "data_parallel(2) | zero(3) | checkpoint(every=1)",
                               "data_parallel(2) | zero(3) | accumulate(2)",
                               "data_parallel(2) | zero(2) | offload(optimizer)",
                               "tensor_parallel(2)",
                               "tensor_parallel(2, sequence=yes) | lora(rank=4)",
                               "tensor_parallel(2, sequence=shards) | checkpoint(every=1)",
                               "data_parallel(2) | tensor_parallel(2) | zero(3) | bucket",
                               "data_parallel(3) | bucket",
                               "data_parallel(2) | zero(3) | bucket(size=4096)"};

Scheme step_of(const std::string& stack) {
  // Neither the batch nor the vocabulary is divided by all numbers of ranks.
  const Scheme forward = elaborate_preset(
      "char", {{"batch", 7}, {"seq", 8}, {"layers", 3}, {"hidden", 32}, {"vocab", 37}});
  return build_step(forward, parse_stack(stack), {.on_mesh = true}).scheme;
}

TEST(RanksUnderWay, CollectivesThatHideKeepEveryBit) {
  for (const std::string stack : kStacks) {
    SCOPED_TRACE(stack);
    const Scheme step = step_of(stack);
    const auto wanted = bits_after(step, {.overlap = false, .one_by_one = true});
    EXPECT_EQ(bits_after(step, {.poison = true}), wanted) << "under way, with poison";
    EXPECT_EQ(bits_after(step, {.one_by_one = true}), wanted) << "one call after the other";
    EXPECT_EQ(bits_after(step, {.overlap = false, .poison = true}), wanted) << "in the plain order";
  }
}

TEST(RanksUnderWay, BucketsKeepEveryBit) {
  for (const std::string stack :
       {"data_parallel(3)", "data_parallel(2) | zero(1)", "data_parallel(3) | zero(3)",
        "data_parallel(2) | zero(2) | accumulate(2)", "data_parallel(2) | bf16"}) {
    SCOPED_TRACE(stack);
    const Scheme plain = step_of(stack), joined = step_of(stack + " | bucket(size=65536)");
    EXPECT_LT(joined.morphisms.size(), plain.morphisms.size());
    EXPECT_EQ(bits_after(joined, {}), bits_after(plain, {}));
  }
}

int under_way_beside_work(const Scheme& step, const Plan& plan) {
  const std::vector<int> done = done_before(step, plan);
  int count = 0;
  for (int at = 0; at < static_cast<int>(done.size()); ++at) {
    bool works = false;
    for (int next = at + 1; next < done[at]; ++next) {
      const Morphism& m = step.morphisms[plan.calls[next].morphism];
      works = works || (lane_of(m) == Lane::kWork && !plan.calls[next].is_view);
    }
    count += works;
  }
  return count;
}

TEST(RanksUnderWay, MostCollectivesHideBehindWork) {
  for (const char* stack : {"data_parallel(2)", "data_parallel(2) | zero(3)"}) {
    const Scheme step = step_of(stack);
    int all = 0;
    for (const Morphism& m : step.morphisms) all += lane_of(m) == Lane::kRanks;
    EXPECT_GT(under_way_beside_work(step, plan_of(step, true)), all * 2 / 3) << stack;
  }
}

// Gathers a block ahead cost the block's parameters, and no more.
TEST(RanksUnderWay, FetchingAheadTakesABlockOfMemory) {
  const auto peak = [](const std::string& stack, bool overlap) {
    return plan_of(step_of(stack), overlap).live_peak.count;
  };
  const Scheme step = step_of("data_parallel(2) | zero(3)");
  std::map<std::string, int64_t> blocks;  // bytes of whole parameters
  for (const Morphism& m : step.morphisms) {
    if (m.op != "all_gather" || m.phase != Phase::kForward) continue;
    const std::string& path = m.source.path;
    blocks[path.substr(0, path.find(']'))] += step[m.outputs[0]].type.bytes().count;
  }
  int64_t largest = 0;
  for (const auto& [name, bytes] : blocks) largest = std::max(largest, bytes);
  // Parameters of a block ahead, gradients of a block behind.
  EXPECT_LE(peak("data_parallel(2) | zero(3)", true),
            peak("data_parallel(2) | zero(3)", false) + 3 * largest);
}

// One rank has nothing to hide, and nothing may change for it.
TEST(RanksUnderWay, OneRankPlansAsEver) {
  const Scheme forward = elaborate_preset("char", {{"batch", 4}, {"seq", 8}, {"layers", 2}});
  for (const char* stack : {"", "data_parallel(1)", "checkpoint(every=1)", "offload(parameters)"}) {
    const Scheme step = build_step(forward, parse_stack(stack), {.on_mesh = true}).scheme;
    const Plan with = plan_of(step, true), without = plan_of(step, false);
    ASSERT_EQ(with.calls.size(), without.calls.size());
    for (size_t at = 0; at < with.calls.size(); ++at) {
      EXPECT_EQ(with.calls[at].morphism, without.calls[at].morphism) << stack;
    }
    EXPECT_EQ(with.arena, without.arena) << stack;
  }
}

// All that a rank touches is in the plan, and all that is planned is touched: packed pieces and the
// communicator's scratch, too.
TEST(RanksUnderWay, PlannedBytesAreTouchedBytes) {
  for (const std::string stack : kStacks) {
    SCOPED_TRACE(stack);
    const Scheme step = step_of(stack);
    const Plan plan = plan_of(step, true);
    const int ranks = num_ranks(step.mesh);
    std::vector<Bytes> most(ranks, Bytes{0});
    run_ranks(ranks, [&](Communicator world) {
      const LibraryThreads as_planned(num_threads());
      Seat seat(world, step.mesh);
      adjoint::Run run(step, plan, {.reference = false, .poison = false, .seat = &seat});
      RandomSteps steps(run, 3);
      for (const std::byte poison : kPoisons) {
        Bytes& mine = most[world.rank()];
        mine = std::max(mine, touched_by_step(run, steps, poison).device);
      }
    });
    for (const Bytes touched : most) EXPECT_EQ(touched, plan.arena);
  }
}

// Frees one byte range too early, the worst that a plan could do to a collective under way.
TEST(RanksUnderWay, AFreedBufferIsFound) {
  const Scheme step = step_of("data_parallel(2)");
  const Plan plan = plan_of(step, true);
  const auto wanted = bits_after(step, {plan}, {.one_by_one = true});
  const std::vector<int> done = done_before(step, plan);
  int planted = 0;
  for (int at = 0; at < static_cast<int>(done.size()) && planted < 3; ++at) {
    const Morphism& m = step.morphisms[plan.calls[at].morphism];
    if (m.op != "reduce_scatter" || done[at] < at + 8) continue;
    Plan wrong = plan;
    Storage& operand = wrong.storages[wrong.places[m.inputs[0]].storage];
    if (operand.last != done[at] - 1) continue;
    operand.last = at;
    for (Tenant& t : operand.tenants) t.to = std::min(t.to, at);
    // A collective may be done before its operand is filled: then it is tried again.
    bool found = false;
    for (int i = 0; i < 20 && !found; ++i)
      found = bits_after(step, {wrong}, {.poison = true}) != wanted;
    EXPECT_TRUE(found) << "poison finds it";
    // Something else moves in where the operand was.
    for (size_t s = 0; s < wrong.storages.size(); ++s) {
      Storage& next = wrong.storages[s];
      if (next.first <= at || next.first >= done[at] || next.size > operand.size) continue;
      Plan taken = wrong;
      taken.storages[s].offset = operand.offset;
      EXPECT_NE(spoiled_read(step, taken), "");
      ++planted;
      break;
    }
  }
  EXPECT_GT(planted, 0);
}

}  // namespace
}  // namespace adjoint

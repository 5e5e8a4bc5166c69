// The automatic zero-bubble schedule: legal, within its limit, and never slower than those by hand.
#include "schedules/automatic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"

namespace adjoint {
namespace {

double cost(const Schedule& schedule, const SlotTimes& times) {
  const Simulated simulated = simulate(schedule, times);
  return times.barrier ? simulated.seconds : simulated.own_seconds;
}

// The most that a rank keeps, in thousandths of a part.
int64_t kept(const Schedule& schedule, SlotTimes times, int64_t for_weights) {
  times.kept.assign(static_cast<size_t>(schedule.chunks), 1000);
  times.kept_for_weights.assign(static_cast<size_t>(schedule.chunks), for_weights);
  int64_t most = 0;
  for (const SimulatedRank& rank : simulate(schedule, times).ranks) {
    most = std::max(most, rank.most_bytes);
  }
  return most;
}

TEST(Automatic, IsNeverSlowerThanTheOnesByHandInTheirMemory) {
  std::mt19937 random(5);
  const auto some = [&] { return 1 + static_cast<double>(random() % 100) / 25; };
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int parts = 1; parts <= 12; parts += 1 + parts / 4) {
      for (int round = 0; round < 4; ++round) {
        SlotTimes times = equal_times(ranks, some(), some(), some(), round % 2 == 0 ? 0 : 0.1);
        if (round >= 2) {
          for (auto* seconds : {&times.forward, &times.backward, &times.weight}) {
            for (double& each : *seconds) each = some();
          }
        }
        times.barrier = round % 2 == 1;
        const double h1 = cost(make_schedule("zero_bubble", ranks, parts, 1), times);
        const double h2 = cost(make_schedule("zb_h2", ranks, parts, 1), times);
        for (const int limit : {1, ranks, 2 * ranks}) {
          const Schedule found = automatic_zero_bubble(ranks, parts, times, limit);
          EXPECT_NO_THROW(check_schedule(found));
          EXPECT_TRUE(sums_in_order(found));
          EXPECT_LE(kept(found, times, 1000), 1000 * limit);
          const double by_hand = limit == 2 * ranks ? std::min(h1, h2) : h1;
          if (limit >= ranks) {
            EXPECT_LE(cost(found, times), by_hand * (1 + 1e-9));
          }
        }
      }
    }
  }
}

// Slots that are longer beside a message count for every candidate alike.
TEST(Automatic, IsNeverSlowerWhereMessagesLengthenSlots) {
  std::mt19937 random(7);
  const auto some = [&] { return 1 + static_cast<double>(random() % 100) / 25; };
  for (int ranks = 2; ranks <= 6; ++ranks) {
    for (const int parts : {2, 5, 12}) {
      for (const double beside : {0.05, 0.5, 2.0}) {
        SlotTimes times = equal_times(ranks, some(), some(), some(), 0.1);
        times.beside = beside;
        for (const bool barrier : {false, true}) {
          times.barrier = barrier;
          const double h1 = cost(make_schedule("zero_bubble", ranks, parts, 1), times);
          const double h2 = cost(make_schedule("zb_h2", ranks, parts, 1), times);
          EXPECT_LE(cost(automatic_zero_bubble(ranks, parts, times, ranks), times),
                    h1 * (1 + 1e-9));
          EXPECT_LE(cost(automatic_zero_bubble(ranks, parts, times, 2 * ranks), times),
                    std::min(h1, h2) * (1 + 1e-9));
        }
      }
    }
  }
}

TEST(Automatic, IsFasterWithTheMemoryThatWeightsLeave) {
  // 1.5B of the paper on 8 ranks with 32 parts: ZB-1p has 0.1242, and ZB-2p 0.0039 in 2p parts. A
  // part's activations for the weights are 32/87 of all (34h + 5as bytes per token, with 24 heads
  // of 96 and 1024 positions).
  SlotTimes times = equal_times(8, 18.513, 18.086, 9.331, 0.626);
  times.kept.assign(8, 1000);
  times.kept_for_weights.assign(8, 366);
  const Schedule one = automatic_zero_bubble(8, 32, times, 8);
  EXPECT_LE(simulate(one, times).own_bubble, 0.1243);
  EXPECT_LE(kept(one, times, 366), 8000);
  const Schedule two = automatic_zero_bubble(8, 32, times, 16);
  EXPECT_LE(simulate(two, times).own_bubble, 0.0039);
  EXPECT_LE(kept(two, times, 366), 16000);
}

TEST(Automatic, WhatItCannotBe) {
  const SlotTimes times = equal_times(2, 1, 1, 1);
  EXPECT_THROW(automatic_zero_bubble(0, 2, times, 2), Error);
  EXPECT_THROW(automatic_zero_bubble(2, 2, times, 0.5), Error);
  EXPECT_THROW(automatic_zero_bubble(2, 2, times, std::nan("")), Error);
}

}  // namespace
}  // namespace adjoint

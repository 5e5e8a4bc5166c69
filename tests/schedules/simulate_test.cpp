// The simulator against formulas, against published rates, and against a fixed point that is found
// without walking.
#include "schedules/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "schedules/automatic.h"

namespace adjoint {
namespace {

TEST(Simulate, TwoRanksByHand) {
  // Chunk 0 takes 1 forward and 2 backward, chunk 1 takes 3 and 1 with 1 more for the weights; a
  // message takes 0.5.
  SlotTimes times;
  times.forward = {1, 3};
  times.backward = {1, 1};
  times.weight = {1, 1};
  times.send = 0.5;
  times.kept = {100, 10};
  times.kept_for_weights = {40, 4};
  const Schedule schedule = parse_schedule(
      "schedule s(stages = 2, parts = 2):\n"
      "  rank 0: F0 F1 B0 B1\n"
      "  rank 1: F0 B0 F1 B1 W0 W1\n",
      "s");
  const Simulated simulated = simulate(schedule, times);
  const auto begins = [&](size_t rank) {
    std::vector<double> result;
    for (const TimedSlot& slot : simulated.slots.at(rank)) result.push_back(slot.begin);
    return result;
  };
  EXPECT_EQ(begins(0), (std::vector<double>{0, 1, 6, 10}));
  EXPECT_EQ(begins(1), (std::vector<double>{1.5, 4.5, 5.5, 8.5, 9.5, 10.5}));
  EXPECT_EQ(simulated.seconds, 12);
  EXPECT_EQ(simulated.own_seconds, 12);
  EXPECT_EQ(simulated.ranks[1].end - simulated.ranks[1].begin, 10);
  EXPECT_EQ(simulated.ranks[0].busy, 6);
  EXPECT_EQ(simulated.ranks[1].busy, 10);
  EXPECT_DOUBLE_EQ(simulated.bubble, 1 - 16.0 / 24);
  // Rank 0 waits for B0.1 from 2 to 6, of which the message takes 0.5, and likewise for B1.1; F1.0
  // is hidden.
  EXPECT_EQ(simulated.ranks[0].waits_for_messages, 1);
  EXPECT_EQ(simulated.ranks[1].waits_for_messages, 0.5);
  EXPECT_EQ(simulated.messages, 4);
  EXPECT_EQ(simulated.message_seconds, 2);
  EXPECT_EQ(simulated.waits_for_messages, 1.5);
  EXPECT_EQ(simulated.ranks[0].in_flight, 2);
  EXPECT_EQ(simulated.ranks[1].in_flight, 1);
  EXPECT_EQ(simulated.ranks[0].most_bytes, 200);  // its weights are not apart, so B frees all
  EXPECT_EQ(simulated.ranks[1].most_bytes, 14);
  const std::vector<BytesAt>& bytes = simulated.ranks[1].bytes;
  std::vector<std::pair<double, int64_t>> curve;
  for (const BytesAt& at : bytes) curve.emplace_back(at.time, at.bytes);
  EXPECT_EQ(curve, (std::vector<std::pair<double, int64_t>>{
                       {1.5, 10}, {5.5, 14}, {9.5, 8}, {10.5, 4}, {11.5, 0}}));
}

TEST(Simulate, BubblesOfEqualStagesAreTheFormulas) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int parts = 1; parts <= 12; ++parts) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const Simulated simulated =
            simulate(make_schedule(name, ranks, parts, 1), equal_times(ranks, 1, 1, 1));
        const double formula = (ranks - 1.0) / (ranks - 1.0 + parts);
        EXPECT_NEAR(simulated.bubble, formula, 1e-14) << name << " " << ranks << " " << parts;
        EXPECT_NEAR(simulated.own_bubble, formula, 1e-14) << name << " " << ranks << " " << parts;
        // Chimera's table 2 counts slots, where forward and backward take one each: 2 (D - 1).
        const Simulated slots =
            simulate(make_schedule(name, ranks, parts, 1), equal_times(ranks, 1, 0.5, 0.5));
        EXPECT_EQ(slots.seconds - 2 * parts, 2 * (ranks - 1));
      }
      for (int v = 2; v <= 3 && parts % ranks == 0; ++v) {
        const Simulated simulated = simulate(make_schedule("interleaved", ranks, parts, v),
                                             equal_times(v * ranks, 1, 1, 1));
        const double formula = (ranks - 1.0) / (ranks - 1.0 + v * parts);
        EXPECT_NEAR(simulated.bubble, formula, 1e-14) << ranks << " " << parts << " " << v;
      }
    }
  }
}

// Table 2 of the zero-bubble paper, and its memory per worker, for as many parts as it takes for
// them to hold.
TEST(Simulate, ZeroBubbleByHandIsItsFormulas) {
  const double f = 4, b = 4;
  constexpr int64_t kBackward = 100, kWeight = 30;
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (const double w : {1.0, 2.0, 3.0, 4.0}) {
      const int parts = 4 * ranks;
      SlotTimes times = equal_times(ranks, f, b, w);
      times.kept.assign(static_cast<size_t>(ranks), kBackward);
      times.kept_for_weights.assign(static_cast<size_t>(ranks), kWeight);
      const double work = parts * (f + b + w);
      const Simulated one = simulate(make_schedule("1f1b", ranks, parts, 1), times);
      EXPECT_EQ(one.own_seconds - work, (ranks - 1) * (f + b + w));
      const Simulated h1 = simulate(make_schedule("zero_bubble", ranks, parts, 1), times);
      EXPECT_EQ(h1.own_seconds - work, (ranks - 1) * (f + b - w)) << ranks << " " << w;
      const Simulated h2 = simulate(make_schedule("zb_h2", ranks, parts, 1), times);
      EXPECT_EQ(h2.own_seconds - work, (ranks - 1) * (f + b - 2 * w)) << ranks << " " << w;
      for (int rank = 0; rank < ranks; ++rank) {
        const size_t i = static_cast<size_t>(rank);
        EXPECT_EQ(one.ranks[i].most_bytes, (ranks - rank) * kBackward);
        EXPECT_EQ(h1.ranks[i].most_bytes, (ranks - rank) * kBackward + rank * kWeight);
        EXPECT_EQ(h2.ranks[i].most_bytes,
                  (2 * (ranks - rank) - 1) * kBackward + 2 * rank * kWeight);
      }
    }
  }
}

TEST(Simulate, FewParts) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int parts = 1; parts <= ranks; ++parts) {
      const SlotTimes times = equal_times(ranks, 3, 3, 2);
      EXPECT_EQ(simulate(make_schedule("1f1b", ranks, parts, 1), times).seconds,
                (parts + ranks - 1) * 8);
      // The paper's best, which the lists by hand reach with one part and the search with any
      // number.
      const double best = (parts + ranks - 1) * 6 + 2;
      for (const char* name : {"zero_bubble", "zb_h2"}) {
        const double seconds = simulate(make_schedule(name, ranks, parts, 1), times).seconds;
        EXPECT_TRUE(parts == 1 ? seconds == best : seconds >= best) << name << " " << seconds;
      }
      SlotTimes with_barrier = times;
      with_barrier.barrier = true;
      const Schedule found = automatic_zero_bubble(ranks, parts, with_barrier, ranks);
      EXPECT_EQ(simulate(found, with_barrier).seconds, best) << ranks << " " << parts;
    }
  }
}

TEST(Simulate, ABarrierMakesEveryRankWaitForTheLast) {
  SlotTimes times = equal_times(4, 1, 1, 1);
  const Schedule h2 = make_schedule("zb_h2", 4, 16, 1);
  const Simulated free = simulate(h2, times);
  EXPECT_EQ(free.own_seconds, 48);  // no bubble at all
  EXPECT_EQ(free.own_bubble, 0);
  EXPECT_EQ(free.seconds, 51);
  times.update = 2;
  EXPECT_EQ(simulate(h2, times).own_seconds, 50);
  times.barrier = true;
  times.exchange = 0.5;
  const Simulated clipped = simulate(h2, times);
  EXPECT_EQ(clipped.own_seconds, 53.5);
  EXPECT_EQ(clipped.seconds, 53.5);
  EXPECT_EQ(clipped.bubble, clipped.own_bubble);
  for (const SimulatedRank& rank : clipped.ranks) EXPECT_EQ(rank.end, 53.5);
}

// Why own_seconds is the cost of a step among many: lists of several steps, one behind the other,
// take so much more each.
TEST(Simulate, StepsWithoutABarrierFollowEachOtherInTheirOwnSeconds) {
  for (const char* name : {"gpipe", "1f1b", "zero_bubble", "zb_h2"}) {
    for (const double send : {0.0, 0.25}) {
      const Schedule once = make_schedule(name, 4, 8, 1);
      Schedule thrice = once;
      thrice.parts = 3 * once.parts;
      for (int step = 1; step < 3; ++step) {
        for (size_t rank = 0; rank < once.lists.size(); ++rank) {
          for (Slot slot : once.lists[rank]) {
            slot.part += step * once.parts;
            thrice.lists[rank].push_back(slot);
          }
        }
      }
      const SlotTimes times = equal_times(4, 1, 1, 1, send);
      const Simulated one = simulate(once, times), three = simulate(thrice, times);
      EXPECT_DOUBLE_EQ(three.seconds - one.seconds, 2 * one.own_seconds) << name << " " << send;
    }
  }
}

// Seconds of single slots, of what is before them and of the end in rounds say the same as seconds
// by kind, a barrier and an update where these can say it, and more where they cannot.
TEST(Simulate, SlotsAndRoundsOfTheirOwn) {
  const Schedule schedule = make_schedule("zero_bubble", 3, 5, 1);
  SlotTimes plain = equal_times(3, 1, 1.5, 0.75, 0.1);
  plain.update = 2;
  plain.barrier = true;
  plain.exchange = 0.3;
  SlotTimes exact = equal_times(3, 9, 9, 9, 0.1);
  for (const std::vector<Slot>& list : schedule.lists) {
    std::vector<double>& seconds = exact.slots.emplace_back();
    for (const Slot& slot : list) {
      seconds.push_back(slot.kind == SlotKind::kForward    ? 1
                        : slot.kind == SlotKind::kBackward ? 1.5
                                                           : 0.75);
    }
  }
  exact.end = {{.seconds = {0, 0, 0}}, {.seconds = {2, 2, 2}}};
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from != to) exact.end[0].messages.push_back({from, to, 0.3});
    }
  }
  const Simulated one = simulate(schedule, plain), same = simulate(schedule, exact);
  // The rank that ends last need not hear of itself.
  EXPECT_NEAR(same.seconds, one.seconds, 1e-12);
  for (size_t rank = 0; rank < 3; ++rank) {
    for (size_t i = 0; i < one.slots[rank].size(); ++i) {
      EXPECT_DOUBLE_EQ(one.slots[rank][i].end, same.slots[rank][i].end);
    }
    EXPECT_DOUBLE_EQ(one.ranks[rank].busy, same.ranks[rank].busy);
  }
  exact.before = {0.5, 0, 0};
  EXPECT_NEAR(simulate(schedule, exact).seconds, one.seconds + 0.5, 1e-12);
  exact.before = {0, 0.5, 0};  // while it waits for the first part
  EXPECT_NEAR(simulate(schedule, exact).seconds, one.seconds, 1e-12);
  exact.slots[2].back() += 0.25;
  exact.end[1].seconds[2] = 5;
  const Simulated longer = simulate(schedule, exact);
  const auto end = [&](size_t rank) { return longer.slots[rank].back().end; };
  EXPECT_NEAR(longer.ranks[2].end, std::max(end(2), std::max(end(0), end(1)) + 0.3) + 5, 1e-12);
}

// A slot is longer where its rank receives beside it what the next one reads, and only there.
TEST(Simulate, MessagesTakeTimeOfTheSlotsBesideThem) {
  const Schedule schedule = make_schedule("1f1b", 2, 4, 1);
  SlotTimes times = equal_times(2, 1, 1, 1, 0);
  times.beside = 0.25;
  const Simulated simulated = simulate(schedule, times);
  // rank 0: F0 F1 B0 F2 B1 F3 B2 B3, of which the B receive; rank 1: F0 B0 F1 B1 F2 B2 F3 B3, where
  // the F do.
  for (size_t rank = 0; rank < 2; ++rank) {
    const std::vector<TimedSlot>& slots = simulated.slots[rank];
    for (size_t i = 0; i < slots.size(); ++i) {
      const SlotKind receiver = rank == 0 ? SlotKind::kBackward : SlotKind::kForward;
      const bool beside = i + 1 < slots.size() && slots[i + 1].slot.kind == receiver;
      const double plain = slots[i].slot.kind == SlotKind::kForward ? 1 : 2;
      EXPECT_DOUBLE_EQ(slots[i].end - slots[i].begin, plain + (beside ? 0.25 : 0)) << rank << i;
    }
  }
}

// A walk that was measured and ran as simulated is the simulated one.
TEST(Simulate, AMeasuredWalkInTheSameForm) {
  for (const char* name : {"1f1b", "zb_h2"}) {
    const Schedule schedule = make_schedule(name, 4, 6, 1);
    SlotTimes times = equal_times(4, 1, 1.5, 0.5, 0.125);
    times.kept.assign(4, 100);
    times.kept_for_weights.assign(4, 40);
    times.before = {0.25, 0.5, 0.25, 0};
    times.update = 1;
    times.barrier = true;
    const Simulated simulated = simulate(schedule, times);
    std::vector<MeasuredWalk> walks;
    for (size_t rank = 0; rank < 4; ++rank) {
      MeasuredWalk& walk = walks.emplace_back();
      walk.before = simulated.ranks[rank].before;
      for (const TimedSlot& slot : simulated.slots[rank]) {
        walk.slots.push_back({slot.begin, slot.end});
      }
      walk.after = simulated.ranks[rank].after;
    }
    const Simulated measured = as_measured(schedule, walks, times);
    EXPECT_DOUBLE_EQ(measured.seconds, simulated.seconds) << name;
    EXPECT_DOUBLE_EQ(measured.own_seconds, simulated.own_seconds) << name;
    EXPECT_NEAR(measured.bubble, simulated.bubble, 1e-12) << name;
    EXPECT_NEAR(measured.waits_for_messages, simulated.waits_for_messages, 1e-12) << name;
    for (size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(measured.ranks[rank].most_bytes, simulated.ranks[rank].most_bytes);
      EXPECT_EQ(measured.ranks[rank].in_flight, simulated.ranks[rank].in_flight);
    }
  }
}

TEST(Simulate, AnEvaluationRunsForward) {
  const Schedule eval = forward_only(make_schedule("1f1b", 3, 4, 1));
  EXPECT_EQ(simulate(eval, equal_times(3, 2, 1, 1)).seconds, (4 + 3 - 1) * 2);
}

// Times as the least fixed point of "a slot begins when the one before it in its list and those it
// reads have ended".
double slow_seconds(const Schedule& schedule, const SlotTimes& times) {
  using Key = std::tuple<SlotKind, int, int>;
  std::map<Key, double> end;
  const std::vector<int> holder = holder_of(schedule);
  for (const auto& list : schedule.lists) {
    for (const Slot& slot : list) end[{slot.kind, slot.part, slot.chunk}] = 0;
  }
  double last = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& list : schedule.lists) {
      double free = 0;
      for (const auto& [kind, part, chunk] : list) {
        const size_t c = static_cast<size_t>(chunk);
        const int from = kind == SlotKind::kForward ? chunk - 1 : chunk + 1;
        double begin = free;
        if (kind != SlotKind::kWeight && from >= 0 && from < schedule.chunks) {
          const bool sent = holder[c] != holder[static_cast<size_t>(from)];
          begin = std::max(begin, end.at({kind, part, from}) + (sent ? times.send : 0));
        }
        double seconds = kind == SlotKind::kForward  ? times.forward[c]
                         : kind == SlotKind::kWeight ? times.weight[c]
                                                     : times.backward[c];
        const bool apart = end.count({SlotKind::kWeight, part, chunk});
        if (kind == SlotKind::kBackward && !apart) seconds += times.weight[c];
        free = begin + seconds;
        double& known = end.at({kind, part, chunk});
        if (free > known) {
          known = free;
          changed = true;
        }
      }
      last = std::max(last, free);
    }
  }
  return last;
}

TEST(Simulate, UnequalChunksAgreeWithAFixedPoint) {
  std::mt19937 random(3);
  const auto some = [&] { return static_cast<double>(1 + random() % 8); };
  for (const std::string& name : schedule_names()) {
    for (int round = 0; round < 20; ++round) {
      const int ranks = 1 + static_cast<int>(random() % 4);
      const int v = name == "interleaved" ? 1 + static_cast<int>(random() % 3) : 1;
      const Schedule schedule =
          make_schedule(name, ranks, ranks * (1 + static_cast<int>(random() % 3)), v);
      SlotTimes times = equal_times(schedule.chunks, 0, 0, 0, some() / 4);
      for (auto* seconds : {&times.forward, &times.backward, &times.weight}) {
        for (double& each : *seconds) each = some();
      }
      EXPECT_DOUBLE_EQ(simulate(schedule, times).seconds, slow_seconds(schedule, times));
    }
  }
}

// The rates that the paper computed from its profiled times: cost is the longest time of a rank's
// own.
TEST(Simulate, PublishedZeroBubbleRates) {
  const std::filesystem::path file =
      std::filesystem::path(SOURCE_DIR) / "../shared/published/05c_zero_bubble.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  std::ifstream in(file);
  const nlohmann::json rows =
      nlohmann::json::parse(in)["table5_theoretical_bubble_rates_with_table9_times"]["rows"];
  const std::map<std::string, std::string> names = {
      {"1F1B", "1f1b"},
      {"ZB-H1", "zero_bubble"},
      {"ZB-1p", "zero_bubble"},  // printed with the same rates
      {"ZB-H2", "zb_h2"}};
  int compared = 0;
  for (const nlohmann::json& row : rows) {
    const auto name = names.find(row["schedule"].get<std::string>());
    if (name == names.end()) continue;
    const int ranks = row["p"];
    const Simulated simulated =
        simulate(make_schedule(name->second, ranks, row["m"], 1),
                 equal_times(ranks, row["T_F"], row["T_B"], row["T_W"], row["T_comm"]));
    EXPECT_NEAR(simulated.own_bubble, row["bubble_rate"].get<double>(), 0.00011) << row;
    ++compared;
  }
  EXPECT_GE(compared, 28);
}

// Three of them that need no file: 1.5B on 8 ranks, 24 and 32 parts.
TEST(Simulate, SinglePublishedRates) {
  const auto rate = [](const char* name, int parts, const SlotTimes& times) {
    return simulate(make_schedule(name, 8, parts, 1), times).own_bubble;
  };
  EXPECT_NEAR(rate("1f1b", 24, equal_times(8, 18.522, 18.086, 9.337, 0.601)), 0.2431, 0.00005);
  EXPECT_NEAR(rate("zb_h2", 24, equal_times(8, 18.522, 18.086, 9.337, 0.601)), 0.1083, 0.00005);
  EXPECT_NEAR(rate("zero_bubble", 32, equal_times(8, 18.513, 18.086, 9.331, 0.626)), 0.1242,
              0.00005);
}

}  // namespace
}  // namespace adjoint

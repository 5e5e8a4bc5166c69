// Every schedule that there is can run, for all sizes up to a few ranks and parts; and lists by
// hand.
#include "schedules/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "schedules/automatic.h"
#include "schedules/random_lists.h"

namespace adjoint {
namespace {

// Every shape that a schedule takes, up to a size.
template <class Visit>
void for_all(const Visit& visit, int most_ranks = 6, int most_parts = 12, int most_chunks = 3) {
  for (const std::string& name : schedule_names()) {
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
      for (int parts = 1; parts <= most_parts; ++parts) {
        for (int per_rank = 1; per_rank <= most_chunks; ++per_rank) {
          if (name != "interleaved" && per_rank > 1) continue;
          if (name == "interleaved" && parts % ranks != 0) continue;
          visit(make_schedule(name, ranks, parts, per_rank));
        }
      }
    }
  }
}

std::string shape_of(const Schedule& s) {
  return s.name + " of " + std::to_string(s.ranks) + " ranks, " + std::to_string(s.parts) +
         " parts, " + std::to_string(s.chunks) + " chunks";
}

std::string list_of(const Schedule& schedule, int rank) {
  std::vector<std::string> words;
  for (const Slot& slot : schedule.lists.at(static_cast<size_t>(rank))) {
    words.push_back(to_string(slot));
  }
  return join(words, " ");
}

// Forward slots ahead of backward ones, at most, of one rank.
int in_flight(const std::vector<Slot>& list) {
  int now = 0, most = 0;
  for (const Slot& slot : list) {
    if (slot.kind == SlotKind::kForward) most = std::max(most, ++now);
    if (slot.kind == SlotKind::kBackward) --now;
  }
  return most;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(Schedules, EveryOneCanRun) {
  int seen = 0;
  for_all([&](const Schedule& schedule) {
    SCOPED_TRACE(shape_of(schedule));
    EXPECT_NO_THROW(check_schedule(schedule));
    EXPECT_NO_THROW(check_schedule(forward_only(schedule), false));
    ++seen;
  });
  EXPECT_EQ(seen, 4 * 6 * 12 + 3 * (12 + 6 + 4 + 3 + 2 + 2));
}

TEST(Schedules, ChunkCIsOnRankCModRanksAndSumsAreInOrder) {
  for_all([&](const Schedule& schedule) {
    SCOPED_TRACE(shape_of(schedule));
    const std::vector<int> holder = holder_of(schedule);
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      EXPECT_EQ(holder.at(static_cast<size_t>(chunk)), chunk % schedule.ranks);
    }
    EXPECT_TRUE(sums_in_order(schedule));
  });
}

TEST(Schedules, PartsInFlight) {
  for_all([&](const Schedule& schedule) {
    SCOPED_TRACE(shape_of(schedule));
    const int ranks = schedule.ranks, parts = schedule.parts, each = schedule.chunks / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      const int most = in_flight(schedule.lists.at(static_cast<size_t>(rank)));
      if (schedule.name == "gpipe") {
        EXPECT_EQ(most, parts);
      } else if (schedule.name == "1f1b" || schedule.name == "zero_bubble") {
        EXPECT_EQ(most, std::min(parts, ranks - rank));
      } else if (schedule.name == "zb_h2") {
        EXPECT_EQ(most, std::min(parts, 2 * (ranks - rank) - 1));
      } else if (each > 1) {
        EXPECT_EQ(most, std::min(parts * each, 2 * (ranks - rank - 1) + (each - 1) * ranks + 1));
      }
    }
  });
}

TEST(Schedules, ListsOfSmallPipelines) {
  const Schedule gpipe = make_schedule("gpipe", 2, 2, 1);
  EXPECT_EQ(list_of(gpipe, 0), "F0.0 F1.0 B0.0 B1.0");
  const Schedule one = make_schedule("1f1b", 3, 4, 1);
  EXPECT_EQ(list_of(one, 0), "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0");
  EXPECT_EQ(list_of(one, 2), "F0.2 B0.2 F1.2 B1.2 F2.2 B2.2 F3.2 B3.2");
  // Megatron-LM's order for 2 ranks with 2 chunks each.
  const Schedule two = make_schedule("interleaved", 2, 4, 2);
  EXPECT_EQ(list_of(two, 0),
            "F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0");
  EXPECT_EQ(list_of(two, 1),
            "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1");
  const Schedule h1 = make_schedule("zero_bubble", 2, 3, 1);
  EXPECT_EQ(list_of(h1, 0), "F0.0 F1.0 B0.0 W0.0 F2.0 B1.0 W1.0 B2.0 W2.0");
  EXPECT_EQ(list_of(h1, 1), "F0.1 B0.1 F1.1 B1.1 W0.1 F2.1 B2.1 W1.1 W2.1");
  const Schedule h2 = make_schedule("zb_h2", 2, 4, 1);
  EXPECT_EQ(list_of(h2, 0), "F0.0 F1.0 F2.0 B0.0 W0.0 F3.0 B1.0 W1.0 B2.0 W2.0 B3.0 W3.0");
  EXPECT_EQ(list_of(h2, 1), "F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 W0.1 F3.1 B3.1 W1.1 W2.1 W3.1");
  EXPECT_EQ(list_of(forward_only(two), 1), "F0.1 F1.1 F0.3 F1.3 F2.1 F3.1 F2.3 F3.3");
}

// Lists of a random walk can run, as their text says them too.
TEST(Schedules, RandomListsCanRun) {
  int in_order = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 4),
              parts = 1 + static_cast<int>(random() % 5);
    const Schedule made =
        RandomLists(random, ranks, parts, 1 + static_cast<int>(random() % 2)).made();
    check_schedule(made);
    EXPECT_EQ(parse_schedule(print(made), "random.schedule"), made);
    in_order += sums_in_order(made) ? 1 : 0;
  }
  EXPECT_GT(in_order, 60);
  EXPECT_LT(in_order, 180);
}

TEST(Schedules, WhatAScheduleCannotBe) {
  EXPECT_EQ(refusal([] { make_schedule("1f1c", 2, 2, 1); }),
            "there is no schedule '1f1c'; there are gpipe, 1f1b, "
            "interleaved, zero_bubble, zb_h2, zb_1p, zb_2p");
  EXPECT_EQ(refusal([] { make_schedule("zb_auto", 2, 2, 1); }),
            "schedule zb_auto is searched for with times and a limit on memory, and here are none");
  EXPECT_EQ(refusal([] { make_schedule("zb_2p", 2, 2, 1); }),
            "schedule zb_2p is searched for with times and a limit on memory, and here are none");
  EXPECT_EQ(refusal([] { search_schedule("zb_2p", 2, 2, 2, equal_times(4, 1, 1, 1)); }),
            "schedule zb_2p is searched for one chunk a rank");
  EXPECT_EQ(refusal([] { make_schedule("interleaved", 4, 6, 2); }),
            "schedule interleaved wants a number of parts that the ranks divide, found 6 parts "
            "for 4 ranks");
  EXPECT_EQ(refusal([] { make_schedule("gpipe", 4, 6, 2); }),
            "schedule gpipe gives each rank one chunk of the model, and 2 were asked for; "
            "interleaved has several");
  EXPECT_EQ(refusal([] { make_schedule("1f1b", 0, 6, 1); }),
            "schedule 1f1b wants at least one rank, one part and one chunk per rank, found 0, 6 "
            "and 1");
  EXPECT_EQ(refusal([] { make_schedule("1f1b", 1 << 20, 1 << 20, 1); }),
            "schedule 1f1b of 1048576 ranks, 1048576 parts and 1 chunks per rank has more than "
            "100000000 slots");
}

TEST(Schedules, SumsOutOfOrderAreSeen) {
  Schedule schedule = make_schedule("gpipe", 2, 3, 1);
  // Both ranks go backward through the parts in reverse: legal, and another order of sums.
  for (std::vector<Slot>& list : schedule.lists) std::reverse(list.begin() + 3, list.end());
  check_schedule(schedule);
  EXPECT_FALSE(sums_in_order(schedule));
  // Backward in order, weights not.
  Schedule weights = make_schedule("zero_bubble", 2, 3, 1);
  std::swap(weights.lists[1][7], weights.lists[1][8]);
  check_schedule(weights);
  EXPECT_FALSE(sums_in_order(weights));
  // Some gradients are summed where the state's is made, also where the weights come apart, and
  // losses are summed forward.
  for (const char* list : {"F0 F1 B1 B0 W0 W1", "F1 F0 B0 B1", "F0 F1 B0 B1 W0"}) {
    SCOPED_TRACE(list);
    const Schedule apart = parse_schedule(
        std::string("schedule a(stages = 1, parts = 2):\n  rank 0: ") + list + "\n", "a.schedule");
    EXPECT_FALSE(sums_in_order(apart));
  }
  EXPECT_TRUE(sums_in_order(parse_schedule(
      "schedule a(stages = 1, parts = 2):\n  rank 0: F0 F1 B0 B1 W1\n", "a.schedule")));
  // Parts may skip ahead where every chunk has its own order.
  EXPECT_TRUE(sums_in_order(make_schedule("interleaved", 2, 4, 2)));
}

TEST(Schedules, MistakesAreNamedByRankAndSlot) {
  const auto wrong = [](const std::string& lists, int ranks = 2, int parts = 2) {
    return refusal([&] {
      parse_schedule("schedule m(stages = " + std::to_string(ranks) +
                         ", parts = " + std::to_string(parts) + "):\n" + lists,
                     "m.schedule");
    });
  };
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0 B1\n  rank 1: F0 B0 F1 B1\n"), "taken");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0\n  rank 1: F0 B0 F1 B1\n"),
            "m.schedule:2:3: rank 0 forgets B1.0");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0 B1\n  rank 1: F0 B0 B1\n"),
            "m.schedule:3:17: rank 1, slot B1.1: it does not come after F1.1");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0 B1\n  rank 1: F0 B0 F1 B0 B1\n"),
            "m.schedule:3:20: rank 1, slot B0.1: it is there twice");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0 B1\n  rank 1: F0 W0 B0 F1 B1\n"),
            "m.schedule:3:14: rank 1, slot W0.1: it does not come after B0.1");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0 B1\n  rank 1: F0 B0 F1 B1 F2\n"),
            "m.schedule:3:23: rank 1, slot F2.1: there are parts 0 to 1");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0 B1\n  rank 1: F0 B0 F1.0 B1\n"),
            "m.schedule:3:17: rank 1, slot F1.0: chunk 0 is on rank 0 already, and a chunk is on "
            "one rank");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B0 B1\n  rank 1:\n"),
            "m.schedule:1:1: chunk 1 is on no rank: F0.1 is missing");
  EXPECT_EQ(wrong("  rank 0: F0 B0 F1 B1\n  rank 1: F0 F1 B0 B1\n"),
            "m.schedule:2:14: it never ends: rank 0 waits in B0.0 for B0.1 of rank 1; rank 1 "
            "waits in F1.1 for F1.0 of rank 0");
  EXPECT_EQ(wrong("  rank 0: F0 F1 B1 B0\n  rank 1: F1 B1 F0 B0\n"),
            "m.schedule:3:11: it never ends: rank 1 waits in F1.1 for F1.0 of rank 0, which "
            "sends F0.0 first");
  EXPECT_EQ(wrong("  rank 0: F0.1 F0.0 B0.1 B0.0\n  rank 1: F0.2 B0.2\n", 2, 1),
            "m.schedule:3:11: rank 1, slot F0.2: there are chunks 0 to 1");
  EXPECT_EQ(refusal([] {
              parse_schedule(
                  "schedule m(stages = 1, parts = 1, chunks = 2):\n"
                  "  rank 0: F0.1 F0.0 B0.1 B0.0\n",
                  "m");
            }),
            "m:2:11: rank 0, slot F0.1: it reads what comes later, in F0.0");
  Schedule short_one = make_schedule("1f1b", 2, 2, 1);
  short_one.lists.pop_back();
  EXPECT_EQ(refusal([&] { check_schedule(short_one); }),
            "schedule '1f1b' cannot run: it has 2 ranks and 1 lists");
  EXPECT_EQ(refusal([&] { check_schedule(forward_only(make_schedule("1f1b", 2, 2, 1))); }),
            "schedule '1f1b' cannot run: rank 0 forgets B0.0");
  EXPECT_EQ(refusal([&] { check_schedule(make_schedule("1f1b", 2, 2, 1), false); }),
            "schedule '1f1b' cannot run: rank 0, slot B0.0: an evaluation has forward slots alone");
}

TEST(Schedules, TextsReadAsTheyPrint) {
  for_all(
      [&](const Schedule& schedule) {
        EXPECT_EQ(parse_schedule(print(schedule), "printed"), schedule) << print(schedule);
      },
      3, 6, 3);
  // Chunks on other ranks than their own are printed.
  Schedule turned = make_schedule("1f1b", 3, 2, 1);
  std::reverse(turned.lists.begin(), turned.lists.end());
  EXPECT_EQ(parse_schedule(print(turned), "printed"), turned) << print(turned);
  EXPECT_EQ(print(make_schedule("1f1b", 2, 2, 1)),
            "schedule 1f1b(stages = 2, parts = 2):\n"
            "  rank 0: F0 F1 B0 B1\n"
            "  rank 1: F0 B0 F1 B1\n");
}

TEST(Schedules, MistakesOfATextAreNamedByPlace) {
  const auto wrong = [](const std::string& text) {
    return refusal([&] { parse_schedule(text, "m"); });
  };
  EXPECT_EQ(wrong(""), "m:1:1: wanted 'schedule' to begin a schedule, found the end of the text");
  EXPECT_EQ(wrong("schedule m(parts = 2)"), "m:1:12: wanted 'stages', found 'parts'");
  EXPECT_EQ(wrong("schedule m(stages = 0, parts = 2):"),
            "m:1:21: stages must be 1 to 1000000, found 0");
  EXPECT_EQ(wrong("schedule m(stages = 1, parts = 1):\n  F0"), "m:2:3: wanted 'rank', found 'F0'");
  EXPECT_EQ(wrong("schedule m(stages = 1, parts = 1):\nrank 0: F0"),
            "m:2:1: wanted an indented list of a rank");
  EXPECT_EQ(wrong("schedule m(stages = 1, parts = 1):\n  rank 1: F0"),
            "m:2:8: there are ranks 0 to 0, found 1");
  EXPECT_EQ(wrong("schedule m(stages = 1, parts = 1):\n  rank 0: F0 G0"),
            "m:2:14: wanted a slot such as F0, B0 or W0.1, found 'G0'");
  EXPECT_EQ(wrong("schedule m(stages = 1, parts = 1):\n  rank 0: F0 B0.x"),
            "m:2:14: wanted a slot such as F0, B0 or W0.1, found 'B0.x'");
  EXPECT_EQ(wrong("schedule m(stages = 1, parts = 1):\n  rank 0: F0 B0\n  rank 0: F0"),
            "m:3:3: rank 0 has a list already");
  EXPECT_EQ(wrong("schedule m(stages = 2, parts = 1):\n  rank 0: F0 B0\n"),
            "m:3:1: wanted the list of rank 1, found the end of the text");
  EXPECT_EQ(wrong("schedule m(stages = 1, parts = 1, chunks = 2):\n  rank 0: F0 B0\n"),
            "m:2:11: wanted part and chunk, such as F0.1: 1 ranks hold 2 chunks");
}

}  // namespace
}  // namespace adjoint

// Good schedules with a slot dropped, doubled, moved or changed: the check refuses each, or it is
// still legal, which a second judge says that is written another way. It asks, without walking,
// whether each slot is there as often as it must be, whether sender and receiver have the same
// order in each lane, and whether the waits have no cycle.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "base/error.h"
#include "schedules/schedule.h"

namespace adjoint {
namespace {

using Key = std::tuple<SlotKind, int, int>;
Key key(const Slot& slot) { return {slot.kind, slot.part, slot.chunk}; }

class Judge {
 public:
  explicit Judge(const Schedule& schedule) : schedule_(schedule) {}

  bool legal() { return counted() && lanes_agree() && ends(); }

 private:
  bool counted() {
    std::map<Key, int> counts;
    std::map<int, std::set<int>> holders;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (const Slot& slot : schedule_.lists[static_cast<size_t>(rank)]) {
        ++counts[key(slot)];
        holders[slot.chunk].insert(rank);
      }
    }
    for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
      if (holders[chunk].size() != 1) return false;
      holder_.push_back(*holders[chunk].begin());
      for (int part = 0; part < schedule_.parts; ++part) {
        if (counts[{SlotKind::kForward, part, chunk}] != 1) return false;
        if (counts[{SlotKind::kBackward, part, chunk}] != 1) return false;
        if (counts[{SlotKind::kWeight, part, chunk}] > 1) return false;
      }
    }
    // Nothing else: of `counts` every key has a part and a chunk that there are.
    return counts.size() ==
           3 * static_cast<size_t>(schedule_.chunks) * static_cast<size_t>(schedule_.parts);
  }

  // Messages of a lane as (part, chunk that made it), in the order of the sender's list or the
  // receiver's.
  using Lanes = std::map<std::tuple<int, int, SlotKind>, std::vector<std::pair<int, int>>>;
  bool lanes_agree() {
    Lanes sent, received;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (const auto& [kind, part, chunk] : schedule_.lists[static_cast<size_t>(rank)]) {
        if (kind == SlotKind::kWeight) continue;
        const int along = kind == SlotKind::kForward ? 1 : -1;
        if (const int to = chunk + along; to >= 0 && to < schedule_.chunks) {
          const int other = holder_[static_cast<size_t>(to)];
          if (other != rank) sent[{rank, other, kind}].emplace_back(part, chunk);
        }
        if (const int from = chunk - along; from >= 0 && from < schedule_.chunks) {
          const int other = holder_[static_cast<size_t>(from)];
          if (other != rank) received[{other, rank, kind}].emplace_back(part, from);
        }
      }
    }
    return sent == received;
  }

  // Depth first through the waits: what a slot reads, and the slot before it in its list.
  bool ends() {
    for (const std::vector<Slot>& list : schedule_.lists) {
      for (size_t at = 1; at < list.size(); ++at) before_[key(list[at])] = key(list[at - 1]);
    }
    for (const std::vector<Slot>& list : schedule_.lists) {
      for (const Slot& slot : list) {
        if (!visit(key(slot))) return false;
      }
    }
    return true;
  }

  bool visit(const Key& slot) {
    const auto [state, is_new] = visited_.emplace(slot, false);
    if (!is_new) return state->second;  // false: we are inside of it
    const auto& [kind, part, chunk] = slot;
    std::vector<Key> waits;
    if (before_.count(slot)) waits.push_back(before_.at(slot));
    if (kind == SlotKind::kForward && chunk > 0) waits.push_back({kind, part, chunk - 1});
    if (kind == SlotKind::kBackward) {
      waits.push_back({SlotKind::kForward, part, chunk});
      if (chunk + 1 < schedule_.chunks) waits.push_back({kind, part, chunk + 1});
    }
    if (kind == SlotKind::kWeight) waits.push_back({SlotKind::kBackward, part, chunk});
    for (const Key& wait : waits) {
      if (!visit(wait)) return false;
    }
    visited_[slot] = true;
    return true;
  }

  const Schedule& schedule_;
  std::vector<int> holder_;
  std::map<Key, Key> before_;
  std::map<Key, bool> visited_;
};

std::string refusal(const Schedule& schedule) {
  try {
    check_schedule(schedule);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Tally {
  int legal = 0, refused = 0;
};

void compare(const Schedule& mutant, Tally& tally) {
  const std::string why = refusal(mutant);
  const bool legal = Judge(mutant).legal();
  EXPECT_EQ(why.empty(), legal) << why << "\n" << print(mutant);
  (legal ? tally.legal : tally.refused) += 1;
  // A refusal names a slot.
  EXPECT_EQ(why.find('.') != std::string::npos, !legal) << why;
}

std::vector<Schedule> good_ones() {
  return {make_schedule("gpipe", 3, 3, 1),       make_schedule("1f1b", 3, 5, 1),
          make_schedule("interleaved", 2, 4, 2), make_schedule("interleaved", 3, 3, 2),
          make_schedule("interleaved", 1, 3, 3), make_schedule("zero_bubble", 3, 4, 1),
          make_schedule("zb_h2", 2, 4, 1)};
}

TEST(Mutations, ADroppedSlotIsRefusedUnlessItIsOfTheWeights) {
  for (const Schedule& good : good_ones()) {
    ASSERT_TRUE(Judge(good).legal());
    for (size_t rank = 0; rank < good.lists.size(); ++rank) {
      for (size_t at = 0; at < good.lists[rank].size(); ++at) {
        Schedule mutant = good;
        mutant.lists[rank].erase(mutant.lists[rank].begin() + static_cast<std::ptrdiff_t>(at));
        Tally tally;
        compare(mutant, tally);
        EXPECT_EQ(tally.legal, good.lists[rank][at].kind == SlotKind::kWeight);
      }
    }
  }
}

TEST(Mutations, ADoubledSlotIsRefused) {
  for (const Schedule& good : good_ones()) {
    for (size_t rank = 0; rank < good.lists.size(); ++rank) {
      for (size_t at = 0; at < good.lists[rank].size(); ++at) {
        for (size_t to = at; to <= good.lists[rank].size(); to += 3) {
          Schedule mutant = good;
          auto& list = mutant.lists[rank];
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(to), good.lists[rank][at]);
          Tally tally;
          compare(mutant, tally);
          EXPECT_EQ(tally.refused, 1) << print(mutant);
        }
      }
    }
  }
}

TEST(Mutations, EverySwapOfTwoSlotsIsJudgedRight) {
  Tally tally;
  for (const Schedule& good : good_ones()) {
    for (size_t rank = 0; rank < good.lists.size(); ++rank) {
      for (size_t a = 0; a < good.lists[rank].size(); ++a) {
        for (size_t b = a + 1; b < good.lists[rank].size(); ++b) {
          Schedule mutant = good;
          std::swap(mutant.lists[rank][a], mutant.lists[rank][b]);
          compare(mutant, tally);
        }
      }
    }
  }
  EXPECT_GT(tally.legal, 50);
  EXPECT_GT(tally.refused, 500);
}

TEST(Mutations, RandomChangesAreJudgedRight) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Tally tally;
  for (const Schedule& good : good_ones()) {
    for (int round = 0; round < 1500; ++round) {
      Schedule mutant = good;
      for (size_t times = 1 + below(3); times > 0; --times) {
        auto& list = mutant.lists[below(mutant.lists.size())];
        if (list.empty()) continue;
        const size_t at = below(list.size());
        const Slot slot = list[at];
        switch (below(4)) {
          case 0:  // with its neighbour: often still legal
            if (at + 1 < list.size()) std::swap(list[at], list[at + 1]);
            break;
          case 1:  // to another place, perhaps of another rank
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
            {
              auto& to = mutant.lists[below(mutant.lists.size())];
              to.insert(to.begin() + static_cast<std::ptrdiff_t>(below(to.size() + 1)), slot);
            }
            break;
          case 2:
            list[at].part = static_cast<int>(below(static_cast<size_t>(good.parts) + 1));
            break;
          default:  // the same two parts, or a chunk's two ranks, exchanged everywhere: legal
            if (below(2) == 0) {
              std::reverse(mutant.lists.begin(), mutant.lists.end());
            } else {
              for (auto& each : mutant.lists) {
                for (Slot& one : each) one.part ^= good.parts % 2 == 0 ? 1 : 0;
              }
            }
        }
      }
      compare(mutant, tally);
    }
  }
  EXPECT_GT(tally.legal, 500);
  EXPECT_GT(tally.refused, 3000);
}

// What stays of a text, whatever its bytes became: an Error that names the file, or a schedule that
// can run.
TEST(Mutations, ChangedTextsAreTakenOrRefusedByPlace) {
  std::mt19937 random(11);
  int taken = 0;
  for (const Schedule& good : good_ones()) {
    const std::string text = print(good);
    for (int round = 0; round < 1500; ++round) {
      std::string mutant = text;
      for (unsigned times = 1 + random() % 3; times > 0; --times) {
        constexpr std::string_view kLikely = "FBW0123456789. \n:=,()#rank";
        const size_t at = random() % mutant.size();
        switch (random() % 3) {
          case 0:
            mutant[at] = kLikely[random() % kLikely.size()];
            break;
          case 1:
            mutant.erase(at, 1 + random() % 4);
            break;
          default:
            mutant.insert(at, 1, static_cast<char>(random()));
        }
        if (mutant.empty()) break;
      }
      try {
        const Schedule schedule = parse_schedule(mutant, "m.schedule");
        EXPECT_TRUE(Judge(schedule).legal()) << mutant;
        EXPECT_EQ(parse_schedule(print(schedule), "printed"), schedule) << mutant;
        ++taken;
      } catch (const Error& error) {
        EXPECT_TRUE(std::string_view(error.what()).starts_with("m.schedule:")) << error.what();
      }
    }
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace adjoint

// Taken bytes over a plan's order, beside a plain list of them; and what it costs to ask, counted
// and not timed.
#include "plan/occupied.h"

#include <gtest/gtest.h>

#include <random>

namespace adjoint {
namespace {

struct Taken {
  int64_t begin, end;
  int first, last;
};

// Every offset at which something could begin: the floor, and wherever something ends.
int64_t lowest_of_list(const std::vector<Taken>& all, int64_t floor, int64_t size, int first,
                       int last) {
  std::vector<int64_t> starts = {floor};
  for (const Taken& t : all) starts.push_back(std::max(floor, t.end));
  std::sort(starts.begin(), starts.end());
  for (const int64_t at : starts) {
    const bool is_free = std::none_of(all.begin(), all.end(), [&](const Taken& t) {
      return t.first <= last && first <= t.last && t.begin < at + size && at < t.end;
    });
    if (is_free) return at;
  }
  return -1;
}

TEST(Occupied, FindsWhatAListFinds) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int places = 1 + static_cast<int>(random() % 40);
    const int64_t floor = random() % 2 ? 0 : 3;
    Occupied occupied(places);
    std::vector<Taken> all;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random() % places);
      const int last = first + static_cast<int>(random() % (places - first));
      const int64_t size = 1 + random() % 9;
      int64_t at = occupied.lowest_free(floor, size, first, last);
      ASSERT_EQ(at, lowest_of_list(all, floor, size, first, last)) << "seed " << seed << ", " << i;
      at += random() % 4 ? 0 : random() % 20;  // what is fixed may lie anywhere, and over others
      occupied.take(at, at + size, first, last);
      all.push_back({at, at + size, first, last});
    }
  }
}

// A stage that works on so many parts, in 1F1B's order: some objects live through the step, some
// from a part's forward slot to its backward slot eight parts later, and most for a moment.
std::vector<Taken> lives_of_stage(int parts) {
  constexpr int kCalls = 20, kAhead = 8;  // calls of a slot, parts in flight
  std::vector<Taken> lives;
  const int end = (parts + kAhead) * 2 * kCalls;
  for (int i = 0; i < 10; ++i) lives.push_back({0, 64 * (i + 1), 0, end - 1});
  for (int part = 0; part < parts; ++part) {
    const int forward = part * 2 * kCalls, backward = forward + kAhead * 2 * kCalls;
    for (int call = 0; call < kCalls; ++call) {
      if (call % 3 == 0) {
        lives.push_back({0, 64 * (1 + call), forward + call, backward + kCalls - call});
      }
      for (const int at : {forward, backward}) {
        lives.push_back({0, 64 * (1 + call % 7), at + call, at + call + 1});
      }
    }
  }
  return lives;
}

double looks_per_storage(int parts) {
  std::vector<Taken> lives = lives_of_stage(parts);
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Taken& a, const Taken& b) { return a.end > b.end; });
  int places = 0;
  for (const Taken& t : lives) places = std::max(places, t.last + 1);
  Occupied occupied(places);
  for (const Taken& t : lives) {
    const int64_t at = occupied.lowest_free(0, t.end, t.first, t.last);
    occupied.take(at, at + t.end, t.first, t.last);
  }
  return static_cast<double>(occupied.looks()) / static_cast<double>(lives.size());
}

TEST(Occupied, CostsNearlyTheSamePerStorageHoweverManyParts) {
  const double few = looks_per_storage(32), many = looks_per_storage(1024);
  EXPECT_GT(few, 1) << "looks are counted";
  // 32 times as many parts are five more levels of the tree.
  EXPECT_LT(many, 1.6 * few) << few << " looks per storage with 32 parts";
}

}  // namespace
}  // namespace adjoint

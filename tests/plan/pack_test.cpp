// Storages in an arena: none that live together share a byte (checked pair by pair), none lies
// where it must not, and the arena is as small as hand and lower bound say.
#include "plan/pack.h"

#include <gtest/gtest.h>

#include <random>

namespace adjoint {
namespace {

Storage storage(int64_t size, int first, int last, int64_t offset = -1) {
  return {.size = {size}, .offset = {offset}, .first = first, .last = last};
}

// The largest sum of bytes, in units of 64, that are alive at one time.
int64_t least_bytes(const std::vector<Storage>& storages) {
  int64_t most = 0;
  for (const Storage& at : storages) {
    int64_t live = 0;
    for (const Storage& s : storages) {
      if (s.first <= at.first && at.first <= s.last) live += (s.size.count + 63) / 64 * 64;
    }
    most = std::max(most, live);
  }
  return most;
}

void expect_no_overlap(const std::vector<Storage>& storages) {
  for (size_t i = 0; i < storages.size(); ++i) {
    for (size_t k = i + 1; k < storages.size(); ++k) {
      const Storage &a = storages[i], &b = storages[k];
      if (a.last < b.first || b.last < a.first) continue;
      EXPECT_TRUE(a.offset + a.size <= b.offset || b.offset + b.size <= a.offset)
          << i << " at " << a.offset.count << " and " << k << " at " << b.offset.count;
    }
  }
}

// Packs, checks, and returns where the highest line of 64 bytes ends.
int64_t pack_all(std::vector<Storage>& storages, int64_t floor = 0) {
  pack(storages, {floor}, {floor + least_bytes(storages)});
  expect_no_overlap(storages);
  int64_t end = floor;
  for (const Storage& s : storages) {
    EXPECT_GE(s.offset.count, 0) << "everything is placed";
    EXPECT_EQ(s.offset.count % 64, 0) << "vectors want alignment";
    end = std::max(end, s.offset.count + (s.size.count + 63) / 64 * 64);
  }
  return end;
}

TEST(Pack, NothingTakesNothing) {
  std::vector<Storage> none;
  EXPECT_EQ(pack_all(none), 0);
}

TEST(Pack, OneAfterTheOtherShareBytes) {
  std::vector<Storage> s = {storage(128, 0, 1), storage(128, 2, 3), storage(64, 4, 4)};
  EXPECT_EQ(pack_all(s), 128);
}

TEST(Pack, TogetherForOneMomentIsTogether) {
  std::vector<Storage> s = {storage(128, 0, 2), storage(128, 2, 3)};
  EXPECT_EQ(pack_all(s), 256);
}

TEST(Pack, SmallStoragesTakeAWholeLine) {
  std::vector<Storage> s = {storage(4, 0, 5), storage(4, 0, 5), storage(65, 0, 5)};
  EXPECT_EQ(pack_all(s), 64 + 64 + 128);
}

TEST(Pack, AHoleIsFilled) {
  // The middle one leaves a hole that the last two fit into.
  std::vector<Storage> s = {storage(256, 0, 9), storage(128, 0, 3), storage(256, 0, 9),
                            storage(64, 4, 9), storage(64, 4, 9)};
  EXPECT_EQ(pack_all(s), 640);
}

TEST(Pack, KeepsTheFloorAndWhatIsPlaced) {
  // One fixed above the floor in the middle, one fixed below it, of another plan.
  std::vector<Storage> s = {storage(64, 0, 9, 0), storage(128, 2, 4, 512), storage(192, 3, 5),
                            storage(192, 0, 1), storage(192, 5, 6)};
  pack_all(s, 384);
  EXPECT_EQ(s[0].offset.count, 0);
  EXPECT_EQ(s[1].offset.count, 512);
  for (const size_t i : {2, 3, 4}) EXPECT_GE(s[i].offset.count, 384);
}

// Largest first, longest first and their product all put the second and the last at the bottom, the
// first above the second, and the third, which meets the first and the last, above that: 448 bytes.
TEST(Pack, WhatSticksOutIsPlacedEarlier) {
  std::vector<Storage> s = {storage(128, 3, 4), storage(256, 2, 3), storage(64, 4, 5),
                            storage(256, 5, 6)};
  EXPECT_EQ(pack_all(s), 384);
}

// As a training step: each activation lives from its place on the way forward to the same place on
// the way back, with short-lived ones between. Presets are held to the same 2%.
TEST(Pack, NestedLifetimesComeWithinTwoPercent) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const int layers = 24, end = 4 * layers;
    std::vector<Storage> s;
    for (int l = 0; l < layers; ++l) {
      for (int k = 0; k < 3; ++k) {
        s.push_back(storage(64 * (1 + random() % 300), 2 * l, end - 2 * l));
      }
      for (const int at : {2 * l, end - 2 * l}) {
        s.push_back(storage(64 * (1 + random() % 300), at, at + 1));
      }
    }
    const int64_t least = least_bytes(s), top = pack_all(s);
    EXPECT_GE(top, least);
    EXPECT_LE(static_cast<double>(top), 1.02 * static_cast<double>(least)) << "round " << round;
  }
}

TEST(Pack, RandomLifetimesNeverOverlapAndNeverGoBelowTheBound) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<Storage> s;
    const int count = 1 + static_cast<int>(random() % 60),
              end = 1 + static_cast<int>(random() % 40);
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>(random() % end);
      s.push_back(storage(1 + static_cast<int64_t>(random() % 5000), first,
                          first + static_cast<int>(random() % (end - first))));
      sum += (s.back().size.count + 63) / 64 * 64;
    }
    const int64_t floor = random() % 2 ? 0 : 640;
    const int64_t least = least_bytes(s), top = pack_all(s, floor);
    EXPECT_GE(top, floor + least) << "seed " << seed;
    EXPECT_LE(top, floor + sum) << "seed " << seed;
    for (const Storage& each : s) EXPECT_GE(each.offset.count, floor);
  }
}

// Many storages are placed by other means than few. The same ones, beside many that live after all
// of them, lie where they lay alone. No arena is too large here, so both times the first order is
// taken.
TEST(Pack, ManyStoragesLieWhereFewWould) {
  std::mt19937 random(5);
  std::vector<Storage> few = {storage(6400, 100, 900, 640)};
  for (int i = 0; i < 1000; ++i) {
    const int first = static_cast<int>(random() % 1000);
    few.push_back(storage(1 + static_cast<int64_t>(random() % 5000), first,
                          first + static_cast<int>(random() % (random() % 20 ? 9 : 900))));
  }
  std::vector<Storage> many = few;
  for (int i = 0; i < 3000; ++i) many.push_back(storage(64, 2000 + i, 2000 + i));
  const Bytes any{int64_t{1} << 40};
  pack(few, {64}, any);
  pack(many, {64}, any);
  for (size_t i = 0; i < few.size(); ++i) ASSERT_EQ(few[i].offset, many[i].offset) << i;
  expect_no_overlap(few);
}

TEST(Pack, TheSameStoragesGetTheSamePlaces) {
  std::mt19937 random(9);
  std::vector<Storage> a;
  for (int i = 0; i < 50; ++i) {
    const int first = static_cast<int>(random() % 20);
    a.push_back(storage(1 + static_cast<int64_t>(random() % 999), first, first + 3));
  }
  std::vector<Storage> b = a;
  pack_all(a);
  pack_all(b);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].offset, b[i].offset);
}

}  // namespace
}  // namespace adjoint

// The split of work: every index is done once, whatever the counts, and who does what depends on
// the counts alone.
#include "device/parallel.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

namespace adjoint {
namespace {

class Parallel : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

struct Range {
  int64_t begin, end;
  int thread;
  bool operator==(const Range&) const = default;
};

// The ranges of one parallel_for, sorted by where they begin.
std::vector<Range> ranges_of(int64_t n, int64_t grain) {
  std::vector<Range> ranges;
  std::mutex guard;
  parallel_for(n, grain, [&](int64_t begin, int64_t end, int thread) {
    const std::lock_guard lock(guard);
    ranges.push_back({begin, end, thread});
  });
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

// Calls f for every mixture of counts, with those counts as the trace of a failure.
template <class F>
void for_all_counts(const F& f) {
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    for (const int64_t n : {0, 1, 2, 3, 7, 8, 9, 64, 1000, 1001}) {
      for (const int64_t grain : {-1, 0, 1, 3, 64, 1000, 5000}) {
        SCOPED_TRACE("n=" + std::to_string(n) + " grain=" + std::to_string(grain) +
                     " threads=" + std::to_string(threads));
        f(n, grain, threads);
      }
    }
  }
}

TEST_F(Parallel, EveryIndexOnceInContiguousRanges) {
  for_all_counts([](int64_t n, int64_t grain, int) {
    int64_t next = 0;
    for (const Range& r : ranges_of(n, grain)) {
      EXPECT_EQ(r.begin, next);
      EXPECT_LT(r.begin, r.end) << "a range holds something";
      next = r.end;
    }
    EXPECT_EQ(next, n);
  });
}

TEST_F(Parallel, EveryThreadHasOneRangeAndANumberOfItsOwn) {
  for_all_counts([](int64_t n, int64_t grain, int threads) {
    std::vector<bool> seen(threads, false);
    for (const Range& r : ranges_of(n, grain)) {
      ASSERT_GE(r.thread, 0);
      ASSERT_LT(r.thread, threads) << "workspaces are as many as threads";
      EXPECT_FALSE(seen[r.thread]);
      seen[r.thread] = true;
    }
  });
}

TEST_F(Parallel, ARangeIsWorthAThread) {
  for_all_counts([](int64_t n, int64_t grain, int) {
    const std::vector<Range> ranges = ranges_of(n, grain);
    if (ranges.size() < 2) return;
    for (const Range& r : ranges) EXPECT_GE(r.end - r.begin, grain);
  });
}

TEST_F(Parallel, TheCountsAloneDecideWhoDoesWhat) {
  for_all_counts(
      [](int64_t n, int64_t grain, int) { EXPECT_EQ(ranges_of(n, grain), ranges_of(n, grain)); });
}

// The runtime may give fewer threads than asked for; inside a parallel region it gives one.
TEST_F(Parallel, NothingIsLostWhereTheRuntimeGivesFewerThreads) {
  set_num_threads(4);
  constexpr int64_t kOuter = 4, kInner = 40;
  std::vector<std::vector<int>> done(kOuter, std::vector<int>(kInner, 0));
  parallel_for(kOuter, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      parallel_for(kInner, 1, [&](int64_t from, int64_t to, int) {
        for (int64_t k = from; k < to; ++k) ++done[i][k];
      });
    }
  });
  for (const auto& row : done) EXPECT_EQ(row, std::vector<int>(kInner, 1));
}

TEST_F(Parallel, ThereIsAlwaysAThread) {
  set_num_threads(0);
  EXPECT_EQ(num_threads(), 1);
  set_num_threads(-3);
  EXPECT_EQ(num_threads(), 1);
  set_num_threads(5);
  EXPECT_EQ(num_threads(), 5);
}

}  // namespace
}  // namespace adjoint

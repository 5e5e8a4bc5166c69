#include "bench/comm_bench.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "comm/threads.h"

namespace adjoint {
namespace {

TEST(CommBench, TimesEveryAlgorithmOfEveryCollectiveTheSameOnAllRanks) {
  std::vector<CommBench> of_rank(3);
  run_ranks(3, [&](const Communicator& world) {
    of_rank[world.rank()] = bench_comm(
        world, "threads", {.sizes = {{1000}, {5000}}, .repetitions = 1, .seconds = 1e-4});
  });
  EXPECT_EQ(comm_bench_json(of_rank[0]), comm_bench_json(of_rank[2]));
  const CommBench& bench = of_rank[1];
  EXPECT_EQ(bench.ranks, 3);
  ASSERT_EQ(bench.rows.size(), 5 * 2 + 1);  // the barrier has no bytes
  for (const CommTiming& row : bench.rows) {
    EXPECT_EQ(row.seconds.size(), algorithms_of(row.collective).size());
    EXPECT_GT(row.chosen_seconds(), 0);
    EXPECT_GT(row.predicted, 0);
    EXPECT_EQ(row.whole.count % 12, 0);  // a float for every rank
    EXPECT_FALSE(row.library);
  }
  const std::string table = comm_bench_table(bench);
  EXPECT_TRUE(has(table, "reduce_scatter")) << table;
  EXPECT_TRUE(has(table, "fitted: ")) << table;
}

}  // namespace
}  // namespace adjoint

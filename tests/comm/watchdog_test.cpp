// Who is to blame when nothing goes on, by a clock of the test's own; then with threads and the
// real one.
#include "comm/watchdog.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error_text.h"
#include "comm/threads.h"

namespace adjoint {
namespace {

Watchdog three_ranks_at_work() {
  Watchdog dog(3, {.seconds = 60, .steps = 10}, 0);
  for (int rank = 0; rank < 3; ++rank) dog.progress(rank, 7, "block[1].up", 5);
  return dog;
}

TEST(Watchdog, IsQuietWhileAllWork) {
  const Watchdog dog = three_ranks_at_work();
  EXPECT_EQ(dog.verdict(64), std::nullopt);
}

TEST(Watchdog, BlamesTheRankThatIsSilentAndNotThoseThatWaitForIt) {
  Watchdog dog = three_ranks_at_work();
  dog.waits(0, true);
  dog.waits(2, true);
  EXPECT_EQ(dog.verdict(64), std::nullopt);
  EXPECT_EQ(dog.verdict(66), "a rank was silent for 61 s: rank 1 at step 7 in 'block[1].up'");
}

TEST(Watchdog, ForgivesRanksThatWaitForOneThatWorks) {
  Watchdog dog = three_ranks_at_work();
  dog.waits(0, true);
  dog.waits(2, true);
  dog.progress(1, 7, "tokens.bin", 100);  // it tokenizes
  EXPECT_EQ(dog.verdict(120), std::nullopt);
}

TEST(Watchdog, NamesAllWhenAllWaitForEachOther) {
  Watchdog dog = three_ranks_at_work();
  for (int rank = 0; rank < 3; ++rank) dog.waits(rank, true);
  dog.progress(2, 8, "", 6);
  EXPECT_EQ(dog.verdict(67),
            "all ranks wait for each other for 61 s: rank 0 at step 7 in 'block[1].up', rank 1 at "
            "step 7 in 'block[1].up', rank 2 at step 8");
}

TEST(Watchdog, GivesLongStepsTheTimeOfTen) {
  Watchdog dog = three_ranks_at_work();
  dog.progress(1, 8, "loss", 25);  // a step of 20 s
  EXPECT_EQ(dog.limit(), 200);
  EXPECT_EQ(dog.verdict(200), std::nullopt);
  EXPECT_TRUE(dog.verdict(206).has_value());
}

TEST(Watchdog, ExpectsNothingOfARankThatIsDone) {
  Watchdog dog = three_ranks_at_work();
  for (int rank = 0; rank < 3; ++rank) dog.leaves(rank);
  EXPECT_EQ(dog.verdict(1000), std::nullopt);
}

TEST(Watchdog, LeavesAJobOfOneRankInPeace) {
  Watchdog dog(1, {.seconds = 60, .steps = 10}, 0);
  dog.progress(0, 7, "block[1].up", 5);
  EXPECT_EQ(dog.verdict(1000), std::nullopt);
}

TEST(Watchdog, EndsThreadsOfWhichOneIsSilent) {
  std::atomic<int> told = 0;
  const auto job = [&] {
    run_ranks(3,
              [&](Communicator world) {
                world.progress(4, "wte");
                if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
                try {
                  while (true) world.barrier().wait();
                } catch (const Aborted& end) {
                  EXPECT_TRUE(has(end.what(), " s: rank 1 at step 4 in 'wte'")) << end.what();
                  ++told;
                  throw;
                }
              },
              {.limits = {.seconds = 1, .steps = 1}});
  };
  EXPECT_THROW(job(), Aborted);
  EXPECT_EQ(told, 3);
}

TEST(Agreement, NamesTheRanksThatDiffer) {
  run_ranks(4, [](Communicator world) {
    world.agree(5, "version");
    const std::string said =
        error_text([&] { world.agree(world.rank() == 1 ? 9 : 5, "configuration"); });
    EXPECT_EQ(said,
              "all ranks need the same configuration, and that of rank 1 is not that of "
              "ranks 0, 2, 3");
    const std::string split = error_text([&] { world.agree(world.rank() / 2, "data"); });
    EXPECT_EQ(split,
              "all ranks need the same data, and that of ranks 2, 3 is not that of ranks 0, 1");
  });
}

}  // namespace
}  // namespace adjoint

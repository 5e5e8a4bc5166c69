// Every collective by every algorithm on 1 to 8 ranks of one process, against plain loops.
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <thread>

#include "comm/terms.h"
#include "comm/threads.h"

namespace adjoint {
namespace {

constexpr int kMostRanks = 8;
// Nothing, one, fewer than ranks, odd, more than a block of the reduction.
const std::vector<int64_t> kCounts = {0, 1, 5, 333, 4099};
constexpr int64_t kMany = 300'017;

// The byte i of what rank `from` has for rank `to`.
std::byte mark(int from, int to, int64_t i) {
  return static_cast<std::byte>(31 * from + 7 * to + i % 251);
}

std::vector<std::byte> marks(int from, int to, int64_t size) {
  std::vector<std::byte> data(size);
  for (int64_t i = 0; i < size; ++i) data[i] = mark(from, to, i);
  return data;
}

void append(std::vector<std::byte>& to, const std::vector<std::byte>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Calls work(world) on each rank, once per algorithm.
template <class Work>
void on_all_algorithms(Collective collective, int ranks, const Work& work) {
  for (const Algorithm algorithm : algorithms_of(collective)) {
    SCOPED_TRACE(join_parts(name(collective), " by ", name(algorithm), " on ", ranks));
    run_ranks(ranks, [&](Communicator world) {
      world.use(algorithm);
      work(world);
    });
    if (testing::Test::HasFailure()) return;
  }
}

template <class Work>
void on_all_ranks(Collective collective, const Work& work) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) on_all_algorithms(collective, ranks, work);
}

TEST(Communicator, SumsAreThoseOfOnePlainLoopWhateverMovesThem) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const Dtype dtype : all_dtypes()) {
      for (const int64_t count : kCounts) {
        const auto wanted = sum_of_ranks(ranks, dtype, count);
        run_ranks(ranks, [&](Communicator world) {
          const auto mine = numbers_of(world.rank(), dtype, count);
          for (const Algorithm algorithm : algorithms_of(Collective::kAllReduce)) {
            world.use(algorithm);
            std::vector<std::byte> out(mine.size());
            world.all_reduce(dtype, mine, out).wait();
            EXPECT_EQ(out, wanted) << name(algorithm) << " on " << ranks << " ranks, " << count
                                   << " of " << name(dtype);
            std::vector<std::byte> same = mine;
            world.all_reduce(dtype, same, same).wait();
            EXPECT_EQ(same, wanted) << "in place, " << name(algorithm) << " on " << ranks;
          }
        });
      }
    }
  }
}

TEST(Communicator, SumsOfManyNumbersAreNoOthers) {
  for (const int ranks : {2, 5}) {
    const auto wanted = sum_of_ranks(ranks, Dtype::kBF16, kMany);
    on_all_algorithms(Collective::kAllReduce, ranks, [&](Communicator world) {
      auto data = numbers_of(world.rank(), Dtype::kBF16, kMany);
      world.all_reduce(Dtype::kBF16, data, data).wait();
      EXPECT_TRUE(data == wanted);
    });
  }
}

TEST(Communicator, AReduceScatterLeavesEachRankItsSegmentOfTheSum) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
    for (const int64_t each : {0, 1, 2049}) {
      on_all_ranks(Collective::kReduceScatter, [&](Communicator world) {
        const int64_t count = each * world.size(), size = each * size_of(dtype).count;
        const auto sum = sum_of_ranks(world.size(), dtype, count);
        const auto mine = numbers_of(world.rank(), dtype, count);
        std::vector<std::byte> out(size);
        world.reduce_scatter(dtype, mine, out).wait();
        EXPECT_TRUE(std::equal(out.begin(), out.end(), sum.begin() + world.rank() * size));
      });
    }
  }
}

TEST(Communicator, AMaximumIsOfAllRanksAndNotANumberWins) {
  on_all_ranks(Collective::kAllReduce, [&](Communicator world) {
    const float rank = static_cast<float>(world.rank());
    std::vector<float> x = {rank, -rank, world.rank() == 1 ? NAN : 3.0f};
    world.all_reduce(Dtype::kF32, bytes_of(x), bytes_of(x), Reduction::kMax).wait();
    EXPECT_EQ(x[0], static_cast<float>(world.size() - 1));
    EXPECT_EQ(x[1], 0.0f);
    EXPECT_EQ(std::isnan(x[2]), world.size() > 1);
  });
}

TEST(Communicator, ABroadcastIsTheRootsEverywhere) {
  for (const int64_t size : {0, 7, 10007}) {
    on_all_ranks(Collective::kBroadcast, [&](Communicator world) {
      for (int root = 0; root < world.size(); ++root) {
        auto data = marks(world.rank(), 0, size);
        world.broadcast(root, data).wait();
        EXPECT_EQ(data, marks(root, 0, size)) << "root " << root;
      }
    });
  }
}

TEST(Communicator, AScatterAndAGatherGoBetweenTheRootAndAll) {
  for (const int64_t size : {0, 1, 1001}) {
    for (const Collective collective : {Collective::kScatter, Collective::kGather}) {
      on_all_ranks(collective, [&](Communicator world) {
        for (int root = 0; root < world.size(); ++root) {
          std::vector<std::byte> whole, room(world.rank() == root ? size * world.size() : 0);
          for (int to = 0; to < world.size(); ++to) append(whole, marks(root, to, size));
          std::vector<std::byte> mine(size);
          world.scatter(root, world.rank() == root ? whole : std::vector<std::byte>{}, mine).wait();
          EXPECT_EQ(mine, marks(root, world.rank(), size)) << "root " << root;
          world.gather(root, mine, room).wait();
          EXPECT_EQ(room, world.rank() == root ? whole : std::vector<std::byte>{}) << root;
        }
      });
    }
  }
}

TEST(Communicator, AnAllGatherIsAllRanksSegmentsEverywhere) {
  for (const int64_t size : {0, 1, 1001}) {
    on_all_ranks(Collective::kAllGather, [&](Communicator world) {
      std::vector<std::byte> wanted, out(size * world.size());
      for (int from = 0; from < world.size(); ++from) append(wanted, marks(from, 0, size));
      world.all_gather(marks(world.rank(), 0, size), out).wait();
      EXPECT_EQ(out, wanted);
      std::vector<std::byte> in_place(size * world.size());
      const auto place = WriteBytes(in_place).subspan(world.rank() * size, size);
      std::ranges::copy(marks(world.rank(), 0, size), place.begin());
      world.all_gather(place, in_place).wait();
      EXPECT_EQ(in_place, wanted);
    });
  }
}

TEST(Communicator, AnAllToAllGivesEveryRankItsSegment) {
  for (const int64_t size : {0, 1, 1001}) {
    on_all_ranks(Collective::kAllToAll, [&](Communicator world) {
      std::vector<std::byte> in, wanted, out(size * world.size());
      for (int other = 0; other < world.size(); ++other) {
        append(in, marks(world.rank(), other, size));
        append(wanted, marks(other, world.rank(), size));
      }
      world.all_to_all(in, out).wait();
      EXPECT_EQ(out, wanted);
    });
  }
}

TEST(Communicator, NobodyLeavesABarrierBeforeAllHaveCome) {
  on_all_ranks(Collective::kBarrier, [&](Communicator world) {
    static std::atomic<int> come;
    if (world.rank() == 0) come = 0;
    world.barrier().wait();
    ++come;
    world.barrier().wait();
    EXPECT_EQ(come, world.size());
    world.barrier().wait();
  });
}

// Receives wait while messages arrive, so that one which arrives late could go to the wrong one.
TEST(Communicator, MessagesThatArriveWhileManyAreWantedKeepTheirOrder) {
  run_ranks(2, [&](Communicator world) {
    constexpr int kMessages = 20000;
    std::vector<int32_t> numbers(kMessages);
    std::vector<Pending> pending;
    for (int i = 0; i < kMessages; ++i) {
      const WriteBytes number = std::as_writable_bytes(std::span(numbers).subspan(i, 1));
      if (world.rank() == 0) numbers[i] = i;
      pending.push_back(world.rank() == 0 ? world.send(1, number) : world.receive(0, number));
    }
    for (Pending& each : pending) each.wait();
    for (int i = 0; i < kMessages; ++i) ASSERT_EQ(numbers[i], i);
  });
}

TEST(Communicator, MessagesBetweenTwoRanksKeepTheirOrder) {
  run_ranks(3, [&](Communicator world) {
    const int next = (world.rank() + 1) % 3, last = (world.rank() + 2) % 3;
    std::vector<std::vector<std::byte>> in(20), out(20);
    std::vector<Pending> pending;
    for (int i = 0; i < 20; ++i) {
      out[i] = marks(world.rank(), i, 100 * i);
      in[i].resize(100 * i);
      pending.push_back(world.send(next, out[i]));
      pending.push_back(world.receive(last, in[i]));
    }
    while (!pending.empty()) {
      pending.back().wait();
      pending.pop_back();
    }
    for (int i = 0; i < 20; ++i) EXPECT_EQ(in[i], marks(last, i, 100 * i));
  });
}

TEST(Communicator, CallsThatAreUnderWayTogetherMayBeWaitedForInAnyOrder) {
  run_ranks(4, [&](Communicator world) {
    constexpr int kCalls = 12;
    std::vector<std::vector<std::byte>> data;
    std::vector<Pending> pending;
    for (int i = 0; i < kCalls; ++i) data.push_back(numbers_of(world.rank(), Dtype::kF32, 997 * i));
    for (auto& each : data) pending.push_back(world.all_reduce(Dtype::kF32, each, each));
    // Every rank begins with another one.
    for (int i = 0; i < kCalls; ++i) pending[(i + 3 * world.rank()) % kCalls].wait();
    for (int i = 0; i < kCalls; ++i) EXPECT_EQ(data[i], sum_of_ranks(4, Dtype::kF32, 997 * i));
  });
}

TEST(Communicator, ASplitMakesGroupsThatDoNotDisturbEachOther) {
  run_ranks(6, [&](Communicator world) {
    // A mesh of 2 x 3: rows by color, and columns in the reverse order by key.
    const int row = world.rank() / 3, column = world.rank() % 3;
    const Communicator along = world.split(row, 0), across = world.split(column, -row);
    ASSERT_EQ(along.size(), 3);
    EXPECT_EQ(along.rank(), column);
    ASSERT_EQ(across.size(), 2);
    EXPECT_EQ(across.rank(), 1 - row);
    std::vector<int32_t> a = {world.rank()}, b = {world.rank()}, c = {world.rank()};
    Pending first = along.all_reduce(Dtype::kI32, bytes_of(a), bytes_of(a));
    Pending second = across.all_reduce(Dtype::kI32, bytes_of(b), bytes_of(b));
    Pending third = world.all_reduce(Dtype::kI32, bytes_of(c), bytes_of(c));
    third.wait(), second.wait(), first.wait();
    EXPECT_EQ(a[0], row == 0 ? 3 : 12);
    EXPECT_EQ(b[0], 2 * column + 3);
    EXPECT_EQ(c[0], 15);
    const Communicator alone = along.split(column, 0);  // a group of a group
    EXPECT_EQ(alone.size(), 1);
    alone.barrier().wait();
  });
}

TEST(Communicator, GroupsOfTheSameRanksDoNotTakeEachOthersMessages) {
  run_ranks(3, [&](Communicator world) {
    const std::vector<Communicator> twins = {world.split(0, 0), world.split(0, 0)};
    for (int i = 0; i < 20; ++i) {
      std::vector<std::vector<int32_t>> sums = {{1}, {10}};
      std::vector<Pending> pending;
      // Every other rank begins with the second.
      for (const int k : {world.rank() % 2, 1 - world.rank() % 2}) {
        pending.push_back(twins[k].all_reduce(Dtype::kI32, bytes_of(sums[k]), bytes_of(sums[k])));
      }
      for (Pending& each : pending) each.wait();
      EXPECT_EQ(sums[0][0], 3);
      EXPECT_EQ(sums[1][0], 30);
    }
  });
}

TEST(Communicator, TakesTheScratchThatItSaysItWants) {
  for (const Algorithm algorithm : algorithms_of(Collective::kAllReduce)) {
    run_ranks(5, [&](Communicator world) {
      world.use(algorithm);
      auto data = numbers_of(world.rank(), Dtype::kBF16, 1003);
      const int64_t size = static_cast<int64_t>(data.size());
      const Bytes wanted = world.scratch(Collective::kAllReduce, Dtype::kBF16, size);
      constexpr int64_t kGuard = 64;
      std::vector<std::byte> scratch(wanted.count + kGuard, std::byte{77});
      world
          .all_reduce(Dtype::kBF16, data, data, Reduction::kSum,
                      WriteBytes(scratch).first(wanted.count))
          .wait();
      EXPECT_EQ(data, sum_of_ranks(5, Dtype::kBF16, 1003));
      for (int64_t i = 0; i < kGuard; ++i) EXPECT_EQ(scratch[wanted.count + i], std::byte{77});
    });
  }
}

// As the collectives of a step: made once, begun in every one, several under way at a time.
TEST(Communicator, AStandingCallIsBegunAgainAndAgain) {
  constexpr int kRanks = 3;
  constexpr int64_t kRow = 4 * sizeof(float);
  for (const int64_t rows : {2, 7, 9}) {  // pieces of which the last are short, or empty
    const int64_t piece = (rows + kRanks - 1) / kRanks;
    run_ranks(kRanks, [&](Communicator world) {
      const int64_t mine = std::clamp<int64_t>(rows - world.rank() * piece, 0, piece);
      std::vector<float> terms(rows * 4), sum(mine * 4), whole(rows * 4);
      std::vector<std::byte> scratch(
          most_scratch({.collective = Collective::kReduceScatter,
                        .algorithm = algorithm_for(Collective::kReduceScatter, kRanks, rows * kRow),
                        .ranks = kRanks,
                        .whole = rows * kRow,
                        .element = sizeof(float),
                        .segment = piece * kRow})
              .count);
      const auto scatter = world.standing(Collective::kReduceScatter, Dtype::kF32, bytes_of(terms),
                                          bytes_of(sum), scratch, piece * kRow);
      const auto gather = world.standing(Collective::kAllGather, Dtype::kF32, bytes_of(sum),
                                         bytes_of(whole), {}, piece * kRow);
      for (int step = 0; step < 5; ++step) {
        for (size_t i = 0; i < terms.size(); ++i) {
          terms[i] = static_cast<float>(step + world.rank() + static_cast<int>(i));
        }
        scatter->begin();
        Pending other = world.barrier();
        scatter->wait();
        scatter->wait();  // nothing
        gather->begin();
        gather->wait();
        other.wait();
        for (size_t i = 0; i < whole.size(); ++i) {
          EXPECT_EQ(whole[i], 3.0f * static_cast<float>(step + static_cast<int>(i)) + 3);
        }
      }
    });
  }
}

TEST(Communicator, ARankThatThrowsEndsAllThatWaitForIt) {
  std::atomic<int> told = 0;
  const auto job = [&] {
    run_ranks(4, [&](Communicator world) {
      if (world.rank() == 2) fail("the data of rank 2 are broken");
      std::vector<float> x(1000);
      try {
        while (true) world.all_reduce(Dtype::kF32, bytes_of(x), bytes_of(x)).wait();
      } catch (const Aborted& end) {
        EXPECT_STREQ(end.what(),
                     "rank 2 ended before the first step: the data of rank 2 are broken");
        ++told;
        throw;
      }
    });
  };
  EXPECT_THROW(job(), Error);
  EXPECT_EQ(told, 3);
}

TEST(Communicator, ADeviceThatFailsToCopyEndsTheJob) {
  std::atomic<int> copies = 0, told = 0;
  const DeviceMemory memory = {.copy = [&](std::byte* to, const std::byte* from, int64_t size) {
    if (++copies == 30) throw MachineError("the GPU failed at a copy");
    std::memcpy(to, from, size);
  }};
  const auto job = [&] {
    run_ranks(3,
              [&](Communicator world) {
                world.progress(5, "wpe");
                std::vector<float> x(1000);
                try {
                  while (true) world.all_reduce(Dtype::kF32, bytes_of(x), bytes_of(x)).wait();
                } catch (const MachineError& end) {
                  EXPECT_TRUE(std::string(end.what()).ends_with("the GPU failed at a copy"));
                  ++told;
                  throw;
                }
              },
              {.memory = memory});
  };
  EXPECT_THROW(job(), MachineError);
  EXPECT_EQ(told, 3);
}

TEST(Communicator, ARankThatWaitsSleeps) {
  run_ranks(2, [&](Communicator world) {
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      world.barrier().wait();
      return;
    }
    const std::clock_t begin = std::clock();  // of all threads
    world.barrier().wait();
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 0.1);
  });
}

}  // namespace
}  // namespace adjoint

// One rank of a job that mpi_test.cpp starts: mpi_job <what>. Says "rank 2: ..." when it is done.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "comm/mpi.h"
#include "comm/terms.h"

namespace adjoint {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) fail(what);
}

void say(const Communicator& world, const std::string& text) {
  const std::string line = join_parts("rank ", world.rank(), ": ", text, "\n");
  std::fputs(line.c_str(), stdout);  // in one piece: ranks share the output
  std::fflush(stdout);
}

void collectives(Communicator world) {
  for (int a = 0; a < kNumAlgorithms; ++a) {
    const Algorithm algorithm = static_cast<Algorithm>(a);
    world.use(algorithm);
    for (const Dtype dtype : all_dtypes()) {
      for (const int64_t count : {0, 1, 5, 4099}) {
        auto data = numbers_of(world.rank(), dtype, count);
        world.all_reduce(dtype, data, data).wait();
        require(data == sum_of_ranks(world.size(), dtype, count),
                join_parts(count, " of ", name(dtype), " by ", name(algorithm)));
      }
    }
    // Larger than what MPI sends at once, and all under way together.
    constexpr int64_t kMany = 300001;
    auto first = numbers_of(world.rank(), Dtype::kF32, kMany), second = first;
    std::vector<std::byte> all(first.size() * world.size()), turned(all.size());
    Pending one = world.all_reduce(Dtype::kF32, first, first);
    Pending two = world.all_gather(second, all);
    two.wait();
    Pending three = world.all_to_all(all, turned);
    one.wait(), three.wait();
    require(first == sum_of_ranks(world.size(), Dtype::kF32, kMany), "many");
    for (int from = 0; from < world.size(); ++from) {
      const auto theirs = numbers_of(from, Dtype::kF32, kMany);
      const auto mine = numbers_of(world.rank(), Dtype::kF32, kMany);
      const auto at = static_cast<std::ptrdiff_t>(from * theirs.size());
      require(std::equal(theirs.begin(), theirs.end(), all.begin() + at), "all_gather");
      require(std::equal(mine.begin(), mine.end(), turned.begin() + at), "all_to_all");
    }
  }
  world.use(std::nullopt);
  const Communicator pair = world.split(world.rank() / 2, 0);
  std::vector<int32_t> sum = {world.rank()};
  pair.all_reduce(Dtype::kI32, bytes_of(sum), bytes_of(sum)).wait();
  require(sum[0] == (world.rank() / 2 * 2) * 2 + 1, "split");
  std::vector<int64_t> from_last(1), mine = {world.rank()};
  const int next = (world.rank() + 1) % world.size();
  Pending sent = world.send(next, bytes_of(mine));
  world.receive((world.rank() + world.size() - 1) % world.size(), bytes_of(from_last)).wait();
  sent.wait();
  require(from_last[0] == (world.rank() + world.size() - 1) % world.size(), "messages");
  world.agree(19, "version");
  try {
    world.agree(world.rank() == 2 ? 8 : 7, "configuration");
    fail("a difference was not noticed");
  } catch (const Error& refused) {
    say(world, refused.what());
  }
}

// Steps of an all-reduce; in the third one something happens to one rank.
void steps(Communicator world, int rank, void (*happens)()) {
  std::vector<float> weights(1000, 1);
  for (int64_t step = 1; step < 1000000; ++step) {
    world.progress(step, "block[3].qkv.weight");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (step == 3 && world.rank() == rank) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until others have heard of 3
      happens();
    }
    world.all_reduce(Dtype::kF32, bytes_of(weights), bytes_of(weights)).wait();
  }
}

void wait_for_another(Communicator world) {
  const std::clock_t begin = std::clock();  // of all threads of this rank
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
  world.barrier().wait();
  const double used = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  say(world, join_parts("used ", used, " s"));
}

void run(const std::string& what) {
  const auto launch = find_launch();
  if (!launch) fail("no launcher started this");
  const bool short_limit = what == "sleep" || what == "first_stops";
  const auto work = [&](const Communicator& world) {
    if (what == "collectives") collectives(world);
    if (what == "die") steps(world, 2, [] { ::raise(SIGKILL); });
    if (what == "first_dies") steps(world, 0, [] { ::raise(SIGKILL); });
    if (what == "first_stops") steps(world, 0, [] { ::raise(SIGSTOP); });
    if (what == "sleep") steps(world, 1, [] { ::sleep(60); });
    if (what == "throw") steps(world, 1, [] { throw MachineError("the disk is full"); });
    if (what == "disagree") world.agree(world.rank() / 3, "data");
    if (what == "wait") wait_for_another(world);
    say(world, "done");
  };
  run_launched(*launch, work, {.seconds = short_limit ? 1.0 : 60.0, .steps = 10});
}

}  // namespace
}  // namespace adjoint

int main(int, char** argv) {
  // As `adjoint train` does: a launcher that ends the job must not end the one who tells why.
  sigset_t endings;
  sigemptyset(&endings);
  sigaddset(&endings, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &endings, nullptr);
  try {
    adjoint::run(argv[1]);
    return 0;
  } catch (const adjoint::Aborted& end) {  // as main.cpp of adjoint
    if (!end.told) std::fprintf(stderr, "mpi_job: %s\n", end.what());
    return end.refused ? 1 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_job: %s\n", error.what());
    return 1;
  }
}

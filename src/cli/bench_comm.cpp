// adjoint bench comm: collectives between ranks, by threads of this process or, under mpirun, by
// MPI.
#include "cli/bench_comm.h"

#include <iostream>

#include "base/activity.h"
#include "base/error.h"
#include "base/text.h"
#include "bench/comm_bench.h"
#include "cli/answer.h"
#include "cli/interrupts.h"
#include "comm/mpi.h"
#include "comm/threads.h"

namespace adjoint {

namespace {

constexpr int64_t kMostThreadRanks = 256;

struct CommFlags {
  int64_t ranks = 0;
  std::vector<std::string> sizes;
  bool json = false;
};

CommBenchOptions comm_options(const CommFlags& flags) {
  CommBenchOptions options;
  if (!flags.sizes.empty()) options.sizes.clear();
  for (const std::string& text : flags.sizes) {
    const auto size = parse_bytes(text);
    if (!size || *size < Bytes{1} || *size > Bytes{kMostBytes}) {
      fail("--sizes: wanted sizes of 1 to ", human({kMostBytes}), " such as 64KiB, found '", text,
           "'");
    }
    options.sizes.push_back(*size);
  }
  return options;
}

CommBench timed_comm(const Communicator& world, const std::string& engine,
                     const CommBenchOptions& options) {
  const Activity activity("timing collectives", world.rank() == 0);
  return bench_comm(world, engine, options);
}

void show_comm(const CommBench& bench, bool json) {
  if (json) {
    print_answer("bench", comm_bench_json(bench));
  } else {
    std::cout << bench.ranks << " ranks, " << bench.engine << "\n\n" << comm_bench_table(bench);
  }
}

int run_comm(const CommFlags& flags) {
  CommBenchOptions options = comm_options(flags);
  if (const auto launch = find_launch()) {
    if (flags.ranks != 0 && flags.ranks != launch->ranks) {
      fail("--ranks: the launcher started ", launch->ranks, " ranks, found ", flags.ranks);
    }
    let_first_rank_tell(launch->rank);
    run_launched(*launch, [&](const Communicator& world) {
      options.library = &mpi_calls();
      const CommBench bench = timed_comm(world, mpi_calls().library, options);
      if (world.rank() == 0) show_comm(bench, flags.json);
    });
    return kDone;
  }
  const int64_t ranks = flags.ranks == 0 ? 2 : flags.ranks;
  if (ranks < 1 || ranks > kMostThreadRanks) {
    fail("--ranks: wanted 1 to ", kMostThreadRanks, ", found ", flags.ranks);
  }
  run_ranks(static_cast<int>(ranks), [&](const Communicator& world) {
    const CommBench bench = timed_comm(world, "threads of one process", options);
    if (world.rank() == 0) show_comm(bench, flags.json);
  });
  return kDone;
}

}  // namespace

void add_bench_comm(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<CommFlags>();
  CLI::App* comm = bench.add_subcommand(
      "comm", "collectives between ranks, by every algorithm, beside the library's own");
  comm->add_option("--ranks", flags->ranks, "threads of this process; under mpirun, its ranks");
  comm->add_option("--sizes", flags->sizes, "such as 1KiB,1MiB,16MiB")->delimiter(',');
  comm->add_flag("--json", flags->json, "as JSON");
  comm->callback([flags, &action] { action = [flags] { return run_comm(*flags); }; });
  comm->footer(
      "'by' is the algorithm that the cost model chooses; under each algorithm is its time over "
      "that\n"
      "of the chosen one, and 'of it' is our time over the library's. Reductions are of float32; "
      "ours\n"
      "add in rank order, whatever moves the bytes.\n"
      "Examples:\n"
      "  adjoint bench comm --ranks 4\n"
      "  mpirun -n 2 adjoint bench comm --sizes 64KiB,16MiB --json");
}

}  // namespace adjoint

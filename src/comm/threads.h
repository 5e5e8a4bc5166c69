// Ranks that are threads of one process: the rehearsal of a job on one machine, most tests, and
// several ranks on one GPU. A message is one copy, from the sender's memory to the receiver's.
#pragma once
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "comm/watchdog.h"

namespace adjoint {

// How memory that is not the host's is copied and reduced; empty: as the host's.
struct DeviceMemory {
  std::function<void(std::byte* to, const std::byte* from, int64_t size)> copy = nullptr;
  std::function<void(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                     int64_t count, std::byte* to)>
      reduce = nullptr;
};

struct ThreadOptions {
  DeviceMemory memory = {};
  WatchLimits limits = {};
  double grace = 5;  // seconds that ranks have to end by themselves when the job has ended
};

// The world of each rank, in order.
std::vector<Communicator> thread_world(int ranks, const ThreadOptions& options = {});

// Runs `work` once per rank, each on a thread of its own, and returns when all have ended. If one
// throws, the job is aborted: its error is thrown here, and the others end with Aborted.
void run_ranks(int ranks, const std::function<void(Communicator)>& work,
               const ThreadOptions& options = {});

}  // namespace adjoint

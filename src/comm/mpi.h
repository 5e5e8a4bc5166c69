// Ranks that are processes, started by mpirun or srun, whose messages MPI carries. MPI is opened
// when it is asked for (comm/mpi_calls.h), so the binary runs where there is none.
//
// MPI's own waits spin, and a rank that spins takes the processor from the rank that it waits for.
// So nothing here waits inside MPI: one thread asks what has arrived, and sleeps between its
// questions, longer the longer nothing does.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi_calls.h"
#include "comm/watchdog.h"

namespace adjoint {

// What a launcher says in the environment; nothing where none started this process.
struct JobLaunch {
  int ranks = 1, rank = 0;
  bool one_machine = false;   // that all ranks are on, as far as the launcher says
  std::string variable = {};  // that says so
  std::string library = {};   // "openmpi", "mpich"; empty: the launcher starts any
};
std::optional<JobLaunch> find_launch();

// Runs `work` as the rank of this process. If it throws, all ranks end: the user is told once, by
// one of them, and Aborted is thrown here.
void run_launched(const JobLaunch& launch, const std::function<void(Communicator)>& work,
                  const WatchLimits& limits = {});

// All ranks of the launch; once per process. An Error says in one sentence what is missing. From
// here on a rank that dies or is silent ends all others (comm/lifeline.h).
Communicator mpi_world(const JobLaunch& launch, const WatchLimits& limits = {});

// The libraries that can be opened (comm/mpi_calls.h), with their paths, as they lie beside this
// binary; none: ranks are threads.
std::vector<std::string> found_mpi_libraries();

// The library's own calls, to be measured beside ours; after mpi_world.
const MpiCalls& mpi_calls();

}  // namespace adjoint

#include "device/waiting.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace adjoint {

namespace {
// Some tens of microseconds. Milliseconds of a step (`bench step`, 2 threads on 2 cores), alone and
// beside two loops that never end, by the number of spins:
//              300000, libgomp's own   20000      4000       1000       0, "passive"
//   char       19.8      986           19.9  119  20.0  54   20.9  41   25.4  38
//   ref         524     2133                       534 1041                  972
constexpr const char* kSpins = "4000";
}  // namespace

void restart_with_short_waits(char** argv) {
#if !ADJOINT_STD_THREADS
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  // Started by way of a loader that was named by hand, /proc/self/exe is that loader.
  if (getauxval(AT_BASE) == 0) return;
  std::error_code none;
  // By its own name, so that lists of processes show it under that.
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  if (none || setenv("GOMP_SPINCOUNT", kSpins, 1) != 0) return;
  execv(program.c_str(), argv);  // comes back only if it fails, and then all goes on as it is
#else
  static_cast<void>(argv);
#endif
}

}  // namespace adjoint

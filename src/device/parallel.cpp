#include "device/parallel.h"

#include <atomic>
#include <cstdlib>

#include "device/limits.h"

namespace adjoint {

namespace {
std::atomic<int> g_threads = 0;  // ranks that are threads each say it, and all the same
int64_t g_grain = 0;
}  // namespace

void set_grain(int64_t grain) { g_grain = grain; }
int64_t grain_or(int64_t callers) { return g_grain ? g_grain : callers; }

int num_threads() {
  if (g_threads == 0) {
    const int here = available_processors();
#if ADJOINT_STD_THREADS
    set_num_threads(here);
#else
    // OpenMP sees which processors it may use, but not how much time a container has of them.
    const int most = omp_get_max_threads();
    set_num_threads(std::getenv("OMP_NUM_THREADS") ? most : std::min(most, here));
#endif
  }
  return g_threads;
}

void set_num_threads(int count) {
  g_threads = std::max(1, count);
#if !ADJOINT_STD_THREADS
  omp_set_num_threads(g_threads);  // oneDNN asks OpenMP
#endif
}

}  // namespace adjoint

#include "device/parallel.h"

namespace adjoint {

namespace {
int g_threads = 0;
int64_t g_grain = 0;
}  // namespace

void set_grain(int64_t grain) { g_grain = grain; }
int64_t grain_or(int64_t callers) { return g_grain ? g_grain : callers; }

int num_threads() {
  if (g_threads == 0) {
#if ADJOINT_STD_THREADS
    set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
#else
    set_num_threads(omp_get_max_threads());
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

#include "device/library_threads.h"

#include "device/parallel.h"

namespace adjoint {

#if ADJOINT_STD_THREADS
// There oneDNN runs on its caller's thread, and there is no OpenMP to tell.
LibraryThreads::LibraryThreads(int) {}
LibraryThreads::~LibraryThreads() = default;
#else
LibraryThreads::LibraryThreads(int count) : before_(omp_get_max_threads()) {
  omp_set_num_threads(std::max(1, count));
}
LibraryThreads::~LibraryThreads() { omp_set_num_threads(before_); }
#endif

}  // namespace adjoint

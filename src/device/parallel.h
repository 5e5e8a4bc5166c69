// The one way to use several cores. Work is cut into contiguous ranges, one per thread, which
// depend on nothing but the counts. It uses OpenMP, so that oneDNN and we share one pool of
// threads; the tsan build uses std::thread, because ThreadSanitizer does not understand libgomp.
#pragma once
#include <algorithm>
#include <cstdint>

#if ADJOINT_STD_THREADS
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace adjoint {

int num_threads();
void set_num_threads(int count);

// For tests: replaces the grain of all callers; 0: callers' own grains hold.
void set_grain(int64_t grain);
int64_t grain_or(int64_t callers);

// Calls body(begin, end, thread) on ranges that cover [0, n). `grain` is the least work worth a
// thread of its own.
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  const int64_t wanted =
      std::min<int64_t>(num_threads(), n / std::max<int64_t>(grain_or(grain), 1));
  if (wanted <= 1) {
    if (n > 0) body(int64_t{0}, n, 0);
    return;
  }
  const auto run = [&](int64_t thread) {
    const int64_t begin = n * thread / wanted, end = n * (thread + 1) / wanted;
    if (begin < end) body(begin, end, static_cast<int>(thread));
  };
#if ADJOINT_STD_THREADS
  std::vector<std::thread> others;
  for (int64_t t = 1; t < wanted; ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& other : others) other.join();
#else
  // The runtime may give fewer threads than wanted; inside a parallel region it gives one.
#pragma omp parallel num_threads(static_cast <int>(wanted))
  for (int64_t t = omp_get_thread_num(); t < wanted; t += omp_get_num_threads()) run(t);
#endif
}

}  // namespace adjoint

// Functions with this mark are compiled for AVX-512, AVX2 and plain x86-64, and the loader chooses.
#if defined(__x86_64__) && !ADJOINT_NO_CLONES && !defined(__clang__)
#define ADJOINT_SIMD \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), noinline))
#else
#define ADJOINT_SIMD __attribute__((noinline))
#endif
#define ADJOINT_INLINE inline __attribute__((always_inline))

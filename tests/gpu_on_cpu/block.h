// A block of CUDA's threads on one thread of the CPU: each is a fiber that runs until it waits for
// others. Whoever can run does so as far as possible before the next one's turn, in one order or
// the other, so two threads that should have waited for each other are as far apart as they can be.
#pragma once
#include "gpu_on_cpu/machine.h"

namespace adjoint {

enum class ThreadOrder { kFirstToLast, kLastToFirst };  // of threads, and of blocks
void set_thread_order(ThreadOrder order);

// Calls the kernel once for every thread of every block. An Error says which rule of CUDA's the
// kernel broke where threads meet.
using KernelFunction = void (*)(const void* parameter);
void run_grid(KernelFunction kernel, const void* parameter, KernelMachine::Index grid,
              unsigned threads);

// What loaded kernels are given.
KernelMachine& kernel_machine();

}  // namespace adjoint

// Runs a block of CUDA threads on one thread of the CPU. Each is a fiber that runs until it waits
// for others, and only then the next one runs, in one order or the reverse. So two threads that
// lack a synchronization are as far apart as they can be.
#pragma once
#include "gpu_on_cpu/machine.h"

namespace adjoint {

enum class ThreadOrder { kFirstToLast, kLastToFirst };  // of threads, and of blocks
void set_thread_order(ThreadOrder order);

// Calls the kernel once for every thread of every block. Throws an Error if the kernel breaks a
// rule of CUDA's synchronization.
using KernelFunction = void (*)(const void* parameter);
void run_grid(KernelFunction kernel, const void* parameter, KernelMachine::Index grid,
              unsigned threads);

// The functions that loaded kernels call.
KernelMachine& kernel_machine();

}  // namespace adjoint

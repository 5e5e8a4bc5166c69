// The one order of sums (comm/reduction.h) in the memory of a GPU: the same bits, except for which
// NaN a NaN is. For ranks that share a GPU, and for NCCL where its own sums would be in another
// order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/reduction.h"
#include "comm/threads.h"
#include "device/target.h"

namespace adjoint {

constexpr int kMostGpuTerms = 256;  // their addresses are parameters of the kernel

// Enqueues the reduction on a stream (a cudaStream_t).
void reduce_on_gpu(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                   int64_t count, std::byte* to, void* stream);

// For thread_world on one GPU: bytes are those of the GPU or of the host, which their addresses
// tell. A call begins when its input is there, so who starts one has synchronized the stream that
// made the input; when the call is done, so are its copies and sums.
DeviceMemory gpu_memory();
// What ranks of one process need to run steps of a target.
inline DeviceMemory memory_of(Target target) {
  return target == Target::kCuda ? gpu_memory() : DeviceMemory{};
}

}  // namespace adjoint

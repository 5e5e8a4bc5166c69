// For builds without CUDA: open_gpu says what is missing, and nothing else is reached.
#include "base/error.h"
#include "comm/gpu_group.h"
#include "comm/gpu_reduction.h"
#include "device/gpu.h"

namespace adjoint {

namespace {

[[noreturn]] void refuse() {
  open_gpu();
  CHECK(false, "a binary without CUDA opens no GPU");
  std::abort();
}

}  // namespace

GpuGroup::GpuGroup(const Communicator& group, bool deterministic)
    : group_(group), deterministic_(deterministic) {
  refuse();
}
GpuGroup::~GpuGroup() = default;
void GpuGroup::check() { refuse(); }
void GpuGroup::open_messages() { refuse(); }
GpuMessages& GpuGroup::messages() { refuse(); }
void GpuGroup::send(int, ReadBytes, void*) { refuse(); }
void GpuGroup::receive(int, WriteBytes, void*) { refuse(); }
void GpuGroup::broadcast(int, WriteBytes, void*) { refuse(); }
void GpuGroup::all_gather(ReadBytes, WriteBytes, void*) { refuse(); }
void GpuGroup::all_to_all(ReadBytes, WriteBytes, void*) { refuse(); }
void GpuGroup::reduce_scatter(Dtype, ReadBytes, WriteBytes, Reduction, WriteBytes, void*) {
  refuse();
}
void GpuGroup::all_reduce(Dtype, ReadBytes, WriteBytes, Reduction, WriteBytes, void*) { refuse(); }
Bytes GpuGroup::scratch(Collective, Dtype, int64_t) const { refuse(); }

void reduce_on_gpu(Reduction, Dtype, std::span<const std::byte* const>, int64_t, std::byte*,
                   void*) {
  refuse();
}
DeviceMemory gpu_memory() { refuse(); }

}  // namespace adjoint

// For builds without CUDA: ranks open no GPUs, so there are no messages between them.
#include <cstdlib>

#include "base/error.h"
#include "comm/gpu_messages.h"
#include "device/gpu.h"

namespace adjoint {

namespace {

[[noreturn]] void refuse() {
  open_gpu();
  CHECK(false, "a binary without CUDA opens no GPU");
  std::abort();
}

}  // namespace

struct GpuMessages::Lane {};
struct GpuMessage::Parts {};

GpuMessage::GpuMessage(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) { refuse(); }
GpuMessage::~GpuMessage() = default;
void GpuMessage::begin(void*) { refuse(); }
void GpuMessage::wait() { refuse(); }

GpuMessages::GpuMessages(const Communicator&) { refuse(); }
GpuMessages::~GpuMessages() = default;
std::shared_ptr<GpuMessage> GpuMessages::send(int, ReadBytes) { refuse(); }
std::shared_ptr<GpuMessage> GpuMessages::receive(int, WriteBytes) { refuse(); }

}  // namespace adjoint

#include <exception>

#include "comm/gpu_messages.h"
#include "comm/nccl_check.h"
#include "device/buffer.h"
#include "device/cuda_check.h"
#include "device/gpu.h"

namespace adjoint {

// One direction between two ranks: of NCCL's two, the sender is the first and the receiver the
// second.
struct GpuMessages::Lane {
  enum class End : int { kSender, kReceiver };

  Lane(const nccl::Key& key, End own_end) : end(own_end), exceptions(std::uncaught_exceptions()) {
    check_nccl(nccl::init_rank(&comm, 2, key, static_cast<int>(end)),
               "opening a lane of messages between two GPUs");
  }
  ~Lane() {
    // A job that fails does not wait for work of ranks that may be gone.
    if (std::uncaught_exceptions() > exceptions) {
      nccl::abort(comm);
    } else {
      nccl::destroy(comm);
    }
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void enqueue(std::byte* data, size_t size) {
    if (end == End::kSender) {
      check_nccl(nccl::send(data, size, nccl::kUint8, 1, comm, stream.handle()), "a send");
    } else {
      check_nccl(nccl::receive(data, size, nccl::kUint8, 0, comm, stream.handle()), "a receive");
    }
  }

  End end;
  int exceptions;  // that were under way when it was made
  GpuStream stream;
  nccl::Comm* comm = nullptr;
};

namespace {

// A point in a stream. The host sleeps until it is reached.
struct Point {
  Point() {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
               "preparing a message");
  }
  ~Point() { cudaEventDestroy(event); }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  void mark(cudaStream_t stream) { check_cuda(cudaEventRecord(event, stream), "a message"); }
  void hold_up(cudaStream_t stream) {
    check_cuda(cudaStreamWaitEvent(stream, event, 0), "a message");
  }
  void wait() { check_cuda(cudaEventSynchronize(event), "a message"); }

  cudaEvent_t event = nullptr;
};

}  // namespace

struct GpuMessage::Parts {
  Parts(GpuMessages::Lane& on, std::byte* at, size_t bytes) : lane(on), data(at), size(bytes) {}
  GpuMessages::Lane& lane;
  std::byte* data;
  size_t size;
  Point ready, done;
};

GpuMessage::GpuMessage(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
GpuMessage::~GpuMessage() = default;

void GpuMessage::begin(void* stream) {
  const cudaStream_t lane = cuda_stream(parts_->lane.stream.handle());
  parts_->ready.mark(cuda_stream(stream));
  parts_->ready.hold_up(lane);
  parts_->lane.enqueue(parts_->data, parts_->size);
  parts_->done.mark(lane);
}

void GpuMessage::wait() { parts_->done.wait(); }

// Lanes are opened in one order, that of their ends, and so are those of every rank: the first that
// is not yet open has both its ends free for it.
GpuMessages::GpuMessages(const Communicator& group) : to_(group.size()), from_(group.size()) {
  if (group.size() > kMostRanks) {
    fail("messages between GPUs go among at most ", kMostRanks, " ranks, found ", group.size(),
         ": take fewer stages");
  }
  open_gpu();
  nccl::library.open();
  Buffer byte({1}, Memory::kGpu);
  for (int from = 0; from < group.size(); ++from) {
    for (int to = 0; to < group.size(); ++to) {
      const bool sends = group.rank() == from, receives = group.rank() == to;
      if (sends == receives) continue;
      nccl::Key key = {};
      if (sends) {
        check_nccl(nccl::get_key(&key), "its start");
        group.send(to, std::as_bytes(std::span(&key, 1))).wait();
      } else {
        group.receive(from, std::as_writable_bytes(std::span(&key, 1))).wait();
      }
      std::unique_ptr<Lane>& lane = sends ? to_[to] : from_[from];
      lane = std::make_unique<Lane>(key, sends ? Lane::End::kSender : Lane::End::kReceiver);
      lane->enqueue(byte.data(), 1);
      lane->stream.synchronize();
    }
  }
}
GpuMessages::~GpuMessages() = default;

std::shared_ptr<GpuMessage> GpuMessages::send(int to, ReadBytes data) {
  CHECK(to_.at(to) != nullptr, "a message goes to another rank");
  return std::shared_ptr<GpuMessage>(new GpuMessage(std::make_unique<GpuMessage::Parts>(
      *to_[to], const_cast<std::byte*>(data.data()), data.size())));
}

std::shared_ptr<GpuMessage> GpuMessages::receive(int from, WriteBytes data) {
  CHECK(from_.at(from) != nullptr, "a message comes from another rank");
  return std::shared_ptr<GpuMessage>(
      new GpuMessage(std::make_unique<GpuMessage::Parts>(*from_[from], data.data(), data.size())));
}

}  // namespace adjoint

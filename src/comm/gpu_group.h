// A group of ranks with a GPU each, whose memory NCCL moves. Unlike a Communicator's, these calls
// are work of a stream: they are enqueued, begin when what was enqueued before them is done, and
// can be recorded with the step.
//
// NCCL adds in an order that depends on sizes and on the machine. A deterministic group exchanges
// terms along the routes of comm/route.h instead, and adds them as all engines do, with their bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "comm/gpu_messages.h"

namespace adjoint {

namespace nccl {
struct Comm;
}

class GpuGroup {
 public:
  // All ranks of `group` come here; it carries the key by which their GPUs find each other. An
  // Error says what is missing.
  GpuGroup(const Communicator& group, bool deterministic);
  ~GpuGroup();
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // Sizes are bytes, spans are of the GPU, `stream` is a cudaStream_t. What a span holds is as in
  // Communicator.
  void send(int to, ReadBytes data, void* stream);
  void receive(int from, WriteBytes data, void* stream);
  void broadcast(int root, WriteBytes data, void* stream);
  void all_gather(ReadBytes in, WriteBytes out, void* stream);
  void all_to_all(ReadBytes in, WriteBytes out, void* stream);
  void reduce_scatter(Dtype dtype, ReadBytes in, WriteBytes out, Reduction reduction,
                      WriteBytes scratch, void* stream);
  void all_reduce(Dtype dtype, ReadBytes in, WriteBytes out, Reduction reduction,
                  WriteBytes scratch, void* stream);
  // Scratch that a reduction of `whole` bytes wants; none unless the group is deterministic.
  Bytes scratch(Collective collective, Dtype dtype, int64_t whole) const;

  // Messages of a step, which do not wait for each other as the calls above do (gpu_messages.h).
  // All ranks open them.
  void open_messages();
  GpuMessages& messages();

  // Throws a MachineError if NCCL has failed since; the calls above return before their work is
  // done.
  void check();

 private:
  RouteRequest request(Collective collective, Dtype dtype, int64_t whole) const;
  void follow(const Route& route, Dtype dtype, Reduction reduction, ReadBytes in, WriteBytes out,
              WriteBytes scratch, void* stream);

  Communicator group_;
  bool deterministic_ = false;
  int exceptions_ = 0;  // that were under way when it was made
  nccl::Comm* comm_ = nullptr;
  std::unique_ptr<GpuMessages> messages_;  // none until they are opened
};

}  // namespace adjoint

// Messages between ranks with a GPU each, by NCCL.
//
// NCCL may end a send only when its receiver has begun to receive, and a stream runs its work in
// order: two ranks that send to each other before they receive, each on one stream, would wait
// forever. NCCL keeps the calls of one of its communicators in order as well, whatever their
// streams. So each direction between two ranks, a lane, has a communicator of NCCL's for these two
// and at either end a stream, which hold nothing but the messages of that lane, in the order in
// which they are begun. A message waits for those before it in its lane, for its other end, and for
// what the rank's own stream held when it was begun; to begin one waits for nobody.
//
// CUDA keeps 32 streams apart at most, and may put the work of more of them in one queue, where it
// would wait after all. So there are at most 13 ranks: a rank has two lanes with each of the
// others, and leaves 8 streams to a step, an evaluation and NCCL.
#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace adjoint {

class GpuMessages;

// One message that is sent or received many times.
class GpuMessage {
 public:
  ~GpuMessage();
  GpuMessage(const GpuMessage&) = delete;
  GpuMessage& operator=(const GpuMessage&) = delete;

  // Enqueues it, to begin when all is done that `stream` (a cudaStream_t) holds by now. The time
  // before must be done.
  void begin(void* stream);
  // Until it has arrived; of a send, until its bytes may be used again.
  void wait();

 private:
  friend class GpuMessages;
  struct Parts;
  explicit GpuMessage(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

class GpuMessages {
 public:
  // All ranks of `group` come here, and leave when all lanes are connected: a first message would
  // otherwise wait on the host for its other end. An Error says what is missing.
  explicit GpuMessages(const Communicator& group);
  ~GpuMessages();
  GpuMessages(const GpuMessages&) = delete;
  GpuMessages& operator=(const GpuMessages&) = delete;

  // They refer to lanes of this.
  std::shared_ptr<GpuMessage> send(int to, ReadBytes data);
  std::shared_ptr<GpuMessage> receive(int from, WriteBytes data);

  // More than these are refused.
  static constexpr int kMostRanks = 13;

 private:
  friend class GpuMessage;
  struct Lane;
  std::vector<std::unique_ptr<Lane>> to_, from_;  // by rank; none with itself
};

}  // namespace adjoint

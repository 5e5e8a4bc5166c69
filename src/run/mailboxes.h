// What every step is given goes to the GPU by way of pinned memory, so that the host need not wait
// for the step before. Two places: one is filled while the other is on its way. It lands while that
// step still runs, and takes its place, a copy inside the GPU, when it is done.
#pragma once
#include <array>
#include <map>
#include <memory>

#include "device/buffer.h"
#include "device/gpu.h"
#include "scheme/scheme.h"

namespace adjoint {

class Mailboxes {
 public:
  explicit Mailboxes(std::shared_ptr<GpuStream> work) : work_(std::move(work)) {}

  struct Letter {
    const void* from;
    Bytes size;
    Bytes room;  // of the whole object
    void* to;
    std::byte* landing;  // planned bytes beside the state; none: it goes straight to its place
  };
  void send(Value v, const Letter& letter);

 private:
  struct Mailbox {
    std::array<Buffer, 2> places = {};
    std::unique_ptr<GpuClock> clock = nullptr;
    size_t next = 0;
  };

  std::shared_ptr<GpuStream> work_;
  std::map<Value, Mailbox> boxes_;
  std::unique_ptr<GpuStream> arrivals_;  // of data for the next step, beside this one
};

}  // namespace adjoint

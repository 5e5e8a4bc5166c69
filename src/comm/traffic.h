// All calls of one rank that are under way, and the thread that moves them. It is the only one that
// uses the wire. It sleeps until a message arrives, until somebody starts a call, or until the job
// is aborted; a rank that waits uses no processor.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace adjoint {

// One call on its route.
class Journey {
 public:
  explicit Journey(Route moves);
  const Route route;
  std::vector<int> members;            // ranks of the group in the world
  uint32_t channel = 0, sequence = 0;  // the key of its messages
  std::byte* pieces[3] = {};           // in, out, scratch
  Dtype dtype = Dtype::kU8;
  Reduction reduction = Reduction::kSum;
  std::vector<std::byte> own_scratch = {};

  bool done() const { return done_.load(std::memory_order_acquire); }
  void wait_quietly() noexcept;
  void start_again();  // from the first round, with another sequence; nobody may be waiting

 private:
  friend class Traffic;
  std::byte* at(const RouteRegion& region) const {
    return pieces[static_cast<int>(region.piece)] + region.begin;
  }
  bool advance(Wire& wire);  // as far as it goes; true: it has arrived
  void begin_round(Wire& wire);
  void end_round(Wire& wire);
  void finish(std::exception_ptr trouble);

  size_t round_ = 0;
  bool posted_ = false;
  // Of the round. A wire holds the addresses of parcels, so there is room for those of any round.
  std::vector<Parcel> parcels_;
  std::vector<const std::byte*> terms_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::atomic<bool> done_ = false;
  std::exception_ptr trouble_;
};

class Traffic {
 public:
  explicit Traffic(std::unique_ptr<Wire> wire);
  ~Traffic();  // what is under way arrives, or is aborted
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void start(std::shared_ptr<Journey> journey);
  void wait(Journey& journey);  // throws what went wrong
  // Ends the job on all ranks, and says where this one was.
  Aborted abort(const std::string& reason);
  // The same because the input was wrong: the reason alone says all.
  Aborted refuse(const std::string& reason);
  Wire& wire() { return *wire_; }
  // Channels that no group of this rank has used; see Communicator::split.
  uint32_t next_channel = 0;

 private:
  void drive();
  void fail_all(std::exception_ptr trouble);

  std::unique_ptr<Wire> wire_;
  std::atomic<int> waiters_ = 0;
  // The driver's own. The lists have room for more calls than a step has under way, so that none is
  // made longer while a step runs.
  std::vector<std::shared_ptr<Journey>> under_way_, starting_;
  std::exception_ptr ended_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Journey>> started_;
  bool over_ = false;
  std::thread driver_;
};

}  // namespace adjoint

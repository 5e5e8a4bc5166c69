// What an engine must do, and no more: messages between two ranks, and the end of them all.
// Collectives are written once, above it (comm/route.h). Calls that move bytes
// come from one thread, that of comm/traffic.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "comm/reduction.h"
#include "comm/route.h"

namespace adjoint {

// Why a job ended on all ranks: one of them died, was silent, or gave up.
class Aborted : public MachineError {
 public:
  explicit Aborted(const std::string& reason, bool was_told = false, bool was_refused = false)
      : MachineError(reason), told(was_told), refused(was_refused) {}
  bool told = false;     // to the user, by one rank for all
  bool refused = false;  // because the input was wrong, and not because the machine failed
};

// One message under way. Messages of one key between two ranks arrive in the order in which they
// were posted; those of different keys do not wait for each other.
struct Parcel {
  int peer = 0;  // of the world
  bool sends = false;
  uint32_t channel = 0, sequence = 0;  // the key
  std::byte* data = nullptr;
  int64_t size = 0;
  bool done = false;   // set by the wire; the bytes may then be used again
  int64_t handle = 0;  // for the wire's own use
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Fabric fabric() const = 0;
  virtual bool one_process() const { return false; }  // ranks share a process, and its GPU

  // Begins the message and returns; the parcel stays where it is until it is done or withdrawn.
  virtual void post(Parcel& parcel) = 0;
  // Moves what can be moved, and marks what is done.
  virtual void poll() = 0;
  // Sleeps until `poll` may find something, or until `wake`. `idle`: nothing is posted.
  virtual void wait(bool idle) = 0;
  virtual void wake() = 0;
  // After an abort: returns when nobody touches the parcel's bytes any more.
  virtual void withdraw(Parcel& parcel) = 0;

  // Ends the job on all ranks; `poll` and `post` throw Aborted from then on. The first reason
  // holds. `refused`: the input was wrong, and not the machine.
  // Returns whether the user was told.
  virtual bool abort(const std::string& reason, bool refused) = 0;

  // News for the watchdog (comm/watchdog.h), from any thread.
  virtual void progress(int64_t step, std::string_view object) = 0;
  virtual void alive() = 0;            // where it was
  virtual void waits(bool waits) = 0;  // for other ranks
  virtual std::string place() = 0;     // "at step 17 in 'block[3].qkv.weight'"

  // Memory that is not the host's (several ranks on one GPU) is copied and reduced by its device.
  virtual void copy(std::byte* to, const std::byte* from, int64_t size);
  virtual void reduce(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                      int64_t count, std::byte* to);
};

}  // namespace adjoint

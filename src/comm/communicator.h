// One rank's view of a group of ranks that work together. Every call begins at once and returns a
// Pending; a thread of the rank moves the bytes while the caller computes.
//
// The ranks of a group make the same collective calls in the same order, and wait for them in any.
// Messages between two ranks of a group arrive in the order in which they were sent. Memory that is
// given to a call stays untouched until its Pending is done. `in` and `out` may be the same memory
// in an all-reduce, and in an all-gather `in` may be its own place in `out`.
//
// Sums are in rank order 0..n-1, in float32 (f64 in f64), rounded once (comm/reduction.h), whatever
// moves the bytes (comm/route.h) and whichever engine (comm/wire.h) is below.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/reduction.h"
#include "comm/route.h"
#include "comm/wire.h"

namespace adjoint {

class GpuGroup;
class Journey;
class Traffic;

using ReadBytes = std::span<const std::byte>;
using WriteBytes = std::span<std::byte>;

template <class T>
ReadBytes bytes_of(const std::vector<T>& data) {
  return std::as_bytes(std::span(data));
}
template <class T>
WriteBytes bytes_of(std::vector<T>& data) {
  return std::as_writable_bytes(std::span(data));
}

// A call that is under way. Whoever drops it waits for it.
class [[nodiscard]] Pending {
 public:
  Pending() = default;  // nothing: done
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();

  // Sleeps until the call is done; throws Aborted if the job has ended.
  void wait();
  bool done() const;

 private:
  friend class Communicator;
  Pending(std::shared_ptr<Traffic> traffic, std::shared_ptr<Journey> journey)
      : traffic_(std::move(traffic)), journey_(std::move(journey)) {}
  std::shared_ptr<Traffic> traffic_;
  std::shared_ptr<Journey> journey_;
};

class Standing;

class Communicator {
 public:
  // The world of an engine: comm/threads.h, comm/mpi.h.
  explicit Communicator(std::unique_ptr<Wire> wire);

  int rank() const;
  int size() const;
  bool one_process() const;  // the ranks are threads of one process, which share its GPU

  // The ranks that say the same color, ordered by key, then by rank; all ranks of this group call.
  Communicator split(int color, int key) const;

  Pending send(int to, ReadBytes data) const;
  Pending receive(int from, WriteBytes data) const;

  Pending broadcast(int root, WriteBytes data) const;
  // `in` counts on the root alone, where it holds every rank's `out`, in rank order; and the
  // reverse.
  Pending scatter(int root, ReadBytes in, WriteBytes out) const;
  Pending gather(int root, ReadBytes in, WriteBytes out) const;
  Pending all_gather(ReadBytes in, WriteBytes out) const;
  Pending all_to_all(ReadBytes in, WriteBytes out) const;  // segment i of `in` goes to rank i
  Pending barrier() const;

  // Of the reduced `in`, reduce_scatter leaves segment `rank` in `out`. Both want `scratch` bytes
  // (see below) and take them themselves where none are given.
  Pending reduce_scatter(Dtype dtype, ReadBytes in, WriteBytes out,
                         Reduction reduction = Reduction::kSum, WriteBytes scratch = {}) const;
  Pending all_reduce(Dtype dtype, ReadBytes in, WriteBytes out,
                     Reduction reduction = Reduction::kSum, WriteBytes scratch = {}) const;
  // A call that is made once and begun in every step. Segments of an all-gather and a
  // reduce-scatter have `segment` bytes each, the last ones what is left of the whole; 0: all are
  // equal. It takes no scratch of its own.
  std::shared_ptr<Standing> standing(Collective collective, Dtype dtype, ReadBytes in,
                                     WriteBytes out, WriteBytes scratch, int64_t segment = 0) const;
  // Scratch that a call on `whole` bytes (the larger of `in` and `out`) wants on this rank.
  Bytes scratch(Collective collective, Dtype dtype, int64_t whole) const;

  // The algorithm that a call on `whole` bytes takes; the same on every rank and every engine.
  Algorithm choice(Collective collective, int64_t whole) const;
  // Every call takes this algorithm if it has it; for tests, measurements, and where scratch is
  // planned. All ranks say the same.
  void use(std::optional<Algorithm> algorithm);

  // The GPUs of these ranks, where each has one of its own (comm/gpu_group.h); null: they share
  // one, or have none. Whoever sets it keeps it as long as calls are made (comm/seat.h).
  GpuGroup* gpus() const;
  void set_gpus(GpuGroup* gpus);

  // Refuses a job whose ranks were given different things: all of them throw an Error that names
  // the ranks whose hash of `what` ("configuration", "version") is not that of most.
  void agree(uint64_t hash, std::string_view what) const;

  // Where this rank is. A rank that says nothing for too long is taken for dead (comm/watchdog.h),
  // so whatever takes its time says so: tuning, tokenizing, saving.
  void progress(int64_t step, std::string_view object) const;

  // Ends the job on all ranks of the world: "rank 2 ended at step 17 in 'x': <reason>".
  [[noreturn]] void abort(const std::string& reason) const;
  // The same because of wrong input, which often every rank finds: it is told once, and names the
  // rank only where not all ranks found it.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  friend class Standing;
  struct Group;
  explicit Communicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  RouteRequest request(Collective collective, int64_t whole, int root, int64_t element) const;
  std::shared_ptr<Journey> make_journey(const RouteRequest& request, ReadBytes in, WriteBytes out,
                                        WriteBytes scratch, Dtype dtype, Reduction reduction) const;
  Pending start(const RouteRequest& request, ReadBytes in, WriteBytes out, WriteBytes scratch,
                Dtype dtype, Reduction reduction) const;
  std::shared_ptr<Group> group_;
};

// A collective that is begun many times, each time like a call of its group. Neither to begin it
// nor to wait for it takes memory.
class Standing {
 public:
  ~Standing();
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

  void begin();  // the time before must be done
  void wait();   // as Pending's; where it was not begun, nothing

 private:
  friend class Communicator;
  Standing(std::shared_ptr<Communicator::Group> group, std::shared_ptr<Journey> journey)
      : group_(std::move(group)), journey_(std::move(journey)) {}
  std::shared_ptr<Communicator::Group> group_;
  std::shared_ptr<Journey> journey_;
  bool begun_ = false;
};

}  // namespace adjoint

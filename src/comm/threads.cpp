#include "comm/threads.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>
#include <tuple>

namespace adjoint {

namespace {

constexpr int kMachineFailed = 3;  // the exit code of adjoint (cli/command.h)

constexpr size_t kUsualMessages = 1024;  // under way, of one rank; more take memory

using Key = std::tuple<int, uint32_t, uint32_t>;  // the sender, channel, sequence

Key key_of(const Parcel& wanted) { return {wanted.peer, wanted.channel, wanted.sequence}; }

// A message in its sender's memory.
struct Offer {
  Key key;
  Parcel* parcel;
};

struct Mailbox {
  Mailbox() {
    offered.reserve(kUsualMessages);
    taken.reserve(kUsualMessages);
  }
  std::mutex mutex;
  std::condition_variable rung;
  bool ringing = false;        // something is new since the owner last looked
  std::vector<Offer> offered;  // to the owner, in the order in which they were sent
  std::vector<Parcel*> taken;  // the owner's own messages that were copied

  void ring() {
    ringing = true;
    rung.notify_all();
  }
};

constexpr int64_t kOffered = 1;  // the handle of a message that a receiver may be copying

// What the ranks of a job share.
struct Exchange {
  Exchange(int ranks, const ThreadOptions& options)
      : boxes(ranks),
        memory(options.memory),
        dog(ranks, options.limits, now()),
        watcher([this, options] { watch(options); }) {}
  ~Exchange() {
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    watcher.join();
  }

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  void abort(const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (!reason) reason = why;
    }
    for (Mailbox& box : boxes) {
      const std::lock_guard lock(box.mutex);
      box.ring();
    }
  }

  void watch(const ThreadOptions& options) {
    // Often enough that the limit is kept to an eighth.
    const std::chrono::duration<double> beat(std::clamp(options.limits.seconds / 8, 0.01, 1.0));
    double ended_at = 0;
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, beat, [&] { return over; })) {
      if (reason) {
        if (ended_at == 0) ended_at = now();
        // A thread that never comes back cannot be ended alone.
        if (now() - ended_at > options.grace) {
          std::fprintf(stderr, "adjoint: the job ends: %s\n", reason->c_str());
          ::_exit(kMachineFailed);
        }
      } else if (const auto verdict = dog.verdict(now())) {
        lock.unlock();
        abort(*verdict);
        lock.lock();
      }
    }
  }

  std::deque<Mailbox> boxes;
  DeviceMemory memory;

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> reason;  // of the abort
  bool over = false;
  Watchdog dog;
  std::thread watcher;
};

class ThreadWire : public Wire {
 public:
  ThreadWire(std::shared_ptr<Exchange> exchange, int rank)
      : exchange_(std::move(exchange)), rank_(rank) {
    wanted_.reserve(kUsualMessages);
  }
  ~ThreadWire() override {
    const std::lock_guard lock(exchange_->mutex);
    exchange_->dog.leaves(rank_);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(exchange_->boxes.size()); }
  bool one_process() const override { return true; }
  // A message is a handshake of two threads that sleep. Near what `adjoint bench comm` fitted to
  // two ranks on two cores with other users: 12 us and 2.9 GB/s.
  Fabric fabric() const override {
    return {.latency = 12e-6, .seconds_per_byte = 3.5e-10, .seconds_per_term = 1e-10};
  }

  void post(Parcel& parcel) override {
    throw_if_aborted();
    if (!parcel.sends) {
      wanted_.push_back(&parcel);
      fetch();
      return;
    }
    Mailbox& box = exchange_->boxes[parcel.peer];
    const std::lock_guard lock(box.mutex);
    box.offered.push_back({{rank_, parcel.channel, parcel.sequence}, &parcel});
    parcel.handle = kOffered;
    box.ring();
  }

  void poll() override {
    throw_if_aborted();
    {
      Mailbox& mine = exchange_->boxes[rank_];
      const std::lock_guard lock(mine.mutex);
      for (Parcel* parcel : mine.taken) parcel->done = true;
      mine.taken.clear();
    }
    fetch();
  }

  void wait(bool) override {
    Mailbox& mine = exchange_->boxes[rank_];
    std::unique_lock lock(mine.mutex);
    mine.rung.wait(lock, [&] { return mine.ringing; });
    mine.ringing = false;
  }

  void wake() override {
    Mailbox& mine = exchange_->boxes[rank_];
    const std::lock_guard lock(mine.mutex);
    mine.ring();
  }

  void withdraw(Parcel& parcel) override {
    if (!parcel.sends) {
      std::erase(wanted_, &parcel);
      return;
    }
    if (parcel.handle != kOffered) return;  // the job ended before
    {
      Mailbox& box = exchange_->boxes[parcel.peer];
      const std::lock_guard lock(box.mutex);
      if (std::erase_if(box.offered, [&](const Offer& o) { return o.parcel == &parcel; })) return;
    }
    // The receiver is copying it at this moment, and will say so.
    Mailbox& mine = exchange_->boxes[rank_];
    std::unique_lock lock(mine.mutex);
    mine.rung.wait(lock, [&] { return std::erase(mine.taken, &parcel) > 0; });
  }

  bool abort(const std::string& reason, bool) override {
    exchange_->abort(reason);
    return false;  // who runs the ranks gets the error itself
  }

  void progress(int64_t step, std::string_view object) override {
    const std::lock_guard lock(exchange_->mutex);
    exchange_->dog.progress(rank_, step, object, Exchange::now());
  }
  void alive() override {
    const std::lock_guard lock(exchange_->mutex);
    exchange_->dog.alive(rank_, Exchange::now());
  }
  void waits(bool waits) override {
    const std::lock_guard lock(exchange_->mutex);
    exchange_->dog.waits(rank_, waits);
  }
  std::string place() override {
    const std::lock_guard lock(exchange_->mutex);
    return exchange_->dog.place(rank_);
  }

  void copy(std::byte* to, const std::byte* from, int64_t size) override {
    exchange_->memory.copy ? exchange_->memory.copy(to, from, size) : Wire::copy(to, from, size);
  }

  void reduce(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
              int64_t count, std::byte* to) override {
    exchange_->memory.reduce ? exchange_->memory.reduce(reduction, dtype, terms, count, to)
                             : Wire::reduce(reduction, dtype, terms, count, to);
  }

 private:
  void throw_if_aborted() {
    const std::lock_guard lock(exchange_->mutex);
    if (exchange_->reason) throw Aborted(*exchange_->reason);
  }

  // Gives the sender its memory back, also if a device failed to copy it.
  struct Release {
    Mailbox& box;
    Parcel* parcel;
    ~Release() {
      const std::lock_guard lock(box.mutex);
      box.taken.push_back(parcel);
      box.ring();
    }
  };

  // Copies what was offered and is wanted. Of each key only the first that is wanted is looked for:
  // a message that arrives meanwhile must not go to a later one.
  void fetch() {
    for (size_t i = 0; i < wanted_.size();) {
      Parcel& parcel = *wanted_[i];
      const Key key = key_of(parcel);
      const auto end = wanted_.begin() + static_cast<int64_t>(i);
      const bool first = std::none_of(wanted_.begin(), end,
                                      [&](const Parcel* other) { return key_of(*other) == key; });
      Parcel* from = first ? take_offered(key) : nullptr;
      if (!from) {
        ++i;
        continue;
      }
      wanted_.erase(end);
      CHECK(from->size == parcel.size,
            join_parts("rank ", parcel.peer, " sends ", from->size, " bytes, and rank ", rank_,
                       " wants ", parcel.size));
      const Release release{exchange_->boxes[parcel.peer], from};
      if (parcel.size > 0) copy(parcel.data, from->data, parcel.size);
      parcel.done = true;
    }
  }

  Parcel* take_offered(const Key& key) {
    Mailbox& mine = exchange_->boxes[rank_];
    const std::lock_guard lock(mine.mutex);
    const auto found = std::find_if(mine.offered.begin(), mine.offered.end(),
                                    [&](const Offer& offer) { return offer.key == key; });
    if (found == mine.offered.end()) return nullptr;
    Parcel* from = found->parcel;
    mine.offered.erase(found);
    return from;
  }

  std::shared_ptr<Exchange> exchange_;
  int rank_ = 0;
  std::vector<Parcel*> wanted_;  // receives that were posted, in order
};

}  // namespace

std::vector<Communicator> thread_world(int ranks, const ThreadOptions& options) {
  CHECK(ranks > 0, "a job has ranks");
  const auto exchange = std::make_shared<Exchange>(ranks, options);
  std::vector<Communicator> world;
  for (int rank = 0; rank < ranks; ++rank) {
    world.emplace_back(std::make_unique<ThreadWire>(exchange, rank));
  }
  return world;
}

void run_ranks(int ranks, const std::function<void(Communicator)>& work,
               const ThreadOptions& options) {
  std::vector<Communicator> world = thread_world(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](Communicator mine) {
    try {
      work(mine);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      try {
        mine.abort(error.what());
      } catch (const Aborted&) {
      }
    }
  };
  std::vector<std::thread> threads;
  for (Communicator& mine : world) threads.emplace_back(run, std::move(mine));
  world.clear();
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace adjoint

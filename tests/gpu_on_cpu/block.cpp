// Where _FORTIFY_SOURCE is on by default, the C library takes a jump to another stack for an
// attack.
#undef _FORTIFY_SOURCE
#include "gpu_on_cpu/block.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/error.h"

namespace adjoint {

namespace {

constexpr size_t kStack = 256 << 10;  // bytes; what is never touched costs nothing
constexpr unsigned kWarp = 32, kMostThreads = 1024;

enum class State { kReady, kAtBlock, kAtWarp, kDone };

struct Thread {
  State state = State::kReady;
  unsigned mask = 0;
  int distance = 0;  // 0: it waits, and exchanges nothing
  double mine = 0, others = 0;

  // A context begins on its own stack; jumps then change between them, without system calls.
  std::unique_ptr<std::byte[]> stack = {};
  bool begun = false;
  jmp_buf at = {};
};

class Block {
 public:
  static Block& one() {
    static Block block;
    return block;
  }

  KernelMachine machine;
  ThreadOrder order = ThreadOrder::kFirstToLast;

  void run(KernelFunction kernel, const void* parameter, unsigned count) {
    kernel_ = kernel;
    parameter_ = parameter;
    count_ = count;
    CHECK(count <= kMostThreads, "a block that CUDA takes");
    for (unsigned t = 0; t < count; ++t) threads_[t].state = State::kReady;
    at_block_ = done_ = 0;
    try {
      run_all();
    } catch (...) {
      threads_ = std::vector<Thread>(kMostThreads);  // the old ones will not come to an end
      throw;
    }
  }

  // Called by a thread.
  void wait(State state, unsigned mask = 0, int distance = 0, double mine = 0) {
    Thread& me = threads_[current_];
    me.state = state;
    me.mask = mask;
    me.distance = distance;
    me.mine = mine;
    leave(me);
  }
  double received() const { return threads_[current_].others; }

 private:
  static void begin() {
    while (true) {  // a fiber serves one block after another
      one().kernel_(one().parameter_);
      one().wait(State::kDone);
    }
  }

  void leave(Thread& me) {
    if (_setjmp(me.at) == 0) _longjmp(home_, 1);
  }
  void enter(Thread& thread) {
    if (_setjmp(home_) != 0) return;
    if (thread.begun) _longjmp(thread.at, 1);
    thread.begun = true;
    thread.stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = thread.stack.get();
    context.uc_stack.ss_size = kStack;
    context.uc_link = nullptr;
    makecontext(&context, begin, 0);
    setcontext(&context);
  }

  unsigned ranked(unsigned rank) const {
    return order == ThreadOrder::kFirstToLast ? rank : count_ - 1 - rank;
  }

  void run_all() {
    for (unsigned rank = 0; rank < count_;) {
      current_ = ranked(rank);
      Thread& thread = threads_[current_];
      if (thread.state != State::kReady) {
        ++rank;
        continue;
      }
      machine.thread.x = current_;
      enter(thread);
      // Whoever is let go may come before the others.
      if (thread.state == State::kAtWarp) {
        if (meet_warp(thread)) rank -= std::min(rank, kWarp);
      } else if (meet_block(thread)) {
        rank = 0;
      }
    }
    if (done_ < count_) {
      fail("threads wait for others that never come: ", at_block_, " where all of a block meet, ",
           count_ - done_ - at_block_, " where some of a warp do, and ", done_, " have left");
    }
  }

  bool meet_block(const Thread& thread) {
    (thread.state == State::kDone ? done_ : at_block_) += 1;
    if (at_block_ == 0 || at_block_ + done_ < count_) return false;
    for (unsigned t = 0; t < count_; ++t) {
      if (threads_[t].state == State::kAtBlock) threads_[t].state = State::kReady;
    }
    at_block_ = 0;
    return true;
  }

  bool meet_warp(const Thread& thread) {
    const unsigned first = current_ / kWarp * kWarp, mask = thread.mask;
    const auto named = [&](unsigned t) { return t - first < kWarp && (mask >> (t - first) & 1); };
    if (!named(current_)) fail("a thread waits for threads of which it is none");
    for (unsigned t = first; t < first + kWarp; ++t) {
      if (!named(t)) continue;
      if (t >= count_) fail("a thread waits for one that there is not");
      if (threads_[t].state != State::kAtWarp) return false;
      if (threads_[t].mask != mask || threads_[t].distance != thread.distance) {
        fail("threads of a warp meet, and mean different things");
      }
    }
    for (unsigned t = first; t < first + kWarp; ++t) {
      if (!named(t)) continue;
      const unsigned other = t ^ static_cast<unsigned>(thread.distance);
      if (!named(other)) fail("a thread wants the number of one that gives none");
      threads_[t].others = threads_[other].mine;
    }
    for (unsigned t = first; t < first + kWarp; ++t) {
      if (named(t)) threads_[t].state = State::kReady;
    }
    return true;
  }

  KernelFunction kernel_ = nullptr;
  const void* parameter_ = nullptr;
  unsigned count_ = 0, current_ = 0, at_block_ = 0, done_ = 0;
  std::vector<Thread> threads_ = std::vector<Thread>(kMostThreads);
  jmp_buf home_ = {};
};

void meet_block() { Block::one().wait(State::kAtBlock); }
void meet_warp(unsigned mask) { Block::one().wait(State::kAtWarp, mask); }
double exchange(unsigned mask, int distance, double mine) {
  Block::one().wait(State::kAtWarp, mask, distance, mine);
  return Block::one().received();
}

}  // namespace

void set_thread_order(ThreadOrder order) { Block::one().order = order; }

KernelMachine& kernel_machine() {
  KernelMachine& machine = Block::one().machine;
  machine.meet_block = meet_block;
  machine.meet_warp = meet_warp;
  machine.exchange = exchange;
  return machine;
}

void run_grid(KernelFunction kernel, const void* parameter, KernelMachine::Index grid,
              unsigned threads) {
  KernelMachine& machine = kernel_machine();
  machine.grid = grid;
  const unsigned blocks = grid.x * grid.y;
  for (unsigned i = 0; i < blocks; ++i) {
    const bool forward = Block::one().order == ThreadOrder::kFirstToLast;
    const unsigned block = forward ? i : blocks - 1 - i;
    machine.block = {block % grid.x, block / grid.x};
    Block::one().run(kernel, parameter, threads);
  }
}

}  // namespace adjoint

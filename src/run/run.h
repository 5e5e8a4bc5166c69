// Executes a plan: one arena per tier, every call prepared once, then steps that allocate nothing.
// On the CPU the next tier is a second arena in the same memory. On CUDA it is pinned memory of the
// host, the parts of a step are recorded once and launched whole, and a step returns before it is
// done: whatever reads an object waits for it.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/seat.h"
#include "device/buffer.h"
#include "device/gpu.h"
#include "ops/op_def.h"
#include "plan/plan.h"
#include "run/gpu_lanes.h"
#include "run/mailboxes.h"

namespace adjoint {

struct RunOptions {
  bool reference = false;  // the float64 reference's kernels
#ifdef ADJOINT_POISON
  bool poison = true;
#else
  bool poison = false;  // fill what the plan frees, and what is not yet made, with NaNs
#endif
  // Where on the mesh of its scheme the run is; none: on one rank. It outlives the run.
  Seat* seat = nullptr;
  // Ends the sentence that refuses a plan for which the machine has too little memory.
  std::string advice = "; a smaller --batch or a shorter --seq needs less";
  // How many calls of how many are ready to run: on a GPU new products are timed first.
  std::function<void(int64_t, int64_t, const std::string&)> told = nullptr;
};

class CallTimer;

// A call of one step by the host's clock, which is that of all processes of a machine.
struct CallSpan {
  double begin = 0, end = 0;
  double waited = 0;  // behind it, for messages of other ranks that the next call needs
};

class Run {
 public:
  // With arenas of its own.
  Run(Scheme scheme, Plan plan, RunOptions options = {});
  // In another run's arenas, below whose ends this plan must lie: an evaluation beside training.
  Run(Scheme scheme, Plan plan, Run& host, RunOptions options = {});

  const Scheme& scheme() const { return scheme_; }
  const Plan& plan() const { return plan_; }
  GpuStream* stream() const { return stream_.get(); }  // none on a CPU
  bool on_gpu() const { return plan_.target == Target::kCuda && !options_.reference; }
  Seat* seat() const { return options_.seat; }
  // Which elements of an object's whole this rank holds: all of them where it is not sharded.
  std::vector<ShardRun> runs_of(Value v) const;

  // One step: prologue, body as often as there are parts, epilogue. Everything that can fail has
  // failed before, but for a GPU that breaks (MachineError).
  void step();
  void synchronize() const;  // until the last step is done

  // One step by itself, and the seconds of every call in it, summed over its executions.
  std::vector<double> timed_step();
  // One step as it always runs, and when every call of it did. On a CPU, of a step of one part.
  std::vector<CallSpan> watched_step();

  // The value of an object: valid before a step for inputs, after it for outputs and state.
  void* data(Value v) const;  // where the kernels find it: on CUDA no memory of the host
  // Its bytes as they lie; of an object that is dense.
  void read(Value v, void* to) const;
  void write(Value v, const void* from);
  void clear(Value v);
  // The rank's piece of the whole object's elements, which lie one behind the other; padding is
  // filled with `fill`.
  void write_piece(Value v, const void* whole, double fill = 0);
  // The whole object, of the pieces of all ranks, which all call it; of one that is not sharded
  // what read gives.
  void read_whole(Value v, void* to) const;
  double number(Value v) const;  // of one element
  void set_number(Value v, double number);
  std::vector<double> values(Value v) const;  // in logical order
  void set_values(Value v, const std::vector<double>& values);

  std::byte* arena(Tier tier = Tier::kDevice) const { return base_[static_cast<size_t>(tier)]; }
  // Called after every call with its place in the order, in every iteration of the body; for tests
  // and profiles.
  std::function<void(int)> after_call = nullptr;
  // Called before every call, for whoever wants to know where a step is: nothing waits for it, and
  // calls that run beside others still do. Not called where a step is a recording.
  std::function<void(int)> before_call = nullptr;

  // From now on: what the plan frees is filled with this byte; nothing: it is left alone.
  void set_poison(std::optional<std::byte> with);

  // The end of the highest byte that differs, or once differed, from `pattern`, with which the
  // arena was filled. Poison hides nothing: a storage is looked at before it is filled. Workspaces
  // are laid out by whoever asked for them, so one that was written at all was used whole.
  Bytes touched(std::byte pattern, Tier tier = Tier::kDevice) const;
  void fill_arena(std::byte pattern);  // of every tier
  void reset();                        // as it was when it was made

 private:
  // run.cpp: calls, prepared and run
  void set_controls();
  void prepare();
  void run_calls(int begin, int end, bool for_good);
  bool launches_recordings() const;
  void step_by_recordings();
  std::shared_ptr<GpuStream::Recording> record(int begin, int end);
  std::byte* at(const Storage& storage) const;
  bool is_message(int at) const;
  void land(int place);  // waits for what was begun there, if it is not done
  // run_values.cpp: what objects hold
  void send(Value v, const void* from, Bytes size);
  Bytes extent(Value v) const;  // from its first element to the end of its last
  // run_arena.cpp: bytes
  void bury(int at, bool for_good);
  void note_touched(const Storage& storage) noexcept;

  Scheme scheme_;
  Plan plan_;
  RunOptions options_;
  std::array<Buffer, kNumTiers> own_;
  std::array<std::byte*, kNumTiers> base_ = {};
  std::shared_ptr<GpuStream> stream_;  // of the work; shared with a host run
  std::unique_ptr<GpuLanes> lanes_;    // none on a CPU
  // Whole steps where a step has one part, else prologue, body and epilogue.
  std::vector<std::shared_ptr<GpuStream::Recording>> recordings_;
  std::unique_ptr<Mailboxes> mail_;  // none on a CPU
  bool warm_ = false;           // one step has run call by call, so that every library is loaded
  CallTimer* timer_ = nullptr;  // of a timed step
  std::vector<CallSpan>* spans_ = nullptr;  // of a watched one
  std::vector<OpCall> calls_;               // kernels refer to them
  std::vector<Launch> launches_;
  // Of a step of several ranks, per call: the second half of a message, on a CPU also of a
  // collective; those that must be done when the next call begins; and whether it was begun and is
  // not done.
  std::vector<Launch> completions_;
  std::vector<std::vector<int>> lands_;
  std::vector<bool> under_way_;
  bool messages_wait_ = false;  // on the host of a GPU, so that its steps are not recorded
  std::vector<std::vector<int>> dies_after_;  // storages, per place in the order
  std::vector<bool> crosses_;                 // per storage: the next iteration reads it too
  std::optional<std::byte> poison_;
  std::byte filled_with_{0};
  std::array<int64_t, kNumTiers> touched_ = {};  // where poison has covered it since
};

}  // namespace adjoint

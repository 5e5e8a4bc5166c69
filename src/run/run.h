// Executes a plan on the CPU: one arena per tier, every call prepared once, then steps that
// allocate nothing. Here the next tier is a second arena in the same memory.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "ops/op_def.h"
#include "plan/plan.h"

namespace adjoint {

struct RunOptions {
  bool reference = false;  // the float64 reference's kernels
#ifdef ADJOINT_POISON
  bool poison = true;
#else
  bool poison = false;  // fill what the plan frees, and what is not yet made, with NaNs
#endif
};

class Run {
 public:
  // With arenas of its own.
  Run(Scheme scheme, Plan plan, RunOptions options = {});
  // In another run's arenas, below whose ends this plan must lie: an evaluation beside training.
  Run(Scheme scheme, Plan plan, Run& host, RunOptions options = {});

  const Scheme& scheme() const { return scheme_; }
  const Plan& plan() const { return plan_; }

  // One step: prologue, body as often as there are parts, epilogue. Everything that can fail has
  // failed before.
  void step() noexcept;

  // The value of an object: valid before a step for inputs, after it for outputs and state.
  void* data(Value v) const;
  double number(Value v) const;  // of one element
  void set_number(Value v, double number);
  std::vector<double> values(Value v) const;  // in logical order

  std::byte* arena(Tier tier = Tier::kDevice) const { return base_[static_cast<size_t>(tier)]; }
  // Called after every call with its place in the order, in every iteration of the body; for tests
  // and profiles.
  std::function<void(int)> after_call = nullptr;

  // From now on: what the plan frees is filled with this byte; nothing: it is left alone.
  void set_poison(std::optional<std::byte> with);

  // The end of the highest byte that differs, or once differed, from `pattern`, with which the
  // arena was filled. Poison hides nothing: a storage is looked at before it is filled. Workspaces
  // are laid out by whoever asked for them, so one that was written at all was used whole.
  Bytes touched(std::byte pattern, Tier tier = Tier::kDevice) const;
  void fill_arena(std::byte pattern);  // of every tier

 private:
  void prepare();
  void run_calls(int begin, int end, bool for_good) noexcept;
  void bury(int at, bool for_good) noexcept;
  void note_touched(const Storage& storage) noexcept;
  std::byte* at(const Storage& storage) const;

  Scheme scheme_;
  Plan plan_;
  RunOptions options_;
  std::array<Buffer, kNumTiers> own_;
  std::array<std::byte*, kNumTiers> base_ = {};
  std::vector<OpCall> calls_;  // kernels refer to them
  std::vector<Launch> launches_;
  std::vector<std::vector<int>> dies_after_;  // storages, per place in the order
  std::vector<bool> crosses_;                 // per storage: the next iteration reads it too
  std::optional<std::byte> poison_;
  std::byte filled_with_{0};
  std::array<int64_t, kNumTiers> touched_ = {};  // where poison has covered it since
};

// Writes numbers, in logical order, into an object of a run.
void write_numbers(Run& run, Value v, const std::vector<double>& numbers);

// Begins every parameter and state as the scheme says: random values keyed by seed and source path.
// One that is held as codes gets those of the values that it would begin with.
void initialize(Run& run, uint64_t seed);

// Gives a parameter these values, in logical order; one that is held as codes gets their codes.
// Refuses a source that no parameter has, and a wrong number of values.
void write_parameter(Run& run, const Source& source, std::span<const float> values);

}  // namespace adjoint

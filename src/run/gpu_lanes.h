// The lanes of a plan (plan/lanes.h) as streams of a GPU. A run calls it before and after every
// call; the plan has determined which call waits for which.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "device/gpu.h"
#include "plan/lanes.h"

namespace adjoint {

class GpuLanes {
 public:
  // `work` is the stream of everything but copies. If the plan has no copies, it is the only
  // stream.
  GpuLanes(std::vector<LanedCall> calls, std::shared_ptr<GpuStream> work);

  GpuStream& stream_of(int call) const { return *streams_[lane(call)]; }
  bool one_stream() const { return !passed_; }

  // Begins a series of calls at `begin`: the lanes begin when everything that was enqueued before
  // is done, and at the end the work waits for all lanes. With `one_by_one` no call begins before
  // the previous one has ended.
  void open(int begin, bool one_by_one);
  void before(int call);
  void after(int call);
  void close();

 private:
  size_t lane(int call) const { return static_cast<size_t>(calls_[call].lane); }
  GpuStream& work() const { return *streams_[0]; }
  void meet(GpuStream& later, GpuStream& earlier);  // `later` goes on when `earlier` is done

  std::vector<LanedCall> calls_;
  std::array<std::shared_ptr<GpuStream>, kNumLanes> streams_ = {};
  std::unique_ptr<GpuClock> passed_;  // a mark per call, and one for lanes that meet
  int begin_ = 0;
  bool one_by_one_ = false;
};

}  // namespace adjoint

#include "run/gpu_lanes.h"

#include <algorithm>

namespace adjoint {

GpuLanes::GpuLanes(std::vector<LanedCall> calls, std::shared_ptr<GpuStream> work)
    : calls_(std::move(calls)) {
  streams_[0] = std::move(work);
  for (size_t at = 0; at < calls_.size(); ++at) {
    std::shared_ptr<GpuStream>& stream = streams_[lane(static_cast<int>(at))];
    if (!stream) stream = std::make_shared<GpuStream>();
  }
  const bool apart = std::count(streams_.begin(), streams_.end(), nullptr) + 1 < kNumLanes;
  if (apart) passed_ = std::make_unique<GpuClock>(calls_.size() + 1);
}

void GpuLanes::meet(GpuStream& later, GpuStream& earlier) {
  passed_->mark(calls_.size(), earlier);
  later.wait_for(*passed_, calls_.size());
}

void GpuLanes::open(int begin, bool one_by_one) {
  begin_ = begin;
  one_by_one_ = one_by_one;
  for (size_t l = 1; l < streams_.size(); ++l) {
    if (streams_[l]) meet(*streams_[l], work());
  }
}

void GpuLanes::before(int call) {
  GpuStream& own = stream_of(call);
  if (one_by_one_) {
    if (&own != &work()) meet(own, work());
    return;
  }
  for (const int earlier : calls_[call].waits) {
    if (earlier >= begin_)
      own.wait_for(*passed_, earlier);  // earlier ones were done before the series began
  }
}

void GpuLanes::after(int call) {
  GpuStream& own = stream_of(call);
  if (one_by_one_ && &own != &work()) meet(work(), own);
  if (!one_by_one_ && calls_[call].is_awaited) passed_->mark(call, own);
}

void GpuLanes::close() {
  for (size_t l = 1; l < streams_.size(); ++l) {
    if (streams_[l]) meet(work(), *streams_[l]);
  }
}

}  // namespace adjoint

// Copies between tiers run concurrently with the arithmetic, each direction on a lane of its own: a
// stream of a GPU. Calls of one lane run in order. A call waits for the latest call of another lane
// that makes what it reads, or that still uses bytes which it writes. The plan reuses bytes many
// times, so waits follow from bytes, not from objects.
#pragma once
#include <array>
#include <vector>

#include "plan/plan.h"

namespace adjoint {

enum class Lane : uint8_t { kWork, kFetch, kSend };
constexpr int kNumLanes = 3;

Lane lane_of(const Morphism& morphism);

struct LanedCall {
  Lane lane = Lane::kWork;
  // Places of the calls that it waits for, at most one per other lane; those that its lane has
  // already waited for are left out.
  std::vector<int> waits = {};
  bool is_awaited = false;  // a call of another lane waits for it
};

// Per planned call. All lanes also meet between the parts of a step and at its end; the caller sees
// to that.
std::vector<LanedCall> make_lanes(const Scheme& scheme, const Plan& plan);

// When each call in [begin, end) ends, in seconds after all lanes begin together; 0 for other
// calls.
std::vector<double> end_times(const std::vector<LanedCall>& lanes,
                              const std::vector<double>& seconds, int begin, int end);

}  // namespace adjoint

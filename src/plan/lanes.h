// Copies between tiers run beside the arithmetic, each direction on a lane of its own: a stream of
// a GPU. Calls of one lane run in order. Between lanes a call waits for the latest of another lane
// that it must not overtake: one that made what it reads, or that still uses bytes it writes. The
// plan gives bytes away again and again, so it is bytes that decide here, not objects.
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
  // Places of the calls, one per other lane at most, that it waits for beyond what its lane has
  // waited for already.
  std::vector<int> waits = {};
  bool is_awaited = false;  // by a call of another lane
};

// Per planned call. Where lanes meet in any case (between the parts of a step, at its end) is for
// whoever runs them.
std::vector<LanedCall> make_lanes(const Scheme& scheme, const Plan& plan);

// When each of these calls ends, from 0 on, if all lanes begin together at `begin`; 0 for others.
std::vector<double> end_times(const std::vector<LanedCall>& lanes,
                              const std::vector<double>& seconds, int begin, int end);

}  // namespace adjoint

// Copies between tiers run concurrently with the arithmetic, each direction on a lane of its own: a
// stream of a GPU. Collectives are a lane, too, on every target: on a CPU the communicator's thread
// moves their bytes. Calls of one lane begin in order. A call waits for the latest call of another
// lane that makes what it reads, or that still uses bytes which it writes. The plan reuses bytes
// many times, so waits follow from bytes, not from objects. Of two collectives the later one may
// overtake the earlier one unless it waits for it; whoever waits for one waits for all that began
// before it.
#pragma once
#include <array>
#include <vector>

#include "plan/plan.h"

namespace adjoint {

enum class Lane : uint8_t { kWork, kFetch, kSend, kRanks };
constexpr int kNumLanes = 4;

Lane lane_of(const Morphism& morphism);

struct LanedCall {
  Lane lane = Lane::kWork;
  // Places of the calls that it waits for, at most one per lane; those that its lane has already
  // waited for are left out.
  std::vector<int> waits = {};
  bool is_awaited = false;  // a call of another lane waits for it
};

// Per planned call. All lanes also meet between the parts of a step and at its end; the caller sees
// to that.
std::vector<LanedCall> make_lanes(const Scheme& scheme, const Plan& plan);

// Per place of an order: the place before whose call its own must be done. A collective is under
// way until somebody reads what it makes or writes over what it reads, or until its section ends;
// all other calls are done before the next. A view reads nothing by itself unless the plan copies
// it: `is_view` tells, per place.
std::vector<int> done_before(const Scheme& scheme, const std::vector<int>& order,
                             const std::vector<bool>& is_view);
std::vector<int> done_before(const Scheme& scheme, const Plan& plan);

// When each call in [begin, end) ends, in seconds after all lanes begin together; 0 for other
// calls.
std::vector<double> end_times(const std::vector<LanedCall>& lanes,
                              const std::vector<double>& seconds, int begin, int end);

}  // namespace adjoint

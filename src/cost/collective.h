// Seconds of a collective in the alpha-beta model. What an algorithm costs in messages, bytes and
// terms is read from its route (comm/route.h); here are the seconds for a fabric, and the fabric
// from measured seconds.
#pragma once
#include <span>
#include <string>

#include "comm/route.h"
#include "scheme/type.h"

namespace adjoint {

struct CollectiveCost {
  Algorithm algorithm = Algorithm::kExchange;  // the cheapest, which is the one that will be used
  double seconds = 0;
  Bytes sent = {0};  // by the rank that sends most
};
CollectiveCost cost_of_collective(Collective collective, Bytes whole, Dtype dtype, int ranks,
                                  const Fabric& fabric);

struct MeasuredCollective {
  Collective collective = Collective::kBarrier;
  Algorithm algorithm = Algorithm::kExchange;
  int ranks = 1;
  Bytes whole = {0};
  double seconds = 0;
};

// The fabric whose predictions are nearest to what was measured, by least squares of relative
// errors: a microsecond too many matters in a message of ten, and not in one of ten thousand.
Fabric fitted_fabric(std::span<const MeasuredCollective> measured);

std::string print(const Fabric& fabric);  // "11 us a message, 5.2 GB/s sent, 8.1 GB/s added"

}  // namespace adjoint

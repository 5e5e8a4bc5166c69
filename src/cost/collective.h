// Seconds of a collective in the alpha-beta model. What an algorithm costs in messages, bytes and
// terms is read from its route (comm/route.h); here are the seconds for a fabric, and the fabric
// from measured seconds.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/route.h"
#include "scheme/scheme.h"

namespace adjoint {

struct CollectiveCost {
  Algorithm algorithm = Algorithm::kExchange;  // the one that will be used
  double seconds = 0;
  Bytes sent = {0};  // by the rank that sends most
};
// `segment`: bytes of every rank's piece, of which the last ones may be short; 0: as even as can
// be.
CollectiveCost cost_of_collective(Collective collective, Bytes whole, Dtype dtype, int ranks,
                                  const Fabric& fabric, Bytes segment = {0});

// A call of a step that speaks to other ranks, as the communicator is asked for it.
struct CollectiveCall {
  Collective collective = Collective::kBarrier;
  std::string mesh_axis = {};
  int ranks = 1;
  Dtype dtype = Dtype::kF32;
  Bytes whole = {0};    // all ranks' pieces together
  Bytes segment = {0};  // and one of them
};
// Nothing where the call speaks to nobody.
std::optional<CollectiveCall> collective_call(const Scheme& scheme, const Morphism& morphism);
double seconds_of(const CollectiveCall& call, const Fabric& fabric);

// What one rank sends in a step: all calls of one kind along one axis of the mesh in one dtype. A
// call in the body counts once per part of the batch. Where ranks send different amounts (the root
// of a tree, a short last segment), it is what the one that sends most does.
struct Sent {
  std::string mesh_axis = {};
  int ranks = 1;
  Collective collective = Collective::kBarrier;
  Dtype dtype = Dtype::kF32;
  int64_t calls = 0;
  int64_t elements = 0;
  Bytes bytes = {0};
  double seconds = 0;  // of all of them, one after the other
};
// In the order of the mesh's axes, then of collectives.
std::vector<Sent> sent_in_step(const Scheme& scheme, const Fabric& fabric);

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

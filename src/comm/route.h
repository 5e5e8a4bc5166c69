// How a collective moves its bytes, as data. A route is one rank's part of it: rounds of copies,
// messages to and from other ranks, and at most one reduction of what has arrived. Routes only
// move; terms of all ranks meet in one reduction in rank order (comm/reduction.h). What runs a
// route, what says its price and what tests it all read the same lists.
//
// S bytes are the whole: the vector of an all-reduce, or all ranks' segments together. Of n ranks:
//
//   exchange   every rank sends every other one what it wants, all at once
//   ring       n-1 rounds, each to the next rank: as few bytes as can be
//   tree       a minimum spanning tree: halves of the ranks, halves of the halves, log2 n rounds
//   doubling   every round doubles what a rank holds: log2 n rounds (any n, as Bruck's)
//
// A reduction cannot add along a ring without changing the order of sums, so segments are exchanged
// for it, which sends as few bytes as a ring would. Long ones are exchanged and added up a piece at
// a time, so that terms wait in little memory.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace adjoint {

enum class Collective : uint8_t {
  kBroadcast,
  kScatter,
  kGather,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBarrier,
};
constexpr int kNumCollectives = 8;
std::string_view name(Collective collective);  // "all_reduce"

enum class Algorithm : uint8_t { kExchange, kRing, kTree, kDoubling };
constexpr int kNumAlgorithms = 4;
std::string_view name(Algorithm algorithm);

// Bytes of one of the three pieces of memory that a call is given.
enum class RoutePiece : uint8_t { kIn, kOut, kScratch };
struct RouteRegion {
  RoutePiece piece = RoutePiece::kIn;
  int64_t begin = 0, size = 0;
  bool operator==(const RouteRegion&) const = default;
};

struct RouteMessage {
  int peer = 0;
  bool sends = false;
  RouteRegion region = {};
};

struct RouteCopy {
  RouteRegion from = {}, to = {};
};

struct RouteRound {
  std::vector<RouteCopy> copies = {};       // first,
  std::vector<RouteMessage> messages = {};  // then these, at the same time,
  std::vector<RouteRegion> terms = {};  // and when all are there, these are reduced, in this order,
  RouteRegion result = {};              // to this; no terms: nothing is
};

struct Route {
  std::vector<RouteRound> rounds = {};
  Bytes scratch = {0};  // beside `in` and `out`
};

struct RouteRequest {
  Collective collective = Collective::kBarrier;
  Algorithm algorithm = Algorithm::kExchange;
  int rank = 0, ranks = 1;
  int root = 0;         // of broadcast, scatter and gather
  int64_t whole = 0;    // S, in bytes
  int64_t element = 1;  // bytes that stay together, so that terms are whole numbers
  // Bytes of every segment, of which the last ones may be short or empty; 0: as even as can be.
  int64_t segment = 0;
};
Route make_route(const RouteRequest& request);

// The most scratch that the route takes on any rank.
Bytes most_scratch(RouteRequest request);

// The algorithms that a collective has, the plainest first.
std::span<const Algorithm> algorithms_of(Collective collective);

// Bytes that the rank of this route sends.
int64_t sent_bytes(const Route& route);

// Where segment i of `ranks` begins when `whole` bytes are cut as evenly as whole elements allow;
// segment `ranks` is the end.
int64_t segment_begin(int64_t whole, int64_t element, int ranks, int i);

// --- Prices ---------------------------------------------------------------------------------

// What a collective costs on its slowest path, in the alpha-beta model: each round takes as long as
// its busiest rank, which sends and receives at the same time, one message after the other.
struct RoutePrice {
  double messages = 0;  // one behind the other
  double moved = 0;     // bytes on that path, as a share of S
  double reduced = 0;   // bytes of terms that one rank reads, as a share of S
};
RoutePrice price_of(Collective collective, Algorithm algorithm, int ranks);

// What messages cost between the ranks of an engine.
struct Fabric {
  double latency = 5e-6;            // alpha: seconds per message
  double seconds_per_byte = 1e-10;  // beta
  double seconds_per_term = 1e-10;  // gamma: per byte of a term that is reduced
};
double seconds(const RoutePrice& price, const Fabric& fabric, int64_t whole);

// The cheapest algorithm; the same on every rank, because it depends on nothing but its arguments.
Algorithm cheapest(Collective collective, int ranks, int64_t whole, const Fabric& fabric);

// The algorithm that a call takes, on whatever engine: a plan counts its scratch before there is
// one. Engines on one machine differ by less than a factor of two in the size at which another
// algorithm is cheaper.
Algorithm algorithm_for(Collective collective, int ranks, int64_t whole);

}  // namespace adjoint

// What routes cost, held to the textbook (Chan, Heimlich, Purkayastha and van de Geijn, "Collective
// communication: theory, practice, and experience", 2007).
#include "comm/route.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace adjoint {
namespace {

TEST(Route, PricesAreTheTextbooks) {
  using enum Collective;
  using enum Algorithm;
  struct Row {
    Collective collective;
    Algorithm algorithm;
    double messages, moved, reduced;
  };
  for (const int n : {2, 4, 8, 16}) {
    const double log = std::log2(n), rest = n - 1, share = rest / n;
    for (const Row& row : {
             Row{kBroadcast, kTree, log, log, 0},
             Row{kBroadcast, kRing, log + rest, 2 * share, 0},
             Row{kBroadcast, kExchange, rest, rest, 0},
             Row{kScatter, kTree, log, share, 0},
             Row{kScatter, kExchange, rest, share, 0},
             Row{kGather, kTree, log, share, 0},
             Row{kAllGather, kRing, rest, share, 0},
             Row{kAllGather, kExchange, rest, share, 0},
             Row{kAllGather, kTree, 2 * log, share + log, 0},
             Row{kReduceScatter, kExchange, rest, share, 1},
             Row{kReduceScatter, kTree, 2 * log, rest + share, double(n)},
             Row{kAllReduce, kRing, 2 * rest, 2 * share, 1},
             Row{kAllReduce, kExchange, 2 * rest, 2 * share, 1},
             Row{kAllReduce, kTree, 2 * log, rest + log, double(n)},
             Row{kAllToAll, kExchange, rest, share, 0},
             Row{kBarrier, kDoubling, log, 0, 0},
         }) {
      const RoutePrice price = price_of(row.collective, row.algorithm, n);
      SCOPED_TRACE(join_parts(name(row.collective), " by ", name(row.algorithm), " on ", n));
      EXPECT_DOUBLE_EQ(price.messages, row.messages);
      EXPECT_DOUBLE_EQ(price.moved, row.moved);
      EXPECT_DOUBLE_EQ(price.reduced, row.reduced);
    }
  }
}

TEST(Route, DoublingTakesLogarithmicallyManyRoundsForAnyNumberOfRanks) {
  for (int n = 2; n <= 17; ++n) {
    const Route route = make_route({.collective = Collective::kAllGather,
                                    .algorithm = Algorithm::kDoubling,
                                    .rank = n / 2,
                                    .ranks = n,
                                    .whole = 100 * n});
    // One more round is the copy of the rank's own segment.
    EXPECT_EQ(route.rounds.size(), 1 + std::ceil(std::log2(n))) << n;
    EXPECT_NEAR(price_of(Collective::kAllGather, Algorithm::kDoubling, n).moved, (n - 1.0) / n,
                1e-12);
  }
}

TEST(Route, SmallVectorsTakeFewMessagesAndLargeOnesFewBytes) {
  const Fabric fabric{.latency = 1e-5, .seconds_per_byte = 1e-10, .seconds_per_term = 1e-10};
  EXPECT_EQ(cheapest(Collective::kAllReduce, 8, 4, fabric), Algorithm::kDoubling);
  EXPECT_EQ(cheapest(Collective::kAllReduce, 8, 1 << 28, fabric), Algorithm::kExchange);
  EXPECT_EQ(cheapest(Collective::kBroadcast, 8, 4, fabric), Algorithm::kTree);
  EXPECT_EQ(cheapest(Collective::kBroadcast, 8, 1 << 28, fabric), Algorithm::kDoubling);
  EXPECT_EQ(cheapest(Collective::kBarrier, 8, 0, fabric), Algorithm::kDoubling);
}

// What every rank of n sends: (n-1)/n of the whole, twice for an all-reduce.
TEST(Route, LargeVectorsAreSentAsFewTimesAsCanBe) {
  for (const int n : {2, 3, 4, 8}) {
    for (int rank = 0; rank < n; ++rank) {
      const auto sent = [&](Collective collective, Algorithm algorithm) {
        return sent_bytes(make_route({.collective = collective,
                                      .algorithm = algorithm,
                                      .rank = rank,
                                      .ranks = n,
                                      .whole = 960,
                                      .element = 4}));
      };
      EXPECT_EQ(sent(Collective::kReduceScatter, Algorithm::kExchange), 960 / n * (n - 1));
      EXPECT_EQ(sent(Collective::kAllGather, Algorithm::kRing), 960 / n * (n - 1));
      EXPECT_EQ(sent(Collective::kAllReduce, Algorithm::kExchange), 2 * (960 / n) * (n - 1));
    }
  }
}

// Terms of a long sum are exchanged a piece at a time: as many bytes are sent, and few wait.
TEST(Route, TermsOfLongSumsWaitInLittleMemory) {
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAllReduce}) {
    RouteRequest request{.collective = collective, .ranks = 4, .whole = 1 << 28, .element = 4};
    request.algorithm = algorithm_for(collective, 4, request.whole);
    EXPECT_EQ(most_scratch(request).count, 3 << 20);
    const int64_t times = collective == Collective::kAllReduce ? 2 : 1;
    EXPECT_EQ(sent_bytes(make_route(request)), times * request.whole / 4 * 3);
  }
}

// Pieces of an axis that the ranks do not divide: the last ones are short, or there are none.
TEST(Route, SegmentsOfAGivenSizeEndWithTheWhole) {
  int64_t sent = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Route route = make_route({.collective = Collective::kAllGather,
                                    .algorithm = Algorithm::kExchange,
                                    .rank = rank,
                                    .ranks = 4,
                                    .whole = 20,
                                    .segment = 8});
    sent += sent_bytes(route);
  }
  EXPECT_EQ(sent, 3 * 20) << "everyone's bytes go to three others";
}

TEST(Route, SegmentsAreWholeElementsAndCoverAll) {
  for (const int64_t whole : {0, 4, 20, 44, 1000}) {
    EXPECT_EQ(segment_begin(whole, 4, 3, 0), 0);
    EXPECT_EQ(segment_begin(whole, 4, 3, 3), whole);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(segment_begin(whole, 4, 3, i) % 4, 0);
      EXPECT_LE(segment_begin(whole, 4, 3, i), segment_begin(whole, 4, 3, i + 1));
    }
  }
}

}  // namespace
}  // namespace adjoint

#include "cost/collective.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

const Fabric kFabric{.latency = 2e-5, .seconds_per_byte = 2.5e-10, .seconds_per_term = 1e-10};

TEST(CollectiveCost, IsTheTextbooksForLargeVectors) {
  const int64_t size = 1 << 26;
  const CollectiveCost cost =
      cost_of_collective(Collective::kAllReduce, {size}, Dtype::kF32, 4, kFabric);
  // 2 (n-1) alpha + 2 (n-1)/n S beta, and every byte is added once per rank; a doubling of what is
  // gathered takes fewer messages than a ring.
  EXPECT_LE(cost.seconds, 6 * 2e-5 + 1.5 * size * 2.5e-10 + size * 1e-10);
  EXPECT_GE(cost.seconds, 1.5 * size * 2.5e-10 + size * 1e-10);
  EXPECT_EQ(cost.sent.count, size * 3 / 2);
}

TEST(CollectiveCost, OfSmallVectorsIsThatOfMessages) {
  const CollectiveCost cost =
      cost_of_collective(Collective::kAllReduce, {4}, Dtype::kF32, 8, kFabric);
  EXPECT_EQ(cost.algorithm, Algorithm::kDoubling);
  EXPECT_LT(cost.seconds, 6 * 2e-5 + 1e-7);
  EXPECT_EQ(cost_of_collective(Collective::kAllReduce, {4}, Dtype::kF32, 1, kFabric).seconds, 0);
}

TEST(CollectiveCost, AFabricIsFoundFromSecondsThatItGives) {
  std::vector<MeasuredCollective> measured;
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kAllGather, Collective::kAllReduce}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (const int64_t size : {64, 65536, 1 << 24}) {
        const double taken = seconds(price_of(collective, algorithm, 4), kFabric, size);
        measured.push_back({collective, algorithm, 4, {size}, taken});
      }
    }
  }
  const Fabric found = fitted_fabric(measured);
  EXPECT_NEAR(found.latency / kFabric.latency, 1, 1e-6);
  EXPECT_NEAR(found.seconds_per_byte / kFabric.seconds_per_byte, 1, 1e-6);
  EXPECT_NEAR(found.seconds_per_term / kFabric.seconds_per_term, 1, 1e-6);
  EXPECT_EQ(print(kFabric), "20.0 us a message, 4.0 GB/s sent, 10.0 GB/s added");
}

TEST(CollectiveCost, NothingHasANegativePrice) {
  // Reductions that took no longer than what they move.
  std::vector<MeasuredCollective> measured = {
      {Collective::kAllGather, Algorithm::kRing, 2, {1 << 20}, 1e-3},
      {Collective::kReduceScatter, Algorithm::kExchange, 2, {1 << 20}, 0.8e-3},
      {Collective::kBarrier, Algorithm::kDoubling, 2, {0}, 1e-5}};
  const Fabric found = fitted_fabric(measured);
  EXPECT_EQ(found.seconds_per_term, 0);
  EXPECT_GT(found.seconds_per_byte, 0);
  EXPECT_GT(found.latency, 0);
}

}  // namespace
}  // namespace adjoint

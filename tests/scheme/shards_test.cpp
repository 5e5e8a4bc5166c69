// Which elements of a whole a rank holds: all ranks together hold each element once.
#include "scheme/shards.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

// An object of these whole sizes, cut as the placements say, in order.
Object cut(std::vector<int64_t> sizes, std::vector<Placement> placements,
           const std::vector<MeshAxis>& mesh) {
  Object object;
  for (const int64_t size : sizes) object.type.axes.push_back({"a", size});
  for (Placement& p : placements) {
    Axis& axis = object.type.axes[p.axis];
    p.whole = axis.size;
    axis.size = shard_size(axis.size, p.segments, mesh_size(mesh, p.mesh_axis));
  }
  object.attributes.placement = placements;
  return object;
}

TEST(Shards, TheLastAxisOfTheMeshIsTheFastest) {
  const std::vector<MeshAxis> mesh = {{"data", 2}, {"tensor", 3}};
  EXPECT_EQ(coordinates_of(0, mesh), (Coordinates{{"data", 0}, {"tensor", 0}}));
  EXPECT_EQ(coordinates_of(2, mesh), (Coordinates{{"data", 0}, {"tensor", 2}}));
  EXPECT_EQ(coordinates_of(4, mesh), (Coordinates{{"data", 1}, {"tensor", 1}}));
}

TEST(Shards, RunsOfOneAxis) {
  const std::vector<MeshAxis> mesh = {{"data", 2}};
  const Object rows = cut({5, 3}, {{"data", Spread::kSharded, 0}}, mesh);
  EXPECT_EQ(whole_type(rows).num_elements(), 15);
  EXPECT_EQ(shard_runs(rows, mesh, {{"data", 0}}), (std::vector<ShardRun>{{0, 0, 9}}));
  EXPECT_EQ(shard_runs(rows, mesh, {{"data", 1}}), (std::vector<ShardRun>{{9, 0, 6}}));
  const Object columns = cut({2, 5}, {{"data", Spread::kSharded, 1}}, mesh);
  EXPECT_EQ(shard_runs(columns, mesh, {{"data", 1}}),
            (std::vector<ShardRun>{{3, 0, 2}, {8, 3, 2}}));
}

// Of an axis that holds several things a rank has its piece of each, and another axis of the mesh
// cuts what it has.
TEST(Shards, RunsOfSegments) {
  const std::vector<MeshAxis> mesh = {{"data", 2}, {"tensor", 2}};
  const Placement heads{"tensor", Spread::kSharded, 0, 0, {4, 2, 2}};
  const Object packed = cut({8, 3}, {heads}, mesh);
  EXPECT_EQ(packed.type.dim(0), 4);
  EXPECT_EQ(shard_runs(packed, mesh, {{"data", 0}, {"tensor", 1}}),
            (std::vector<ShardRun>{{6, 0, 6}, {15, 6, 3}, {21, 9, 3}}));
  const Object both = cut({8, 3}, {heads, {"data", Spread::kSharded, 0}}, mesh);
  EXPECT_EQ(shard_runs(both, mesh, {{"data", 1}, {"tensor", 0}}),
            (std::vector<ShardRun>{{12, 0, 3}, {18, 3, 3}}));
}

// What is replicated or partial is held whole, and what nobody realized is not cut.
TEST(Shards, WhatIsNotCutIsOneRun) {
  const std::vector<MeshAxis> mesh = {{"data", 2}};
  Object object = cut({4, 3}, {}, mesh);
  object.attributes.placement = {{"data", Spread::kPartial}};
  EXPECT_EQ(shard_runs(object, mesh, {{"data", 1}}), (std::vector<ShardRun>{{0, 0, 12}}));
  object.attributes.placement = {{"data", Spread::kSharded, 0}};
  EXPECT_EQ(shard_runs(object, mesh, {{"data", 1}}), (std::vector<ShardRun>{{0, 0, 12}}));
}

void expect_each_once(const Object& object, const std::vector<MeshAxis>& mesh) {
  std::vector<int> held(whole_type(object).num_elements(), 0);
  for (int rank = 0; rank < num_ranks(mesh); ++rank) {
    for (const ShardRun& r : shard_runs(object, mesh, coordinates_of(rank, mesh))) {
      EXPECT_LE(r.local + r.count, object.type.num_elements());
      for (int64_t i = 0; i < r.count; ++i) ++held[r.whole + i];
    }
  }
  EXPECT_EQ(held, std::vector<int>(held.size(), 1));
}

TEST(Shards, AllRanksTogetherHoldEachElementOnce) {
  const std::vector<MeshAxis> mesh = {{"data", 2}, {"tensor", 3}};
  const std::vector<std::vector<Placement>> ways = {
      {{"data", Spread::kSharded, 0}, {"tensor", Spread::kSharded, 2}},
      {{"data", Spread::kSharded, 1}, {"tensor", Spread::kSharded, 0}},
      {{"data", Spread::kSharded, 1}, {"tensor", Spread::kSharded, 1}},  // an axis over both
      {{"tensor", Spread::kSharded, 0}, {"data", Spread::kSharded, 0}}};
  const std::vector<Placement> heads = {{"tensor", Spread::kSharded, 0, 0, {6, 3, 3}},
                                        {"data", Spread::kSharded, 0}};
  expect_each_once(cut({12, 2}, heads, mesh), mesh);
  for (const std::vector<Placement>& way : ways) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{6, 6, 6}, std::vector<int64_t>{7, 5, 4},
          std::vector<int64_t>{3, 11, 2}}) {
      const Object object = cut(sizes, way, mesh);
      SCOPED_TRACE(std::to_string(way[0].axis) + " " + std::to_string(way[1].axis));
      expect_each_once(object, mesh);
    }
  }
}

}  // namespace
}  // namespace adjoint

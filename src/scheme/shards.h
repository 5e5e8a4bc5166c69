// Which elements of a logical tensor a rank holds. Initial values, batches, saves, loading and
// `verify` all ask here, so none of them depends on the mesh.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

using Coordinates = std::map<std::string, int, std::less<>>;  // by axis of the mesh

// Along this axis lie the stages of a pipeline, whose ranks run different steps.
constexpr char kStageAxis[] = "stage";

// The coordinates of a rank: the last axis of the mesh is the fastest.
Coordinates coordinates_of(int rank, const std::vector<MeshAxis>& mesh);
// The control tensor of a scheme that says where along an axis of the mesh its rank is.
Source mesh_coordinate(std::string_view mesh_axis);

// Whether a rank holds a piece of the object, and no more.
bool is_sharded(const Object& object);
// The type of all pieces of an object together; its own type where it is not sharded.
Type whole_type(const Object& object);

// `count` elements that lie one behind the other both in the whole and in the rank's piece.
struct ShardRun {
  int64_t whole = 0, local = 0, count = 0;  // elements, logical
  bool operator==(const ShardRun&) const = default;
};
// Of a realized placement. Runs are in order; elements of the piece that none covers are padding.
std::vector<ShardRun> shard_runs(const Object& object, const std::vector<MeshAxis>& mesh,
                                 const Coordinates& at);

}  // namespace adjoint

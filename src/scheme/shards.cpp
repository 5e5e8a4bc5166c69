#include "scheme/shards.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

Coordinates coordinates_of(int rank, const std::vector<MeshAxis>& mesh) {
  CHECK(rank >= 0 && rank < num_ranks(mesh), "a rank of the mesh");
  Coordinates at;
  for (size_t i = mesh.size(); i-- > 0;) {
    at[mesh[i].name] = rank % mesh[i].size;
    rank /= mesh[i].size;
  }
  return at;
}

Source mesh_coordinate(std::string_view mesh_axis) { return {"mesh", std::string(mesh_axis)}; }

namespace {

// The part of one axis that a rank holds: [begin, begin + count) of the whole.
struct Held {
  int64_t begin = 0, count = 0;
};

bool is_realized_shard(const Placement& p) { return p.spread == Spread::kSharded && p.whole > 0; }

}  // namespace

bool is_sharded(const Object& object) {
  const std::vector<Placement>& all = object.attributes.placement;
  return std::any_of(all.begin(), all.end(), is_realized_shard);
}

Type whole_type(const Object& object) {
  Type type = object.type;
  // The first placement of an axis has cut the whole, later ones its pieces.
  const std::vector<Placement>& all = object.attributes.placement;
  for (size_t i = all.size(); i-- > 0;) {
    if (!is_realized_shard(all[i])) continue;
    Axis& axis = type.axes[all[i].axis];
    axis = {axis.name, all[i].whole};
  }
  return type;
}

std::vector<ShardRun> shard_runs(const Object& object, const std::vector<MeshAxis>& mesh,
                                 const Coordinates& at) {
  const Type whole = whole_type(object);
  const int rank = whole.rank();
  std::vector<Held> held;
  for (const Axis& axis : whole.axes) held.push_back({0, axis.size});
  int last = -1;  // the last axis that is cut
  for (const Placement& p : object.attributes.placement) {
    if (!is_realized_shard(p)) continue;
    const int64_t piece = shard_size(p.whole, mesh_size(mesh, p.mesh_axis));
    const int64_t skipped = piece * at.at(p.mesh_axis);
    Held& h = held[p.axis];
    h = {h.begin + skipped, std::clamp<int64_t>(h.count - skipped, 0, piece)};
    last = std::max(last, p.axis);
  }
  if (last < 0) return {{0, 0, whole.num_elements()}};
  int64_t inner = 1;
  for (int a = last + 1; a < rank; ++a) inner *= whole.dim(a);
  std::vector<ShardRun> runs;
  // Every index of the axes before the last one that is cut, as places in whole and piece.
  const auto visit = [&](const auto& self, int axis, int64_t in_whole, int64_t in_piece) -> void {
    const int64_t from = in_whole * whole.dim(axis) + held[axis].begin;
    const int64_t to = in_piece * object.type.dim(axis);
    if (axis == last) {
      if (held[axis].count > 0)
        runs.push_back({from * inner, to * inner, held[axis].count * inner});
      return;
    }
    for (int64_t i = 0; i < held[axis].count; ++i) self(self, axis + 1, from + i, to + i);
  };
  visit(visit, 0, 0, 0);
  return runs;
}

}  // namespace adjoint

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

int64_t shard_size(int64_t whole, const std::vector<int64_t>& segments, int64_t ranks) {
  if (segments.empty()) return shard_size(whole, ranks);
  int64_t size = 0;
  for (const int64_t segment : segments) size += shard_size(segment, ranks);
  return size;
}

Source mesh_coordinate(std::string_view mesh_axis) { return {"mesh", std::string(mesh_axis)}; }

namespace {

// Elements of one axis that a rank holds, one behind the other: from `whole` on in the whole axis,
// from `local` on in the rank's.
struct Held {
  int64_t whole = 0, local = 0, count = 0;
};

// What is left of elements where a placement cuts the axis once more.
std::vector<Held> cut(const std::vector<Held>& held, const Placement& p, int64_t ranks,
                      int64_t rank) {
  std::vector<Held> pieces;
  int64_t segment = 0, local = 0;  // where the segment begins, and the rank's piece of it
  for (const int64_t size : p.segments.empty() ? std::vector{p.whole} : p.segments) {
    const int64_t piece = shard_size(size, ranks);
    const int64_t first = segment + std::min(size, rank * piece);
    const int64_t last = segment + std::min(size, (rank + 1) * piece);
    for (const Held& h : held) {
      const int64_t from = std::max(first, h.local), to = std::min(last, h.local + h.count);
      if (from >= to) continue;
      pieces.push_back({h.whole + from - h.local, local + from - first, to - from});
    }
    segment += size;
    local += piece;
  }
  return pieces;
}

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
  std::vector<std::vector<Held>> held;  // per axis
  for (const Axis& axis : whole.axes) held.push_back({{0, 0, axis.size}});
  int last = -1;  // the last axis that is cut
  for (const Placement& p : object.attributes.placement) {
    if (!is_realized_shard(p)) continue;
    held[p.axis] = cut(held[p.axis], p, mesh_size(mesh, p.mesh_axis), at.at(p.mesh_axis));
    last = std::max(last, p.axis);
  }
  if (last < 0) return {{0, 0, whole.num_elements()}};
  int64_t inner = 1;
  for (int a = last + 1; a < rank; ++a) inner *= whole.dim(a);
  std::vector<ShardRun> runs;
  // Every index of the axes before the last one that is cut, as places in whole and piece.
  const auto visit = [&](const auto& self, int axis, int64_t in_whole, int64_t in_piece) -> void {
    const int64_t from = in_whole * whole.dim(axis), to = in_piece * object.type.dim(axis);
    for (const Held& h : held[axis]) {
      if (axis == last) {
        runs.push_back({(from + h.whole) * inner, (to + h.local) * inner, h.count * inner});
        continue;
      }
      for (int64_t i = 0; i < h.count; ++i) {
        self(self, axis + 1, from + h.whole + i, to + h.local + i);
      }
    }
  };
  visit(visit, 0, 0, 0);
  return runs;
}

}  // namespace adjoint

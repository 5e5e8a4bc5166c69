// Where a rank sits on the mesh: its coordinates, and a group for each axis, of the ranks that
// differ from it along that axis alone.
#pragma once
#include <map>
#include <string>

#include "comm/communicator.h"
#include "scheme/shards.h"

namespace adjoint {

class Seat {
 public:
  // All ranks of `world` call it with the same mesh, which has as many points as there are ranks.
  Seat(const Communicator& world, const std::vector<MeshAxis>& mesh);

  const Communicator& world() const { return world_; }
  int rank() const { return world_.rank(); }
  const Coordinates& coordinates() const { return coordinates_; }
  Communicator& along(std::string_view mesh_axis);

 private:
  Communicator world_;
  Coordinates coordinates_;
  std::map<std::string, Communicator, std::less<>> along_;
};

}  // namespace adjoint

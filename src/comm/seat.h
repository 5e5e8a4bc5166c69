// Where a rank sits on the mesh: its coordinates, and a group for each axis, of the ranks that
// differ from it along that axis alone.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "scheme/shards.h"

namespace adjoint {

class GpuGroup;

class Seat {
 public:
  // All ranks of `world` call it with the same mesh, which has as many points as there are ranks.
  Seat(const Communicator& world, const std::vector<MeshAxis>& mesh);

  const Communicator& world() const { return world_; }
  int rank() const { return world_.rank(); }
  const Coordinates& coordinates() const { return coordinates_; }
  Communicator& along(std::string_view mesh_axis);

  // For ranks with a GPU each, which all call it before a step is prepared: the groups along the
  // axes get their GPUs (Communicator::gpus). An Error says what is missing.
  void open_gpus(bool deterministic);
  // Whether collectives of a GPU's memory are work of its streams, and so can be recorded.
  bool gpus_are_open() const { return !gpus_.empty(); }

 private:
  Communicator world_;
  Coordinates coordinates_;
  std::map<std::string, Communicator, std::less<>> along_;
  std::vector<std::shared_ptr<GpuGroup>> gpus_;  // one for each axis
};

}  // namespace adjoint

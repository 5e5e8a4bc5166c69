#include "comm/seat.h"

#include "base/error.h"
#include "comm/gpu_group.h"

namespace adjoint {

Seat::Seat(const Communicator& world, const std::vector<MeshAxis>& mesh)
    : world_(world), coordinates_(coordinates_of(world.rank(), mesh)) {
  CHECK(num_ranks(mesh) == world.size(), "a mesh of as many ranks as there are");
  int stride = world.size();
  for (const MeshAxis& axis : mesh) {
    stride /= axis.size;
    const int mine = coordinates_.at(axis.name);
    // Ranks that differ along this axis alone name the same first one.
    along_.emplace(axis.name, world_.split(world.rank() - mine * stride, mine));
  }
}

void Seat::open_gpus(bool deterministic) {
  for (auto& [axis, group] : along_) {
    gpus_.push_back(std::make_shared<GpuGroup>(group, deterministic));
    if (axis == kStageAxis) gpus_.back()->open_messages();  // no other axis has any
    group.set_gpus(gpus_.back().get());
  }
}

Communicator& Seat::along(std::string_view mesh_axis) {
  const auto found = along_.find(mesh_axis);
  CHECK(found != along_.end(), "an axis of the mesh: " + std::string(mesh_axis));
  return found->second;
}

}  // namespace adjoint

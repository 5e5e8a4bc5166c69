// Placement: per axis of the mesh an object is replicated on every rank, sharded along one of its
// own axes, or a partial sum. On one rank every axis of the mesh has size 1, so a shard is the
// whole object and a partial sum is the sum: nothing is inserted. Placements that no mesh allows
// are refused here, too, so that a stack is legal on one rank exactly if it is legal on many.
#include "base/error.h"
#include "functors/phases.h"

namespace adjoint {

Scheme realize_placement(Scheme scheme) {
  for (const Object& object : scheme.objects) {
    for (const Placement& p : object.attributes.placement) {
      if (p.spread != Spread::kSharded || p.axis < object.type.rank()) continue;
      fail("placement: '", to_string(object.source), "' has ", object.type.rank(),
           " axes, so axis ", p.axis, " cannot be sharded over ", p.mesh_axis);
    }
  }
  return scheme;
}

}  // namespace adjoint

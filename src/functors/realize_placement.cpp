// Placement: per axis of the mesh an object is whole on every rank, sharded along one of its own
// axes, or a partial sum. Every axis of a mesh of one rank has size 1, so every shard is the whole
// and every partial sum is the sum: nothing is inserted. What could never be is refused here too,
// so that a stack which is legal on one rank says the same of its objects as on many.
#include "functors/functor.h"

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

// A fixed few of the random meshes; tests/long draws many.
#include "laws/mesh_fuzz.h"

namespace adjoint {
namespace {

TEST(MeshFuzz, ARandomMeshIsRefusedOrRight) {
  const MeshCounts counts = fuzz_meshes(1, 4);
  EXPECT_GE(counts.right, 2);
}

TEST(MeshFuzz, ARandomPipelineIsRefusedOrRight) {
  const MeshCounts counts = fuzz_meshes(1, 4, true);
  EXPECT_GE(counts.right, 1);
}

}  // namespace
}  // namespace adjoint

// Many random meshes (laws/mesh_fuzz.h). ADJOINT_FUZZ=first,count draws others.
#include "laws/mesh_fuzz.h"

namespace adjoint {
namespace {

void fuzz_many(bool with_stages) {
  unsigned first = 1000, count = 300;
  if (const char* said = std::getenv("ADJOINT_FUZZ")) {
    ASSERT_EQ(std::sscanf(said, "%u,%u", &first, &count), 2) << "wanted first,count";
  }
  const MeshCounts counts = fuzz_meshes(first, count, with_stages);
  std::printf("%d right, %d refused, %d wrong\n", counts.right, counts.refused, counts.wrong);
  EXPECT_GT(counts.right, counts.refused);
}

TEST(MeshFuzz, ManyRandomMeshesAreRefusedOrRight) { fuzz_many(false); }
TEST(MeshFuzz, ManyRandomPipelinesAreRefusedOrRight) { fuzz_many(true); }

}  // namespace
}  // namespace adjoint

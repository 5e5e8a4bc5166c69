// Files hold these hashes, so their values are pinned.
#include "base/hash.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash_of(""), 0x2d06800538d394c2) << "as xxHash publishes it";
  EXPECT_EQ(hash_of("adjoint"), 0x31461680ea4c3f6f);
  EXPECT_NE(hash_of("adjoint", 1), hash_of("adjoint"));
  EXPECT_EQ(hash_text(hash_of("")), "xxh3:2d06800538d394c2");
}

}  // namespace
}  // namespace adjoint

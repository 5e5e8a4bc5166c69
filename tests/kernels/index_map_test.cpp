// How merged axes are said, and what follows for who splits work. That the maps are right is
// OpContract's to show, by numbers.
#include "ops/index_map.h"

#include <gtest/gtest.h>

#include "analysis/batch_split.h"
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {
namespace {

TEST(IndexMap, HeadsAreALetter) {
  const Attrs attrs = {{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}};
  const IndexMap apart =
      index_map_of({"attention", {of({1, 5, 12}), of({1, 5, 6}), of({1, 5, 6})}, attrs});
  EXPECT_EQ(to_string(apart), "bs(kgd), bs(kd), bs(kd) -> bs(kgd), bkgs; whole sd");
  EXPECT_TRUE(apart.has(apart.inputs[1], 'k'));
  EXPECT_FALSE(apart.has(apart.inputs[1], 'g'));
  const IndexMap packed = index_map_of({"attention", {of({1, 5, 24})}, attrs});
  EXPECT_EQ(to_string(packed), "bs[kgd|kd|kd] -> bs(kgd), bkgs; whole sd");
  EXPECT_EQ(to_string(index_map_of({"split", {of({2, 6})}, {{"parts", int64_t{3}}}})),
            "a(yz) -> ayz");
}

TEST(IndexMap, SummedLettersAreSeenInsideMergedAxes) {
  const IndexMap map{.inputs = {"aM"}, .outputs = {"a"}, .merged = {{'M', {"yz"}}}};
  EXPECT_EQ(to_string(map), "a(yz) -> a; summed yz");
}

// Samples inside a merged axis are no axis of samples any more.
TEST(IndexMap, NoBatchIsSplitInsideAMergedAxis) {
  const Scheme scheme = parse_scheme(R"(scheme:
  input %0 x: f32[b=4, n=3]
  %1 y: f32[n=12] = merge(%0) @y
  %2 z: f32[] = square_sum(%1) @z
  return %2
)");
  try {
    split_batch(scheme, "accumulate", false);
    FAIL() << "split";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "accumulate: merge at y needs the axis b=4 of 'x' whole, and that axis holds the "
              "samples that come in parts");
  }
}

}  // namespace
}  // namespace adjoint

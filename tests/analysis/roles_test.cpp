// What a parameter is, told from its uses: the same sizes under other names and in other places
// give other kinds. Names in these schemes mislead on purpose.
#include "analysis/roles.h"

#include <gtest/gtest.h>

#include "ops/op_def.h"

namespace adjoint {
namespace {

// Kinds of the inputs that are parameters, in order.
std::vector<ParameterKind> kinds_in(std::string_view text) {
  const Scheme scheme = parse_scheme(text);
  verify(scheme);
  const std::vector<ParameterKind> all = parameter_kinds(scheme);
  EXPECT_EQ(all.size(), scheme.objects.size());
  std::vector<ParameterKind> kinds;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kParameter) kinds.push_back(all[in]);
  }
  return kinds;
}

using Kinds = std::vector<ParameterKind>;
constexpr auto kMatrix = ParameterKind::kMatrix;
constexpr auto kTable = ParameterKind::kTable;
constexpr auto kVector = ParameterKind::kVector;

TEST(Roles, ALinearMapHasAMatrixAndABias) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 bias: f32[o=5, i=3]
  parameter %2 weight: f32[o=5]
  %3 y: f32[b=2, o=5] = linear(%0, %1, %2) @y
  return %3
)"),
            (Kinds{kMatrix, kVector}));
}

TEST(Roles, GainsAndShiftsOfNormsAreVectors) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 matrix: f32[i=3]
  parameter %2 table: f32[i=3]
  parameter %3 w: f32[i=3]
  %4 n: f32[b=2, i=3] = layer_norm(%0, %1, %2) @n
  %5 r: f32[b=2, i=3] = rms_norm(%4, %3) @r
  return %5
)"),
            (Kinds{kVector, kVector, kVector}));
}

TEST(Roles, LookedUpByIdsItIsATable) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 tokens: i32[b=2, s=4]
  parameter %1 wte: f32[v=7, i=3]
  parameter %2 wpe: f32[context=9, i=3]
  %3 at: i32[s=4] = positions() {shape=[4]} @at
  %4 x: f32[b=2, s=4, i=3] = embed(%0, %1) @x
  %5 p: f32[s=4, i=3] = embed(%3, %2) @p
  %6 y: f32[b=2, s=4, i=3] = add(%4, %5) @y
  return %6
)"),
            (Kinds{kTable, kTable}));
}

// The readout's weight is the table itself: used as a matrix anywhere, it is one.
TEST(Roles, ATiedReadoutIsAMatrixWhicheverUseComesFirst) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 tokens: i32[b=2]
  parameter %1 wte: f32[v=7, i=3]
  %2 x: f32[b=2, i=3] = embed(%0, %1) @x
  %3 y: f32[b=2, v=7] = linear(%2, %1) @y
  return %3
)"),
            (Kinds{kMatrix}));
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 tokens: i32[b=2]
  input %1 h: f32[b=2, i=3]
  parameter %2 wte: f32[v=7, i=3]
  %3 y: f32[b=2, v=7] = linear(%1, %2) @y
  %4 x: f32[b=2, i=3] = embed(%0, %2) @x
  return %3, %4
)"),
            (Kinds{kMatrix}));
}

// Two axes do not make a matrix, and one axis may: it is the summing that does.
TEST(Roles, ShapeAloneDecidesNothing) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, s=4, i=3]
  parameter %1 scale: f32[s=4, i=3]
  parameter %2 shift: f32[s=4, i=3]
  parameter %3 direction: f32[i=3]
  %4 y: f32[b=2, s=4, i=3] = mul(%0, %1) @y
  %5 z: f32[b=2, s=4, i=3] = add(%4, %2) @z
  %6 along: f32[b=2, s=4] = contract(%5, %3) {map="bsi,i->bs"} @along
  return %6
)"),
            (Kinds{kVector, kVector, kMatrix}));
}

// Gradients read parameters too (the input gradient of a linear map sums over its rows), and an
// update reads them all; neither says what the parameter is.
TEST(Roles, OnlyTheForwardPassCounts) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 gain: f32[i=3]
  %2 y: f32[b=2, i=3] = mul(%0, %1) @y
  %3 dx: f32[b=2] gradient = contract(%0, %1) {map="bi,i->b"} @y:grad backward
  return %2, %3
)"),
            (Kinds{kVector}));
}

TEST(Roles, AFrozenParameterHasAKindAndAnUnusedOneIsAVector) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 w: f32[o=5, i=3] frozen
  parameter %2 idle: f32[o=5, i=3]
  %3 y: f32[b=2, o=5] = linear(%0, %1) @y
  return %3
)"),
            (Kinds{kMatrix, kVector}));
}

}  // namespace
}  // namespace adjoint

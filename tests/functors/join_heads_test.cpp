// Which calls on heads are joined and which are not, as text. That generation keeps its law with it
// is held in tests/train/cache_law_test.cpp.
#include <gtest/gtest.h>

#include "functors/becomes.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

// Two heads of queries, one of keys and one of values, of four numbers each.
const std::string kTurned = R"(scheme:
  input %0 x: f32[b=2, s=3, h=16]
  input %1 cos: f32[s=3, one=1, d=4]
  input %2 sin: f32[s=3, one=1, d=4]
  %3 q: f32[b=2, s=3, h=8] = slice(%0) {size=8, start=0} @q
  %4 k: f32[b=2, s=3, h=4] = slice(%0) {size=4, start=8} @k
  %5 q.split: f32[b=2, s=3, parts=2, h=4] = split(%3) {parts=2} @q.split
  %6 q.turned: f32[b=2, s=3, parts=2, h=4] = rotary(%5, %1, %2) @q.turned
  %7 k.split: f32[b=2, s=3, parts=1, h=4] = split(%4) {parts=1} @k.split
  %8 k.turned: f32[b=2, s=3, parts=1, h=4] = rotary(%7, %1, %2) @k.turned
  %9 q.merged: f32[b=2, s=3, h=8] = merge(%6) @q.merged
  %10 k.merged: f32[b=2, s=3, h=4] = merge(%8) @k.merged
  return %9, %10
)";

TEST(JoinHeads, RotaryOfQueriesAndKeysBecomesOne) {
  expect_becomes(
      "join_heads", kTurned,
      {"q.turned.joined.slice = slice(x)", "q.turned.joined.split = split(q.turned.joined.slice)",
       "q.turned.joined = rotary(q.turned.joined.split, cos, sin)",
       "q.turned = slice(q.turned.joined)", "k.turned = slice(q.turned.joined)",
       "q.merged = merge(q.turned)", "k.merged = merge(k.turned)"});
}

TEST(JoinHeads, OthersStayAsTheyAre) {
  const auto stays = [](const std::string& text) { EXPECT_EQ(applied("join_heads", text), text); };
  // Other angles, a gap between them, or heads of another width.
  stays(replaced(kTurned, "rotary(%7, %1, %2)", "rotary(%7, %2, %1)"));
  stays(replaced(kTurned, "{size=4, start=8}", "{size=4, start=12}"));
  stays(replaced(replaced(replaced(kTurned, "parts=2, h=4] = split(%3) {parts=2}",
                                   "parts=4, h=2] = split(%3) {parts=4}"),
                          "parts=2, h=4] = rotary(%5, %1, %2)", "parts=4, h=2] = exp(%5)"),
                 "= rotary(%7, %1, %2)", "= exp(%7)"));
}

}  // namespace
}  // namespace adjoint

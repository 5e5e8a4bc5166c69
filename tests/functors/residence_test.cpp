// What recomputation writes: clones per epoch, held back until the epoch begins; and what the
// default functor marks.
#include <gtest/gtest.h>

#include <algorithm>

#include "functors/functor_named.h"

namespace adjoint {
namespace {

std::string realized(const std::string& text) {
  const Scheme before = parse_scheme(text);
  verify(before);
  const Scheme after = realize_residence(before);
  verify(after);
  return print(after);
}

// Three blocks x -> a -> b -> c; the backward of each reads its operand.
const std::string kThree = R"(scheme:
  input %0 x: f32[n=4]
  control %1 scale: f32[]
  %2 a: f32[n=4] = gelu(%0) @a
  %3 b: f32[n=4] = gelu(%2) @b
  %4 c: f32[n=4] = gelu(%3) @c
  %5 loss: f32[] metric = square_sum(%4) @loss
  %6 c:grad: f32[n=4] gradient = mul(%4, %1) @loss:grad backward
  %7 b:grad: f32[n=4] gradient = mul(%6, %3) @c:grad backward
  %8 a:grad: f32[n=4] gradient = mul(%7, %2) @b:grad backward
  %9 x:grad: f32[n=4] gradient = mul(%8, %0) @a:grad backward
  return %5, %9
)";
std::string marked(const std::string& a, const std::string& b, std::string text = kThree) {
  text = replaced(text, "%2 a: f32[n=4] =", "%2 a: f32[n=4]" + a + " =");
  return replaced(text, "%3 b: f32[n=4] =", "%3 b: f32[n=4]" + b + " =");
}

TEST(Residence, NothingSaidNothingChanged) {
  EXPECT_EQ(realized(kThree), kThree);
  EXPECT_EQ(realized(marked(" kept", " kept")), marked(" kept", " kept"));
}

// The ends of segments are x, a and c: b is recomputed from a, in the third segment's epoch, when
// the gradient of c is there.
TEST(Residence, OneStateIsMadeAgainFromTheOneBeforeIt) {
  EXPECT_EQ(realized(marked("", " recomputed")),
            replaced(marked("", " recomputed"),
                     "  %7 b:grad: f32[n=4] gradient = mul(%6, %3) @c:grad backward\n",
                     "  %10 b:epoch3: f32[n=4] = gelu(%2) @b:epoch3 backward epoch=3 after %6\n"
                     "  %7 b:grad: f32[n=4] gradient = mul(%6, %10) @c:grad backward\n"));
}

// a and b lie in one segment, so its epoch makes a once, for b's clone and for the gradient.
TEST(Residence, AnEpochComputesOnce) {
  std::string want = marked(" recomputed", " recomputed");
  want = replaced(want, "  %7 b:grad: f32[n=4] gradient = mul(%6, %3) @c:grad backward\n",
                  "  %10 a:epoch2: f32[n=4] = gelu(%0) @a:epoch2 backward epoch=2 after %6\n"
                  "  %11 b:epoch2: f32[n=4] = gelu(%10) @b:epoch2 backward epoch=2\n"
                  "  %7 b:grad: f32[n=4] gradient = mul(%6, %11) @c:grad backward\n");
  want = replaced(want, "mul(%7, %2)", "mul(%7, %10)");
  EXPECT_EQ(realized(marked(" recomputed", " recomputed")), want);
}

// Apart: each state begins an epoch, and each epoch begins at the beginning.
TEST(Residence, ApartEachEpochComputesForItself) {
  std::string want = marked(" apart", " apart");
  want = replaced(want, "  %7 b:grad: f32[n=4] gradient = mul(%6, %3) @c:grad backward\n",
                  "  %10 a:epoch4: f32[n=4] = gelu(%0) @a:epoch4 backward epoch=4 after %6\n"
                  "  %11 b:epoch4: f32[n=4] = gelu(%10) @b:epoch4 backward epoch=4\n"
                  "  %7 b:grad: f32[n=4] gradient = mul(%6, %11) @c:grad backward\n");
  want = replaced(want, "  %8 a:grad: f32[n=4] gradient = mul(%7, %2) @b:grad backward\n",
                  "  %12 a:epoch3: f32[n=4] = gelu(%0) @a:epoch3 backward epoch=3 after %7\n"
                  "  %8 a:grad: f32[n=4] gradient = mul(%7, %12) @b:grad backward\n");
  EXPECT_EQ(realized(marked(" apart", " apart")), want);
}

// In the last segment no gradient enters from another: its epoch waits for the forward's end.
TEST(Residence, TheLastEpochWaitsForTheLoss) {
  const std::string text = replaced(kThree, "%4 c: f32[n=4] =", "%4 c: f32[n=4] recomputed =");
  EXPECT_EQ(realized(text),
            replaced(text, "  %6 c:grad: f32[n=4] gradient = mul(%4, %1) @loss:grad backward\n",
                     "  %10 c:epoch4: f32[n=4] = gelu(%3) @c:epoch4 backward epoch=4 after %5\n"
                     "  %6 c:grad: f32[n=4] gradient = mul(%10, %1) @loss:grad backward\n"));
}

TEST(Residence, WhatIsReturnedStays) {
  const std::string text =
      replaced(marked("", " recomputed"), "return %5, %9", "return %5, %3, %9");
  EXPECT_EQ(realized(text), text);
}

// A choice is saved, not recomputed: the scores are recomputed for their other readers.
TEST(Residence, ChoicesStay) {
  const std::string text = R"(scheme:
  input %0 x: f32[n=3, m=4]
  parameter %1 table: f32[rows=4, o=5]
  %2 scores: f32[n=3, m=4] recomputed = exp(%0) @scores
  %3 choice: i32[n=3, chosen=2] recomputed = top_k(%2) {k=2} @choice
  %4 loss: f32[] metric = square_sum(%2) @loss
  %5 g: f32[n=3, chosen=2, o=5] gradient = embed(%3, %1) @choice:grad backward
  return %4, %5
)";
  EXPECT_EQ(realized(text), text);
}

// A view shares its object's bytes, so it is recomputed with it; the random op keeps its key.
TEST(Residence, ViewsFollowAndRandomOpsDrawTheSame) {
  const std::string head = R"(scheme:
  input %0 x: f32[batch=1, n=4]
  control %1 random: i64[counter=3]
)";
  const std::string made = "dropout(%0, %1) {key=\"a\", rate=0.5} @a";
  const std::string tail = R"(  %4 loss: f32[] metric = square_sum(%3) @loss
)";
  const std::string before = head + "  %2 a: f32[batch=1, n=4] recomputed = " + made + R"(
  %3 v: f32[batch=1, parts=2, n/2=2] = split(%2) {parts=2} @v
)" + tail + R"(  %5 g: f32[batch=1, parts=2, n/2=2] gradient = mul(%3, %4) @v:grad backward
  return %4, %5
)";
  const std::string after = realized(before);
  EXPECT_NE(after.find("dropout(%0, %1) {key=\"a\", rate=0.5} @a:epoch"), std::string::npos)
      << after;
  EXPECT_NE(after.find("split(%6) {parts=2} @v:epoch"), std::string::npos) << after;
  EXPECT_NE(after.find("mul(%7, %4)"), std::string::npos) << after;
}

// What only the backward read is gone from the forward.
TEST(Residence, TheOriginalDiesWhenNobodyReadsIt) {
  const std::string text = R"(scheme:
  input %0 x: f32[n=4]
  %1 a: f32[n=4] recomputed = exp(%0) @a
  %2 loss: f32[] metric = square_sum(%0) @loss
  %3 g: f32[n=4] gradient = mul(%1, %2) @loss:grad backward
  return %2, %3
)";
  EXPECT_EQ(realized(text), R"(scheme:
  input %0 x: f32[n=4]
  %1 loss: f32[] metric = square_sum(%0) @loss
  %3 a:epoch1: f32[n=4] = exp(%0) @a:epoch1 backward epoch=1 after %1
  %2 g: f32[n=4] gradient = mul(%3, %1) @loss:grad backward
  return %1, %2
)");
}

// Realizing a second time changes nothing.
TEST(Residence, IsRealizedOnce) {
  const std::string once = realized(marked(" apart", " recomputed"));
  EXPECT_EQ(realized(once), once);
}

// An up-projection, gelu and a down-projection, with what their gradients read.
const std::string kFeedForward = R"(scheme:
  input %0 x: f32[b=2, n=4]
  parameter %1 up: f32[m=8, n=4]
  parameter %2 down: f32[n=4, m=8]
  %3 h: f32[b=2, m=8] = linear(%0, %1) @h
  %4 a: f32[b=2, m=8] = gelu(%3) @a
  %5 y: f32[b=2, n=4] = linear(%4, %2) @y
  %6 e: f32[b=2, n=4] = exp(%5) @e
  %7 loss: f32[] metric = square_sum(%6) @loss
  %8 y:grad: f32[b=2, n=4] gradient = mul(%6, %7) @loss:grad backward
  %9 down:grad: f32[n=4, m=8] gradient = contract(%8, %4) {map="bn,bm->nm"} @y:grad backward
)";

std::vector<std::string> marks_by(const std::string& functor, const StepOptions& options,
                                  const std::string& text,
                                  Residence residence = Residence::kRecomputed) {
  const Scheme s = apply_functor(functor, parse_scheme(text), options);
  std::vector<std::string> paths;
  for (const Object& o : s.objects) {
    if (o.attributes.residence == residence) paths.push_back(o.source.path);
  }
  return paths;
}
std::vector<std::string> marks(const std::string& text,
                               Residence residence = Residence::kRecomputed) {
  return marks_by("recompute_cheap(within=1)", {}, text, residence);
}
using Paths = std::vector<std::string>;

// h is read by gelu's gradient, so it is kept and a comes from it.
TEST(RecomputeCheap, AnActivationWhoseOperandIsKept) {
  EXPECT_EQ(marks(kFeedForward + "  %10 g: f32[b=2, m=8] gradient = mul(%3, %3) @a:grad backward\n"
                                 "  return %7, %9, %10\n"),
            Paths{"a"});
}

// Were a marked here, h would be kept for its sake alone: no bytes saved. Nor is y kept for e.
TEST(RecomputeCheap, NothingIsKeptForItsSake) {
  EXPECT_EQ(marks(kFeedForward + "  return %7, %9\n"), Paths{});
}

// Two on the way: the first is not read by the backward, and marked for the second's sake.
TEST(RecomputeCheap, AChainOfCheapOnes) {
  const std::string text = R"(scheme:
  input %0 x: f32[b=2, n=4]
  %1 s: f32[b=2, n=4] = silu(%0) @s
  %2 t: f32[b=2, n=4] = tanh(%1) @t
  %3 loss: f32[] metric = square_sum(%2) @loss
  %4 g: f32[b=2, n=4] gradient = mul(%2, %3) @loss:grad backward
  return %3, %4
)";
  EXPECT_EQ(marks(text), (Paths{"s", "t"}));
  EXPECT_EQ(marks(replaced(text, "%2 t: f32[b=2, n=4]", "%2 t: f32[b=2, n=4] kept")), Paths{});
  EXPECT_EQ(marks(replaced(text, "return %3", "return %2, %3")), Paths{});
  EXPECT_EQ(marks(replaced(text, "input %0", "parameter %0")), Paths{}) << "made once for all";
}

// silu(g) * u: its gradient reads g and u, so silu(g) inside it costs no byte, and the forward that
// multiplies it on the spot has no need to write it. The product h is read by down's gradient,
// which is no row of arithmetic: for its sake there would be one call more.
TEST(RecomputeCheap, WhatItsReadersComputeThemselvesGainsTime) {
  const std::string text = R"(scheme:
  input %0 g: f32[b=64, m=512]
  input %1 u: f32[b=64, m=512]
  parameter %2 down: f32[n=128, m=512]
  %3 s: f32[b=64, m=512] = silu(%0) @s
  %4 h: f32[b=64, m=512] = mul(%3, %1) @h
  %5 y: f32[b=64, n=128] = linear(%4, %2) @y
  %6 loss: f32[] metric = square_sum(%5) @loss
  %7 y:grad: f32[b=64, n=128] gradient = mul(%5, %6) @loss:grad backward
  %8 down:grad: f32[n=128, m=512] gradient = contract(%7, %4) {map="bn,bm->nm"} @y:grad backward
  %9 h:grad: f32[b=64, m=512] gradient = contract(%7, %2) {map="bn,nm->bm"} @y:grad backward
  %10 s:grad: f32[b=64, m=512] gradient = mul(%9, %1) @h:grad backward
  %11 u:grad: f32[b=64, m=512] gradient = mul(%9, %3) @h:grad backward
  %12 g:grad: f32[b=64, m=512] gradient = mul(%10, %0) @s:grad backward
  return %6, %8, %11, %12
)";
  StepOptions gpu;
  gpu.target = Target::kCuda;
  EXPECT_EQ(marks_by("recompute_cheap(within=0)", gpu, text), Paths{"s"});
  EXPECT_EQ(marks_by("recompute_cheap(within=1)", gpu, text), (Paths{"s", "h"}));
  // Were s read by a product too, or a view of it, somebody would have to write it.
  const std::string joined = replaced(text, "mul(%10, %0)", "mul(%11, %0)");
  EXPECT_EQ(marks_by("recompute_cheap(within=0)", gpu, joined), Paths{"s"});
  const std::string view = replaced(
      joined, "  %4 h:", "  %13 t: f32[b=64, k=2, m=256] = split(%3) {parts=2} @t\n  %4 h:");
  EXPECT_EQ(marks_by("recompute_cheap(within=0)", gpu, view), Paths{"s"}) << "nobody reads it back";
  const std::string read_back =
      replaced(view, "  return",
               "  %14 t:grad: f32[b=64, n=64] gradient = contract(%13, %13) "
               "{map=\"bkm,nkm->bn\"} @t:grad backward\n  return");
  EXPECT_EQ(marks_by("recompute_cheap(within=0)", gpu, read_back), Paths{});
  EXPECT_EQ(marks_by("recompute_cheap(within=0)", gpu,
                     replaced(text, "contract(%7, %4)", "contract(%7, %3)")),
            Paths{});
}

TEST(RecomputeCheap, NeverAStateOfTheChain) { EXPECT_EQ(marks(kThree), Paths{}); }

// The same, recomputed as a whole: y is recomputed to make e, and a to make y.
std::string recomputed_feed_forward(const std::string& a) {
  std::string text = kFeedForward +
                     "  %10 g: f32[b=2, m=8] gradient = mul(%3, %3) @a:grad backward\n"
                     "  return %7, %9, %10\n";
  text = replaced(text, "%3 h: f32[b=2, m=8]", "%3 h: f32[b=2, m=8] recomputed");
  text = replaced(text, "%4 a: f32[b=2, m=8]", "%4 a: f32[b=2, m=8] " + a);
  text = replaced(text, "%5 y: f32[b=2, n=4]", "%5 y: f32[b=2, n=4] recomputed");
  return replaced(text, "%6 e: f32[b=2, n=4]", "%6 e: f32[b=2, n=4] recomputed");
}

// a would wait from the segment's forward to its own gradient; h, which is read there too, makes
// it.
TEST(RecomputeCheap, ApartInARecomputedSegment) {
  const std::string text = recomputed_feed_forward("recomputed");
  EXPECT_EQ(marks(text, Residence::kApart), Paths{"a"});
  EXPECT_EQ(marks(text), (Paths{"h", "y", "e"}));
  // If e is kept, nothing is recomputed from a, so there is nothing to wait for.
  const std::string kept =
      replaced(text, "%6 e: f32[b=2, n=4] recomputed", "%6 e: f32[b=2, n=4] kept");
  EXPECT_EQ(marks(kept, Residence::kApart), Paths{});
  // Were h not read by the backward, it would be kept for a's sake.
  EXPECT_EQ(marks(replaced(text, "mul(%3, %3)", "mul(%4, %4)"), Residence::kApart), Paths{});
}

TEST(Residence, WhatIsApartIsMadeTwice) {
  const std::string text = recomputed_feed_forward("apart");
  std::string want = replaced(
      text, "  %8 y:grad: f32[b=2, n=4] gradient = mul(%6, %7) @loss:grad backward\n",
      "  %11 h:epoch1: f32[b=2, m=8] = linear(%0, %1) @h:epoch1 backward epoch=1 after %7\n"
      "  %12 a:epoch1: f32[b=2, m=8] = gelu(%11) @a:epoch1 backward epoch=1\n"
      "  %13 y:epoch1: f32[b=2, n=4] = linear(%12, %2) @y:epoch1 backward epoch=1\n"
      "  %14 e:epoch1: f32[b=2, n=4] = exp(%13) @e:epoch1 backward epoch=1\n"
      "  %8 y:grad: f32[b=2, n=4] gradient = mul(%14, %7) @loss:grad backward\n");
  want = replaced(want, "  %9 down:grad: f32[n=4, m=8] gradient = contract(%8, %4)",
                  "  %15 a:epoch2: f32[b=2, m=8] = gelu(%11) @a:epoch2 backward epoch=2 after %8\n"
                  "  %9 down:grad: f32[n=4, m=8] gradient = contract(%8, %15)");
  want = replaced(want, "mul(%3, %3)", "mul(%11, %11)");
  EXPECT_EQ(realized(text), want);
}

// Forward and backward take turns, as in a readout by chunks: what the forward still reads is
// there.
TEST(Residence, WhatTheForwardStillReadsIsNotMadeTwice) {
  const std::string text = R"(scheme:
  input %0 x: f32[n=4]
  control %1 scale: f32[]
  %2 a: f32[n=4] recomputed = gelu(%0) @a
  %3 s: f32[] metric = square_sum(%2) @s
  %4 a:grad: f32[n=4] gradient = mul(%2, %1) @s:grad backward
  %5 t: f32[] metric = square_sum(%2) @t
  %6 a:grad.2: f32[n=4] gradient = mul(%2, %4) @t:grad backward
  return %3, %5, %6
)";
  EXPECT_EQ(realized(text), text);
}

// Under a precision a parameter need not keep what it is cast to, for it is always there itself.
TEST(RecomputeCheap, WhatParametersAreCastTo) {
  const std::string text = kFeedForward + "  return %7, %9\n";
  EXPECT_EQ(marks(replaced(text, "%5 y: f32[b=2, n=4]", "%5 y: f32[b=2, n=4] precision=\"bf16\"")),
            (Paths{"up", "down"}));
  const std::string step = R"(scheme:
  input %0 x: f32[b=2, n=4]
  parameter %1 w: f32[m=8, n=4] recomputed
  %2 y: f32[b=2, m=8] precision="bf16" = linear(%0, %1) @y
  %3 loss: f32[] metric = square_sum(%2) @loss
  %4 y:grad: f32[b=2, m=8] gradient precision="bf16" = mul(%2, %3) @loss:grad backward
  %5 x:grad: f32[b=2, n=4] gradient precision="bf16" = contract(%4, %1) {map="bm,mn->bn"} @y:grad backward
  return %3, %5
)";
  const Scheme realized = realize_residence(realize_precision(parse_scheme(step)));
  int casts = 0;  // of w: one for the forward, one for the backward
  for (const Morphism& m : realized.morphisms) {
    if (m.op != "cast" || m.inputs[0] != 1) continue;
    EXPECT_EQ(realized[m.outputs[0]].role, Role::kParameter);
    EXPECT_EQ(m.phase, casts++ == 0 ? Phase::kForward : Phase::kBackward);
  }
  EXPECT_EQ(casts, 2);
}

}  // namespace
}  // namespace adjoint

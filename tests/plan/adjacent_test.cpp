// Operands of a concat are made inside it, parameters that are joined lie one behind the other, and
// what is written over a slice leaves the other slices alone. Every run is poisoned: a byte that is
// freed too soon, or written by two, shows as a NaN or a wrong number.
#include <gtest/gtest.h>

#include "kernels/harness.h"
#include "plan/plan.h"

namespace adjoint {
namespace {

struct Ran {
  Scheme scheme;
  Plan plan;
  std::vector<Numbers> got, want;

  const PlannedCall& call(const std::string& op, int which = 0) const {
    for (const PlannedCall& call : plan.calls) {
      if (scheme.morphisms[call.morphism].op == op && which-- == 0) return call;
    }
    ADD_FAILURE() << "no " << op;
    return plan.calls[0];
  }
};

// Inputs are filled with 1, 2, 3, ... and made small.
Ran ran(const std::string& text) {
  Ran r{parse_scheme(text), {}, {}, {}};
  verify(r.scheme);
  r.plan = make_plan(r.scheme, {.threads = num_threads()});
  std::vector<Numbers> inputs;
  double next = 1;
  for (const Value in : r.scheme.inputs) {
    Numbers x(r.scheme[in].type.num_elements());
    for (double& v : x) v = 0.125 * (next = next > 40 ? -40 : next + 1);
    inputs.push_back(x);
  }
  r.got = run_scheme(r.scheme, inputs, false);
  r.want = run_scheme(r.scheme, inputs, true);
  for (size_t k = 0; k < r.want.size(); ++k) {
    EXPECT_LT(relative_error(r.got[k], r.want[k]), 1e-6) << "output " << k << "\n" << text;
  }
  return r;
}

TEST(Adjacent, OperandsAreMadeInsideTheConcat) {
  const Ran r = ran(R"(scheme:
  input %0 x: f32[n=3, m=5]
  input %1 y: f32[n=2, m=5]
  %2 a: f32[n=3, m=5] = mul(%0, %0) @a
  %3 b: f32[n=2, m=5] = mul(%1, %1) @b
  %4 c: f32[n=5, m=5] = concat(%2, %3) @c
  %5 d: f32[n=3, m=5] = add(%2, %0) @d
  %6 e: f32[n=5, m=5] = add(%4, %4) @e
  return %5, %6
)");
  EXPECT_TRUE(r.call("concat").is_view);
  EXPECT_EQ(r.plan.places[2].storage, r.plan.places[4].storage);
  EXPECT_EQ(r.plan.places[3].offset.count, 3 * 5 * 4);
}

// Along the last axis the parts have holes between their rows: for kernels that write through
// strides, and where nobody else reads the part.
TEST(Adjacent, ColumnsAreMadeInPlaceWhereKernelsCan) {
  const Ran r = ran(R"(scheme:
  input %0 x: f32[n=3, m=5]
  input %1 w: f32[o=4, m=5]
  %2 a: f32[n=3, m=5] = mul(%0, %0) @a
  %3 b: f32[n=3, o=4] = contract(%0, %1) {map="nm,om->no"} @b
  %4 c: f32[n=3, m=9] = concat(%2, %3) {axis=1} @c
  %5 e: f32[n=3, m=9] = exp(%4) @e
  return %5
)");
  // The CPU's products are summed by strides too, so theirs are dense, and copied.
  EXPECT_FALSE(r.call("concat").is_view);
  EXPECT_EQ(r.plan.places[2].strides, (Strides{9, 1}));
  EXPECT_EQ(r.plan.places[3].strides, (Strides{4, 1}));
  const Plan on_cuda = make_plan(r.scheme, {.target = Target::kCuda});
  EXPECT_EQ(on_cuda.places[3].strides, (Strides{9, 1}));
  const Ran shared = ran(R"(scheme:
  input %0 x: f32[n=3, m=5]
  %1 a: f32[n=3, m=5] = mul(%0, %0) @a
  %2 b: f32[n=3, m=5] = exp(%0) @b
  %3 c: f32[n=3, m=10] = concat(%1, %2) {axis=1} @c
  %4 d: f32[n=3, m=5] = add(%1, %0) @d
  return %3, %4
)");
  EXPECT_FALSE(shared.call("concat").is_view) << "a is copied, b is not";
  EXPECT_EQ(shared.plan.places[1].strides, (Strides{5, 1}));
  EXPECT_EQ(shared.plan.places[2].strides, (Strides{10, 1}));
}

// What is merged before it is joined is made in two axes where its one axis will be.
TEST(Adjacent, MergesAreSeenThrough) {
  const Ran r = ran(R"(scheme:
  input %0 x: f32[n=3, p=2, m=5]
  input %1 y: f32[n=3, m=4]
  %2 a: f32[n=3, p=2, m=5] = mul(%0, %0) @a
  %3 b: f32[n=3, m=10] = merge(%2) @b
  %4 c: f32[n=3, m=4] = exp(%1) @c
  %5 d: f32[n=3, m=14] = concat(%3, %4) {axis=1} @d
  return %5
)");
  EXPECT_TRUE(r.call("concat").is_view);
  EXPECT_TRUE(r.call("merge").is_view);
  EXPECT_EQ(r.plan.places[2].strides, (Strides{14, 5, 1}));
}

TEST(Adjacent, ConcatsNest) {
  const Ran r = ran(R"(scheme:
  input %0 x: f32[b=1, n=2, m=5]
  %1 a: f32[b=1, n=2, m=5] = mul(%0, %0) @a
  %2 b: f32[b=1, n=2, m=5] = exp(%0) @b
  %3 c: f32[b=1, n=2, m=5] = tanh(%0) @c
  %4 ab: f32[b=1, n=4, m=5] = concat(%1, %2) {axis=1} @ab
  %5 cc: f32[b=1, n=4, m=5] = concat(%3, %0) {axis=1} @cc
  %6 all: f32[b=2, n=4, m=5] = concat(%4, %5) @all
  return %6
)");
  EXPECT_TRUE(r.call("concat", 0).is_view);
  EXPECT_FALSE(r.call("concat", 1).is_view) << "an input is copied";
  EXPECT_TRUE(r.call("concat", 2).is_view);
}

// What a result of a step or a state is has bytes of its own, and twice is not once.
TEST(Adjacent, WhatIsUsedElsewhereIsCopied) {
  const Ran r = ran(R"(scheme:
  input %0 x: f32[n=2, m=5]
  %1 a: f32[n=2, m=5] = mul(%0, %0) @a
  %2 twice: f32[n=4, m=5] = concat(%1, %1) @twice
  %3 b: f32[n=2, m=5] = exp(%0) @b
  %4 once: f32[n=4, m=5] = concat(%3, %0) @once
  %5 again: f32[n=4, m=5] = concat(%3, %0) @again
  %6 s: f32[n=2, m=3] = slice(%0) {size=3, start=1} @s
  %7 view: f32[n=4, m=3] = concat(%6, %6) @view
  return %2, %3, %4, %5, %7
)");
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(r.call("concat", i).is_view) << i;
}

// The joined weight is read by a product after one of its parts could have been updated: it must
// not be.
constexpr const char* kJoined = R"(scheme:
  input %0 x: f32[n=3, m=4]
  parameter %1 odd: f32[k=3]
  parameter %2 p: f32[o=SIZE, m=4]
  control %3 rate: f32[]
  parameter %4 q: f32[o=4, m=4]
  %5 w: f32[o=SUM, m=4] = concat(%4, %2) @w
  %6 y: f32[n=3, o=SUM] = linear(%0, %5) @y
  %7 next: f32[o=SIZE, m=4] parameter = add(%2, %2) @next update
  %8 z: f32[n=3, o=SUM] = linear(%0, %5) @z update
  carry %2 -> %7
  return %6, %8, %7, %1
)";
std::string joined(int size) {
  std::string text = kJoined;
  for (const auto& [word, number] : {std::pair{"SIZE", size}, std::pair{"SUM", size + 4}}) {
    for (size_t at; (at = text.find(word)) != std::string::npos;) {
      text.replace(at, std::string(word).size(), std::to_string(number));
    }
  }
  return text;
}

TEST(Adjacent, JoinedParametersLieOneBehindTheOther) {
  const Ran r = ran(joined(7));
  std::string uncarried = joined(7);
  uncarried.erase(uncarried.find("  carry"), std::string("  carry %2 -> %7\n").size());
  EXPECT_EQ(r.got, ran(uncarried).got) << "both products read what went in";
  EXPECT_TRUE(r.call("concat").is_view);
  EXPECT_EQ(r.plan.offset_of(2).count, r.plan.offset_of(4).count + 4 * 4 * 4);
  EXPECT_EQ(r.plan.offset_of(7), r.plan.offset_of(2));
  // A second plan beside it finds them so.
  const PlanOptions options = beside(r.scheme, r.plan, num_threads());
  const Plan second = make_plan(r.scheme, options);
  for (const Value v : {1, 2, 4}) EXPECT_EQ(second.offset_of(v), r.plan.offset_of(v));
  EXPECT_TRUE(second.calls[0].is_view);
  // Where they lie otherwise already, they are copied.
  PlanOptions apart = options;
  apart.fixed.at("p").offset = options.floor[0];
  apart.floor[0] += Bytes{1024};
  EXPECT_FALSE(make_plan(r.scheme, apart).calls[0].is_view);
}

// 7 rows of 4 end in the middle of a line of 64 bytes: nothing can begin there.
TEST(Adjacent, NothingBeginsOffTheLine) {
  std::string text = joined(7);
  text.replace(text.find("concat(%4, %2)"), 14, "concat(%2, %4)");
  EXPECT_FALSE(ran(text).call("concat").is_view);
}

// What turns a slice takes its place, for the other slices' sake it is no dead object.
TEST(Adjacent, ASliceIsOverwrittenBesideOthers) {
  const char* text = R"(scheme:
  input %0 x: f32[n=3, m=4]
  input %1 w: f32[o=12, m=4]
  %2 y: f32[n=3, o=12] = linear(%0, %1) @y
  %3 q: f32[n=3, o=8] = slice(%2) {size=8, start=0} @q
  %4 v: f32[n=3, o=4] = slice(%2) {size=4, start=8} @v
  %5 heads: f32[n=3, parts=2, o=4] = split(%3) {parts=2} @heads
  %6 turned: f32[n=3, parts=2, o=4] = tanh(%5) @turned
  %7 t: f32[n=3, o=8] = merge(%6) @t
  %8 e: f32[n=3, o=8] = exp(%7) @e
  %9 f: f32[n=3, o=4] = add(%4, %4) @f
  return %8, %9, %7
)";
  const Ran r = ran(text);
  EXPECT_EQ(r.plan.places[6].storage, r.plan.places[2].storage);
  EXPECT_TRUE(r.call("merge").is_view);
  // Not if the slice has another reader.
  std::string again = text;
  again.replace(again.find("exp(%7)"), 7, "add(%7, %3)");
  const Ran other = ran(again);
  EXPECT_NE(other.plan.places[6].storage, other.plan.places[2].storage);
  // Nor when another slice has some of it.
  std::string shared = text;
  shared.replace(shared.find("{size=4, start=8}"), 17, "{size=4, start=7}");
  const Ran overlap = ran(shared);
  EXPECT_NE(overlap.plan.places[6].storage, overlap.plan.places[2].storage);
}

// Operands of a concat share its bytes; overwriting a slice of it would destroy one that is read
// later.
TEST(Adjacent, ASliceIsNotOverwrittenWherePartsAreReadLater) {
  const char* text = R"(scheme:
  input %0 x: f32[n=30, m=40]
  input %1 y: f32[n=30, m=40]
  %2 a: f32[n=30, m=40] = mul(%0, %0) @a
  %3 b: f32[n=30, m=40] = tanh(%1) @b
  %4 c: f32[n=60, m=40] = concat(%2, %3) @c
  %5 s: f32[n=60, m=20] = slice(%4) {size=20, start=0} @s
  %6 t: f32[n=60, m=20] = slice(%4) {size=20, start=20} @t
  %7 u: f32[n=60, m=20] = tanh(%5) @u
  %8 v: f32[n=60, m=20] = tanh(%6) @v
  %9 d: f32[n=30, m=40] = add(%2, %0) @d after %7, %8
  return %7, %8, %9
)";
  const Ran r = ran(text);
  EXPECT_TRUE(r.call("concat").is_view);
  EXPECT_NE(r.plan.places[7].storage, r.plan.places[4].storage);
  std::string alone = text;
  alone.replace(alone.find("add(%2, %0) @d"), 14, "add(%0, %0) @d");
  const Ran other = ran(alone);
  EXPECT_EQ(other.plan.places[7].storage, other.plan.places[4].storage);
}

// The gradient of joined projections: made of the slices, and laid as they are.
constexpr const char* kGated = R"x(scheme:
  input %0 x: f32[n=30, m=4]
  input %1 w: f32[o=8, m=4]
  %2 y: f32[n=30, o=8] = linear(%0, %1) @y
  %3 g: f32[n=30, o=4] = slice(%2) {size=4, start=0} @g
  %4 u: f32[n=30, o=4] = slice(%2) {size=4, start=4} @u
  %5 dg: f32[n=30, o=4], %6 du: f32[n=30, o=4] = map(%3, %4) {body="mul(x0, x1), sub(x0, x1)"} @d
  %7 dy: f32[n=30, o=8] = concat(%5, %6) {axis=1} @dy
  %8 dx: f32[n=30, m=4] = contract(%7, %1) {map="no,om->nm"} @dx
  return %8
)x";
TEST(Adjacent, PartsOfAConcatTakeThePlaceOfSlices) {
  const Ran r = ran(kGated);
  EXPECT_TRUE(r.call("concat").is_view);
  EXPECT_EQ(r.plan.places[7].storage, r.plan.places[2].storage);
  const int made = 3;  // the place of the map
  EXPECT_EQ(r.plan.owner_at(r.plan.places[2].storage, made - 1), 2);
  EXPECT_EQ(r.plan.owner_at(r.plan.places[2].storage, made), 7);
}
TEST(Adjacent, PartsOfAConcatDoNotTakeThePlaceOfWhatLivesOn) {
  std::string again = kGated;
  again.replace(again.find("contract(%7"), 11, "contract(%2");
  again.replace(again.find("return %8"), 9, "return %8, %7");
  const Ran kept = ran(again);
  EXPECT_NE(kept.plan.places[7].storage, kept.plan.places[2].storage);
}

}  // namespace
}  // namespace adjoint

// A step over ranks: what is sharded, where sums over ranks are added up, and what is refused.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "functors/phases.h"
#include "functors/pipeline.h"
#include "functors/with_rules.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

Scheme on_mesh(std::string_view text) {
  const Scheme before = parse_scheme(text);
  verify(before);
  const Scheme after =
      realize_placement(before, {.axis = [](std::string_view) { return "data_parallel"; }});
  verify(after);
  return after;
}

TEST(RealizePlacement, LeavesAStepOfOneRankAlone) {
  const char* text = R"(scheme:
  input %0 x: f32[batch=4, in=3]
  %1 y: f32[batch=4, in=3] = gelu(%0) @y
  return %1
)";
  EXPECT_EQ(print(on_mesh(text)), text);
}

// Calls on samples shrink; a sum over them is a term of each rank, and is added up where it is
// wanted.
TEST(RealizePlacement, CallsShrinkAndSumsAreAddedUp) {
  EXPECT_EQ(print(on_mesh(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, in=3] place=data/sharded/0
  input %1 y: i32[batch=4] place=data/sharded/0
  parameter %2 w: f32[out=5, in=3]
  %3 logits: f32[batch=4, out=5] = linear(%0, %2) @logits
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[batch=4] = cross_entropy(%3, %1) {ignore=-7} @loss
  return %4, %5
)")),
            R"(scheme m mesh data=2:
  input %0 x: f32[batch=2, in=3] place=data/sharded/0/4
  input %1 y: i32[batch=2] place=data/sharded/0/4
  parameter %2 w: f32[out=5, in=3]
  %3 logits: f32[batch=2, out=5] place=data/sharded/0/4 = linear(%0, %2) @logits
  %4 loss:term: f32[] metric place=data/partial, %5 loss.count:term: f32[] metric place=data/partial, %6 loss.lse: f32[batch=2] place=data/sharded/0/4 = cross_entropy(%3, %1) {ignore=-7} @loss
  %7 loss: f32[] metric = all_reduce(%4) {mesh="data", ranks=2} @loss:sum update
  %8 loss.count: f32[] metric = all_reduce(%5) {mesh="data", ranks=2} @loss.count:sum update
  return %7, %8
)");
}

// A gradient is added up in pieces and then gathered; its squares are taken of the pieces. Linear
// calls of terms give terms, so what is summed is summed late.
TEST(RealizePlacement, GradientsAreReducedInPiecesAndGathered) {
  const std::string text = print(on_mesh(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, in=3] place=data/sharded/0
  input %1 dy: f32[batch=4, out=5] place=data/sharded/0
  parameter %2 w: f32[out=5, in=3]
  %3 g1: f32[out=5, in=3] gradient = contract(%1, %0) {map="bo,bi->oi"} @g1 backward
  %4 g2: f32[out=5, in=3] gradient = scale(%3) {by=2.0} @g2 backward
  %5 g: f32[out=5, in=3] gradient = add(%3, %4) @g backward
  %6 squares: f32[] metric = square_sum(%5) @squares update
  %7 new: f32[out=5, in=3] = sub(%2, %5) @new update
  carry %2 -> %7
  return %6
)"));
  EXPECT_TRUE(has(text, "%5 g:term: f32[out=5, in=3] gradient place=data/partial = add(%3, %4)"))
      << text;
  EXPECT_TRUE(has(text,
                  "%8 g:piece: f32[out=3, in=3] gradient place=data/sharded/0/5 = "
                  "reduce_scatter(%5) {mesh=\"data\", ranks=2} @g:piece update\n"))
      << text;
  EXPECT_TRUE(has(text, "squares:term: f32[] metric place=data/partial = square_sum(%8)")) << text;
  EXPECT_TRUE(has(text,
                  "%9 g: f32[out=5, in=3] gradient = all_gather(%8) {mesh=\"data\", ranks=2, "
                  "size=5} @g:sum update\n"))
      << text;
  EXPECT_TRUE(has(text, "= sub(%2, %9) @new update\n")) << text;
  EXPECT_TRUE(has(text, "squares: f32[] metric = all_reduce(%6)")) << text;
}

// A call that is linear in one operand takes a term to a term, while the others are whole.
TEST(RealizePlacement, AProductWithATermIsATerm) {
  const std::string text = print(on_mesh(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, k=5] place=data/sharded/0
  parameter %1 w: f32[n=6, k=5]
  %2 s: f32[k=5] gradient = map(%0) {body="x0/1"} @s backward
  %3 y: f32[n=6] gradient = contract(%1, %2) {map="nk,k->n"} @y backward
  %4 z: f32[n=6] gradient = mul(%3, %3) @z backward
  return %4
)"));
  EXPECT_TRUE(has(text, "%3 y:term: f32[n=6] gradient place=data/partial = contract(%1, %2)"))
      << text;
  EXPECT_TRUE(has(text, "z: f32[n=6] gradient = mul(%5, %5)")) << text;
}

// A sum of something that is not 0 where its operand is would count the zeros that pad a piece.
TEST(RealizePlacement, ASumThatWouldCountPaddingIsTakenOfTheWhole) {
  const auto sum_of = [](const char* body) {
    return print(on_mesh(std::string(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, n=5] place=data/sharded/0
  %1 g: f32[n=5] gradient = map(%0) {body="x0/1"} @g backward
  %2 sum: f32[] metric = map(%1) {body=")") +
                         body + R"("} @sum update
  return %2
)"));
  };
  EXPECT_TRUE(has(sum_of("rowsum(mul(x0, x0))/dropped"), "partial = map(%3)"));
  EXPECT_TRUE(has(sum_of("rowsum(add(x0, 1))/dropped"), "sum: f32[] metric = map(%4)"));
}

// An update runs where its state lies.
TEST(RealizePlacement, StateInPiecesIsUpdatedInPieces) {
  const std::string text = print(on_mesh(R"x(scheme m mesh data=2:
  input %0 x: f32[batch=4, n=5] place=data/sharded/0
  parameter %1 w: f32[n=5]
  state %2 m: f32[n=5] place=data/sharded/0 init=zeros
  %3 g: f32[n=5] gradient = map(%0) {body="x0/1"} @g backward
  %4 m2: f32[n=5], %5 w2: f32[n=5] = map(%1, %2, %3) {body="add(x1, x2), sub(x0, x2)"} @w update
  carry %2 -> %4
  carry %1 -> %5
  return %5
)x"));
  EXPECT_TRUE(has(text, "state %2 m: f32[n=3] init=zeros place=data/sharded/0/5\n")) << text;
  EXPECT_TRUE(has(text, "control %6 mesh:data: i32[]\n")) << text;
  EXPECT_TRUE(has(
      text, "w:piece: f32[n=3] parameter place=data/sharded/0/5 = part(%1, %6) {fill=0, size=3}"))
      << text;
  EXPECT_TRUE(has(text, "reduce_scatter(%3)")) << text;
  EXPECT_TRUE(has(text, "carry %2 -> %4\n")) << text;
  EXPECT_TRUE(has(text, "= all_gather(%5) {mesh=\"data\", ranks=2, size=5}")) << text;
}

// A gradient over several uses is added up once, also where each use's part is said to be sharded.
TEST(RealizePlacement, TermsOfOneSumAreAddedUpTogether) {
  const std::string text = print(on_mesh(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, n=6] place=data/sharded/0
  %1 a: f32[n=6] gradient place=data/sharded/0 = map(%0) {body="x0/1"} @a backward
  %2 b: f32[n=6] gradient place=data/sharded/0 = map(%0) {body="neg(x0)/1"} @b backward
  %3 g: f32[n=6] gradient place=data/sharded/0 = add(%1, %2) @g backward
  return %3
)"));
  EXPECT_TRUE(has(text, "= reduce_scatter(%3) {each_part=1,")) << text;
  EXPECT_FALSE(has(text, "reduce_scatter(%1)") || has(text, "reduce_scatter(%2)")) << text;
}

// One that holds two side by side is added up part by part, and never whole.
TEST(RealizePlacement, PartsOfOneSumAreAddedUpByThemselves) {
  const std::string text = print(on_mesh(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, n=6] place=data/sharded/0
  %1 j: f32[n=6] gradient place=data/sharded/0 = map(%0) {body="x0/1"} @j backward
  %2 a: f32[n=4] gradient place=data/sharded/0 = slice(%1) {size=4, start=0} @a backward
  %3 b: f32[n=2] gradient place=data/sharded/0 = slice(%1) {size=2, start=4} @b backward
  return %2, %3
)"));
  EXPECT_TRUE(has(text, "reduce_scatter(%2)") && has(text, "reduce_scatter(%3)")) << text;
  EXPECT_FALSE(has(text, "all_reduce") || has(text, "reduce_scatter(%1)")) << text;
}

TEST(RealizePlacement, WholeStateIsUpdatedWhole) {
  const std::string text = print(on_mesh(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, n=5] place=data/sharded/0
  parameter %1 w: f32[n=5]
  %2 g: f32[n=5] gradient place=data/sharded/0 = map(%0) {body="x0/1"} @g backward
  %3 w2: f32[n=5] = sub(%1, %2) @w update
  carry %1 -> %3
  return %3
)"));
  EXPECT_TRUE(has(text, "= all_gather(%4) {mesh=\"data\", ranks=2, size=5} @g:sum")) << text;
  EXPECT_TRUE(has(text, "w2: f32[n=5] = sub(%1, %5) @w update\n")) << text;
}

// Masks are those of the whole batch: the counter begins at the rank's first sample.
TEST(RealizePlacement, RandomNumbersAreCountedOverTheWholeBatch) {
  const std::string text = print(on_mesh(R"(scheme m mesh data=2:
  input %0 x: f32[batch=4, n=3] place=data/sharded/0
  control %1 random: i64[counter=3]
  %2 y: f32[batch=4, n=3] = dropout(%0, %1) {key="y", rate=0.5} @y
  %3 s: f32[n=3] = map(%2) {body="x0/1"} @s backward
  return %3
)"));
  EXPECT_TRUE(has(text, "random:data: i64[counter=3] control = part_counter(%1, %4) {size=2}"))
      << text;
}

// Axes of the mesh are realized one after another, the innermost first; what one inserts are calls
// to the next.
TEST(RealizePlacement, TwoAxesOfAMesh) {
  const std::string text = print(on_mesh(R"(scheme m mesh data=2 other=3:
  input %0 x: f32[batch=12, n=5] place=data/sharded/0 place=other/sharded/0
  %1 g: f32[n=5] gradient = map(%0) {body="x0/1"} @g backward
  return %1
)"));
  EXPECT_TRUE(has(text, "x: f32[batch=2, n=5] place=other/sharded/0/12 place=data/sharded/0/4"))
      << text;
  EXPECT_TRUE(has(text, "mesh=\"data\"")) << text;
  EXPECT_TRUE(has(text, "mesh=\"other\"")) << text;
}

TEST(RealizePlacement, RefusesWhatNoMeshAllows) {
  const auto refusal = [](std::string_view text) { return error_text([&] { on_mesh(text); }); };
  EXPECT_EQ(refusal(R"(scheme m mesh data=4:
  input %0 x: f32[batch=3, n=5] place=data/sharded/0
  return %0
)"),
            "data_parallel: 'x' has batch=3, which is less than the 4 ranks of data; at most "
            "data=3");
  EXPECT_EQ(refusal(R"(scheme m mesh data=2:
  input %0 x: f32[batch=3, n=5] place=data/sharded/0
  %1 s: f32[n=5] = map(%0) {body="x0/1"} @s
  return %1
)"),
            "data_parallel: map at s sums over all samples, and the last rank has some that do not "
            "count; choose a number of ranks that divides the batch");
}

// ---- data_parallel as text ----

TEST(DataParallel, SaysTheMeshAndWhoseSamplesAreWhose) {
  StepOptions options;
  const Scheme said = said_step(small_gpt2(), parse_stack("data_parallel(2)"), options);
  EXPECT_EQ(said.mesh, (std::vector<MeshAxis>{{"data", 2}}));
  for (const Value in : said.inputs) {
    const Placement* placed = placement_over(said[in], "data");
    EXPECT_EQ(placed != nullptr, said[in].role == Role::kInput) << to_string(said[in].source);
  }
}

// One rank alone has no mesh: the same step, byte for byte, as without the functor.
TEST(DataParallel, OneRankAloneHasNoMesh) {
  const Scheme forward = small_gpt2();
  StepOptions options;
  const std::string plain = print(build_step(forward, parse_stack(""), options).scheme);
  EXPECT_EQ(print(build_step(forward, parse_stack("data_parallel(2)"), options).scheme), plain);
  options.on_mesh = true;
  EXPECT_EQ(print(build_step(forward, parse_stack("data_parallel(1)"), options).scheme), plain);
  EXPECT_NE(print(build_step(forward, parse_stack("data_parallel(2)"), options).scheme), plain);
}

// Sums over ranks are made once per step, of the sums over parts; with reduce=part of every part.
TEST(DataParallel, SaysWhenSumsOverRanksAreMade) {
  StepOptions options;
  options.on_mesh = true;
  const auto sections = [&](const std::string& stack) {
    std::set<Section> found;
    const Scheme step = build_step(small_gpt2(), parse_stack(stack), options).scheme;
    for (const Morphism& m : step.morphisms) {
      // The gradient of positions is made of a sum over all samples, once per step.
      if (m.op == "reduce_scatter" && m.source.path != "wpe.weight") found.insert(m.section);
    }
    return found;
  };
  EXPECT_EQ(sections("data_parallel(2) | accumulate(2)"), std::set{Section::kEpilogue});
  EXPECT_EQ(sections("data_parallel(2, reduce=part) | accumulate(2)"), std::set{Section::kBody});
}

TEST(DataParallel, RefusesWhatCannotBe) {
  StepOptions options;
  options.on_mesh = true;
  const auto refusal = [&](const std::string& stack) {
    return error_text([&] { build_step(small_gpt2(), parse_stack(stack), options); });
  };
  EXPECT_TRUE(has(refusal("data_parallel(9)"),
                  "data_parallel: 'tokens' has batch=4, which is less than the 9 ranks of data; at "
                  "most data=4"))
      << refusal("data_parallel(9)");
  EXPECT_TRUE(has(refusal("data_parallel(0)"), "at least 1")) << refusal("data_parallel(0)");
}

// A user's own functor that says a mesh works like ours, and two that differ are refused.
TEST(DataParallel, AnyFunctorMayPlaceObjects) {
  StepOptions options;
  options.on_mesh = true;
  const std::string lines = "  mesh data = 2\n  object input -> sharded along samples over data";
  const Scheme mine = build_step(small_gpt2(), with_rules(lines), options).scheme;
  EXPECT_EQ(print(mine),
            print(build_step(small_gpt2(), parse_stack("data_parallel(2)"), options).scheme));
  EXPECT_EQ(
      error_text([&] { build_step(small_gpt2(), with_rules(lines, "data_parallel(4)"), options); }),
      "data_parallel: says that the mesh has data = 4, and f says 2; leave one of them out");
}

TEST(TensorParallel, SaysHowManyRanksCanShareTheHeads) {
  StepOptions options;
  options.on_mesh = true;
  const auto refusal = [&](double kv_heads, int ranks) {
    const Scheme model = elaborate_preset(
        "llama-tiny", {{"batch", 2}, {"hidden", 48}, {"heads", 6}, {"kv_heads", kv_heads}});
    const std::string stack = "tensor_parallel(" + std::to_string(ranks) + ")";
    return error_text([&] { build_step(model, parse_stack(stack), options); });
  };
  EXPECT_EQ(refusal(6, 4),
            "tensor_parallel: 'block[0].q.weight' has 6 heads of keys, which 4 ranks of tensor do "
            "not divide; the nearest that do are 3 or 6");
  EXPECT_EQ(refusal(3, 2),
            "tensor_parallel: 'block[0].q.weight' has 3 heads of keys, which 2 ranks of tensor do "
            "not divide; the nearest that does is 3");
  EXPECT_EQ(
      refusal(1, 2),
      "tensor_parallel: 'block[0].q.weight' has 1 head of keys, and each of 2 ranks of tensor "
      "needs one of its own; give the model a multiple of 2, or leave these ranks to "
      "data_parallel");
}

}  // namespace
}  // namespace adjoint

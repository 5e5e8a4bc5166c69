// Which maps move into the product before them, as text; what becomes of whole steps, whose bits
// the CPU keeps, for it runs the two one after the other.
#include <gtest/gtest.h>

#include <algorithm>

#include "functors/functor_named.h"
#include "functors/left_behind.h"
#include "functors/pipeline.h"
#include "kernels/cuda/contraction.h"
#include "models/small_models.h"
#include "ops/gelu.h"

namespace adjoint {
namespace {

const StepOptions kOnGpu{.target = Target::kCuda};

// A gradient is propagated through a weight and through gelu.
std::string apart() {
  return R"(scheme:
  input %0 dy: bf16[s=3, o=512]
  input %1 x: bf16[s=3, i=6]
  parameter %2 w: bf16[o=512, i=6]
  %3 p: bf16[s=3, i=6] gradient = contract(%0, %2) {map="so,oi->si"} @p backward
  %4 dx: bf16[s=3, i=6] gradient = map(%3, %1) {body=")" +
         print(gelu_gradient()) + R"("} @dx backward
  return %4
)";
}
std::string with(const std::string& what, const std::string& instead) {
  return replaced(apart(), what, instead);
}

TEST(FuseProductMap, TheGradientOfGeluMovesIntoTheProduct) {
  const std::string together = R"(scheme:
  input %0 dy: bf16[s=3, o=512]
  input %1 x: bf16[s=3, i=6]
  parameter %2 w: bf16[o=512, i=6]
  %3 dx: bf16[s=3, i=6] gradient = contract_map(%0, %2, %1) {body=")" +
                               print(gelu_gradient()) + R"(", map="so,oi->si"} @dx backward
  return %3
)";
  EXPECT_EQ(applied("fuse_product_map", apart(), kOnGpu), together);
  EXPECT_EQ(applied("fuse_product_map", together, kOnGpu), together) << "done once";
  EXPECT_EQ(applied("fuse_product_map", apart()), apart()) << "a CPU has no epilogues";
  EXPECT_EQ(applied("fuse_product_map", apart(), {.target = Target::kCuda, .deterministic = true}),
            apart())
      << "nor has whoever wants the same bits every time";
}

TEST(FuseProductMap, WhoWaitedForTheProductWaitsForItsGradient) {
  const std::string made = applied(
      "fuse_product_map",
      with("  return %4", "  %5 z: bf16[s=3, i=6] = mul(%1, %1) @z after %3\n  return %4, %5"),
      kOnGpu);
  EXPECT_NE(made.find("contract_map"), std::string::npos) << made;
  EXPECT_NE(made.find("@z after %0"), std::string::npos) << made;
}

TEST(FuseProductMap, LeavesAloneWhatTheLibraryDoesNotDo) {
  std::string wide = apart();
  for (size_t at; (at = wide.find("bf16")) != std::string::npos;) wide.replace(at, 4, "f32");
  for (const std::string& text :
       {wide, replaced(replaced(apart(), "o=512", "o=511"), "o=512", "o=511"),  // short sums
        with("map(%3, %1)", "map(%1, %3)"),                                     // x gelu'(p)
        with("body=\"", "body=\"mul(x0, x1)\", from=\""), with("return %4", "return %3, %4"),
        with("  return %4", "  %5 z: bf16[s=3, i=6] = mul(%3, %1) @z\n  return %4, %5"),
        with("@dx backward", "@dx backward epoch=1"),
        with("@p backward", "@p backward prologue")}) {
    EXPECT_EQ(applied("fuse_product_map", text, kOnGpu), print(parse_scheme(text)));
  }
}

Scheme step_of(const std::string& stack) {
  const Scheme model = elaborate_preset(
      "gpt2",
      {{"batch", 2}, {"seq", 8}, {"layers", 2}, {"hidden", 512}, {"heads", 4}, {"vocab", 31}});
  return build_step(model, parse_stack(stack), kOnGpu).scheme;
}

TEST(FuseProductMap, FindsEveryBlockAndChangesNoBitOfTheCpus) {
  for (const char* stack :
       {"bf16 | -recompute_cheap", "fp16 | accumulate(2)", "bf16 | checkpoint(every=1)"}) {
    const Scheme step = step_of(stack);
    const auto is_one = [](const Morphism& m) { return m.op == "contract_map"; };
    EXPECT_EQ(std::count_if(step.morphisms.begin(), step.morphisms.end(), is_one), 2) << stack;
    EXPECT_EQ(left_behind(step), left_behind(step_of(stack + std::string(" | -fuse_product_map"))))
        << stack;
  }
  const Scheme wide = step_of("");
  for (const Morphism& m : wide.morphisms) EXPECT_NE(m.op, "contract_map");
}

}  // namespace
}  // namespace adjoint

// What `adjoint show --diff` prints: lines by source, and what is said of the training of
// parameters.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "functors/functor_text.h"
#include "functors/pipeline.h"
#include "models/small_models.h"
#include "report/stack_table.h"

namespace adjoint {
namespace {

TEST(Difference, ShowsHowParametersAreTrained) {
  const Scheme forward =
      elaborate_preset("llama-tiny", {{"layers", 2}, {"context", 4}, {"batch", 2}});
  const Functor f = parse_functor(
      "functor f:\n  law approximating\n"
      "  object parameter of readout -> rate 0.1 and clipped as logits\n",
      "f.functor");
  Stack stack = parse_stack("");
  const Scheme plain = build_step(forward, stack, {}).scheme;
  stack.functors.insert(stack.functors.begin(), {f, Arguments("f", {}, Term{}), false});
  const std::string diff = scheme_difference(plain, build_step(forward, stack, {}).scheme);
  EXPECT_TRUE(has(diff, "readout.weight: f32[vocab")) << diff;
  EXPECT_TRUE(has(diff, " rate=0.1 clipped=logits\n")) << diff;
  EXPECT_TRUE(has(diff, "rate:times.0.1: f32[]")) << diff;
}

TEST(StackTable, OneGangIsNotSeveral) {
  const Applied one{.name = "a", .law = Law::kExact, .matches = 3, .counts = {{"gangs", 1}}};
  const Applied two{.name = "b", .law = Law::kExact, .matches = 5, .counts = {{"gangs", 2}}};
  const std::string table = stack_table({one, two});
  EXPECT_TRUE(has(table, "1 gang\n")) << table;
  EXPECT_TRUE(has(table, "2 gangs\n")) << table;
}

}  // namespace
}  // namespace adjoint

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

// checkpoint says kept or recomputed of every activation; a parameter is neither made nor read
// otherwise, and no line may say that it changed.
TEST(Difference, LeavesOutWhatWasOnlySaid) {
  const Scheme forward =
      elaborate_preset("llama-tiny", {{"layers", 4}, {"context", 4}, {"batch", 2}});
  const Scheme plain = build_step(forward, parse_stack(""), {}).scheme;
  for (const std::string stack : {"bf16", "checkpoint(every=2)", "accumulate(2)"}) {
    const Scheme after = build_step(forward, parse_stack(stack), {}).scheme;
    const Difference difference = difference_of(plain, after);
    EXPECT_FALSE(difference.changed.empty() && difference.added.empty()) << stack;
    for (const auto& changed : difference.changed) {
      const bool makes_something = has(changed.is, " = ");
      EXPECT_TRUE(makes_something) << stack << ": " << changed.is << "\nwas " << changed.was;
    }
  }
}

TEST(Difference, SaysInALineWhatEachFunctorDid) {
  const Scheme forward =
      elaborate_preset("llama-tiny", {{"layers", 4}, {"context", 4}, {"batch", 2}});
  const BuiltStep built = build_step(forward, parse_stack("lora(2) | checkpoint(every=2)"), {});
  const std::string said = deeds(built.applied);
  // Four states of the chain that are no multiples of 2 or the last, and all inside the blocks.
  EXPECT_TRUE(has(said, "checkpoint(every=2): 3 kept, ")) << said;
  EXPECT_TRUE(has(said, "lora(rank=2): ") || has(said, "lora(2): ")) << said;
  // An adapter is two products, a scale and a sum beside each of seven maps in four blocks.
  EXPECT_TRUE(has(said, " calls more\n")) << said;
  for (size_t at = 0; at < said.size();) {
    const size_t end = said.find('\n', at);
    EXPECT_TRUE(has(said.substr(at, end - at), ": ")) << said;
    at = end + 1;
  }
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

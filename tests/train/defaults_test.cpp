// A default never costs: with each functor that is on by itself switched off, neither the planned
// peak nor the predicted time of a step is lower by more than a percent, nor are the bytes that a
// rank sends. On a CPU and on GPUs, for models of the sizes that people train, cut to a few blocks;
// tests/long/rank_defaults_test.cpp has more stacks of ranks.
#include "train/default_costs.h"

namespace adjoint {
namespace {

const PricedModel kModels[] = {
    {"gpt2", 8, 1024, {{"layers", 2}}},
    {"llama3.2-1b", 4, 2048, {{"layers", 2}}},
    {std::string(SOURCE_DIR) + "/tests/models/qwen.scheme",
     8,
     1024,
     {{"context", 1024},
      {"layers", 2},
      {"hidden", 896},
      {"heads", 14},
      {"kv_heads", 2},
      {"dim", 64},
      {"ffn", 4864},
      {"vocab", 151936}}},
    {std::string(SOURCE_DIR) + "/tests/models/mixtral.scheme",
     8,
     256,
     {{"context", 256}, {"hidden", 512}, {"heads", 8}, {"ffn", 1024}, {"vocab", 32000}}},
    {std::string(SOURCE_DIR) + "/tests/models/moe.scheme",
     8,
     256,
     {{"context", 256}, {"hidden", 512}, {"heads", 8}, {"vocab", 32000}}},
};

const std::string kStacks[] = {
    "bf16",
    "accumulate(4)",
    "bf16 | checkpoint(block)",
    "bf16 | accumulate(4)",
    "lora(8) | bf16",
    "lora(8) | quantize(nf4) | bf16",
    "lora(8) | quantize(nf4) | bf16 | checkpoint(block)",
};

class Defaults : public testing::TestWithParam<const char*> {};

TEST_P(Defaults, CostNothing) {
  const Costs costs{.sheet = find_device(GetParam()), .threads = 2};
  // The peak of llama3.2-1b under lora(8) | bf16 lies where the gradients of joined maps are one
  // object, 3.4% above that of maps apart, since the frozen base is held in 16 bits alone.
  std::map<std::string_view, double> allowed;
  if (costs.sheet.per_core) allowed["join_projections"] = 1.04;
  for (const PricedModel& model : kModels) {
    const Scheme forward = model.forward();
    for (const std::string& stack : kStacks) {
      expect_defaults_cost_nothing(model, forward, stack, costs, allowed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Defaults, testing::Values("cpu", "h200", "rtx4090"),
                         [](const auto& info) { return std::string(info.param); });

// Maps that are joined, gradients that die in pieces, and a base that is frozen, over ranks.
TEST(Defaults, CostNothingOnRanks) {
  const PricedModel model = {"llama-110m", 8, 1024, {}};
  const Scheme forward = model.forward();
  const Costs costs{.sheet = find_device("h100"), .threads = 1};
  for (const char* stack : {"bf16 | data_parallel(8) | zero(2)",
                            "bf16 | data_parallel(8) | zero(3) | checkpoint(block)"}) {
    expect_defaults_cost_nothing(model, forward, stack, costs);
  }
}

// A frozen base is held in the 16 bits in which it is read, which costs nothing either.
TEST(Defaults, AFrozenBaseInSixteenBitsCostsNothing) {
  for (const char* device : {"cpu", "h200", "rtx4090"}) {
    const Costs costs{.sheet = find_device(device), .threads = 2};
    for (const PricedModel& model : {kModels[0], kModels[1], kModels[3]}) {
      const Scheme forward = model.forward();
      for (const std::string rest : {" | lora(8)", " | lora(8) | checkpoint(block)",
                                     " | freeze(attention) | accumulate(2)"}) {
        const Price with = price(forward, "bf16" + rest, costs),
                    without = price(forward, "bf16(frozen=f32)" + rest, costs);
        EXPECT_LE(with.bytes, without.bytes) << model.name << rest << " on " << device;
        EXPECT_LE(with.seconds, without.seconds) << model.name << rest << " on " << device;
      }
    }
  }
}

// The joined weights of an adapter's frozen base are dequantized for each phase, as they are apart:
// checkpointing makes the step smaller, and joining does not make it larger.
TEST(Defaults, JoiningQuantizedProjectionsKeepsNoWeight) {
  const PricedModel model = {"llama3-8b", 1, 2048, {{"layers", 8}}};
  const Scheme forward = model.forward();
  const Costs costs{.sheet = find_device("rtx4090")};
  const std::string qlora = "lora(8) | quantize(nf4) | bf16";
  const double plain = price(forward, qlora, costs).bytes;
  const double checkpointed = price(forward, qlora + " | checkpoint(block)", costs).bytes;
  const double apart =
      price(forward, qlora + " | checkpoint(block) | -join_projections", costs).bytes;
  EXPECT_LE(checkpointed, 1.01 * plain);
  EXPECT_LE(checkpointed, 1.01 * apart);
}

}  // namespace
}  // namespace adjoint

// A default never costs on ranks (tests/train/defaults_test.cpp): models x stacks x meshes.
#include "train/default_costs.h"

namespace adjoint {
namespace {

const PricedModel kModels[] = {{"gpt2", 8, 1024, {}}, {"llama-110m", 8, 1024, {}}};

const std::string kStacks[] = {
    "bf16 | data_parallel(8)",
    "data_parallel(8) | zero(1)",
    "bf16 | data_parallel(8) | zero(2)",
    "bf16 | data_parallel(8) | zero(3)",
    "bf16 | data_parallel(3) | zero(3)",
    "bf16 | data_parallel(8) | zero(3) | checkpoint(block)",
    "bf16 | data_parallel(4) | zero(2) | accumulate(2)",
    "bf16 | data_parallel(4, reduce=part) | accumulate(2)",
    "bf16 | lora(8) | data_parallel(8) | zero(3)",
    "bf16 | tensor_parallel(2)",
    "bf16 | tensor_parallel(2, sequence=yes) | data_parallel(4) | zero(3)",
    "bf16 | pipeline(2, parts=4)",
};

// recompute_cheap takes up to a percent of the work, and what is recomputed delays collectives;
// what joined maps send, a CPU's ranks wait for together.
const std::map<std::string_view, double> kAllowed = {{"recompute_cheap", 1.04},
                                                     {"join_projections", 1.02}};

class RankDefaults : public testing::TestWithParam<const char*> {};

TEST_P(RankDefaults, CostNothing) {
  const Costs costs{.sheet = find_device(GetParam()), .threads = 1};
  for (const PricedModel& model : kModels) {
    const Scheme forward = model.forward();
    for (const std::string& stack : kStacks) {
      expect_defaults_cost_nothing(model, forward, stack, costs, kAllowed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RankDefaults, testing::Values("cpu", "h100"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace adjoint

// Which weights' gradients bf16(gradients=bf16) stores in 16 bits: those that an update reads, and
// no sum that parts of the batch are added to. (Chunks of a readout are added in 16 bits.)
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "functors/pipeline.h"
#include "models/test_models.h"

namespace adjoint {
namespace {

// The operands of the matrices' updates other than state.
std::set<Dtype> gradients_read(const Scheme& step) {
  std::set<Dtype> dtypes;
  for (const Morphism& m : step.morphisms) {
    if (m.phase != Phase::kUpdate) continue;
    for (const Value in : m.inputs) {
      if (step[in].role == Role::kGradient && step[in].type.rank() == 2) {
        dtypes.insert(step[in].type.dtype);
      }
    }
  }
  return dtypes;
}

TEST(WeightGradients, AreFloat32UnlessSaid) {
  for (const char* model : kTestModels) {
    EXPECT_EQ(gradients_read(training_step(test_model(model, {{"batch", 6}}), {.stack = "bf16"})),
              std::set{Dtype::kF32});
    EXPECT_EQ(gradients_read(training_step(test_model(model, {{"batch", 6}}),
                                           {.stack = "bf16(gradients=bf16)"})),
              std::set{Dtype::kBF16});
  }
}

TEST(WeightGradients, OfPartsOfABatchAreSummedInFloat32) {
  for (const char* model : kTestModels) {
    const Scheme step = training_step(test_model(model, {{"batch", 6}}),
                                      {.stack = "bf16(gradients=bf16) | accumulate(3)"});
    int sums = 0;
    for (const Carry& carry : step.loop) {
      if (step[carry.out].role != Role::kGradient) continue;
      EXPECT_EQ(step[carry.out].type.dtype, Dtype::kF32) << to_string(step[carry.out].source);
      ++sums;
      // The sums are there in any case, so the update reads them as they are: no rounded copy.
      for (const Morphism& m : step.morphisms) {
        const bool reads = std::count(m.inputs.begin(), m.inputs.end(), carry.out) > 0;
        EXPECT_FALSE(reads && m.op == "cast") << to_string(m.source);
      }
    }
    EXPECT_GT(sums, 0);
  }
}

}  // namespace
}  // namespace adjoint

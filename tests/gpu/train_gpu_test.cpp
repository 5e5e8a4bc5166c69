// Runs and what is made of them, on the GPU. Skipped where there is none.
#include "device/gpu.h"
#include "device/parallel.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "run/machine.h"
#include "train/fit_budget.h"
#include "train/generate.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class GpuTrain : public TrainFolder {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
    TrainFolder::SetUp();
  }
};

// What a run was tuned with is in its folder, and all that it is tuned with when it goes on.
TEST_F(GpuTrain, ResumesWithItsOwnTableOfProducts) {
  train(options("run", {{"device", "cuda"}, {"stack", "bf16"}, {"stop_after", 3}}));
  const TunedProducts saved = TunedProducts::read(out("run") / "products.json");
  EXPECT_GT(saved.size(), 0u);
  product_table() = {};  // as if the cache had been deleted
  EXPECT_EQ(train(resume("run")).step, 7);
  EXPECT_TRUE(product_table() == saved) << "nothing was tuned anew";
  EXPECT_TRUE(TunedProducts::read(out("run") / "products.json") == saved);
}

TEST_F(GpuTrain, GeneratesAsTheCpuDoes) {
  train(options("run", {{"steps", 30}}));
  const auto text = [&](Target target) {
    Generator generator(out("run"),
                        plan_options({.sheet = sheet_here(target), .threads = num_threads()}));
    return generator.generate("the cat", {.tokens = 40, .temperature = 0}, nullptr);
  };
  EXPECT_EQ(text(Target::kCuda), text(Target::kCpu));
}

}  // namespace
}  // namespace adjoint

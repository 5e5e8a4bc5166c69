// Text from a run: what it has learnt, in whatever precision its stack computes.
#include "train/generate.h"

#include "device/parallel.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

TEST_F(TrainFolder, GeneratesWhatItHasLearnt) {
  for (const char* stack : {"", "bf16", "fp16"}) {
    train(options("run", {{"stack", stack},
                          {"steps", 150},
                          {"batch", 8},
                          {"lr", 0.01},
                          {"log_every", 1000},
                          {"overwrite", true}}));
    Generator generator(out("run"), {.threads = num_threads()});
    const std::string text =
        generator.generate("the cat", {.tokens = 12, .temperature = 0}, nullptr);
    EXPECT_EQ(text, " sat on mat ") << "'" << stack << "'";
  }
}

// One prompt cannot come in as many parts as a batch did.
TEST_F(TrainFolder, GeneratesFromRunsThatSplitTheirBatch) {
  for (const char* stack : {"accumulate(2)", "bf16 | accumulate(2) | lora(rank=2)"}) {
    train(options("run", {{"stack", stack}, {"overwrite", true}}));
    Generator generator(out("run"), {.threads = num_threads()});
    EXPECT_EQ(generator.generate("the", {.tokens = 5, .temperature = 0}, nullptr).size(), 5u);
  }
}

}  // namespace
}  // namespace adjoint

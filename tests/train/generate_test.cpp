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

}  // namespace
}  // namespace adjoint

// nanoGPT's published small run: 4 layers, 4 heads, 128 wide, context 64, batch 12, 2000 steps, no
// dropout, characters of tiny Shakespeare: validation loss 1.88.
#include <gtest/gtest.h>

#include "base/shared_text.h"
#include "base/temp_folder.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

TEST(Shakespeare, ReachesThePublishedLoss) {
  const auto data = shared_text("tinyshakespeare.txt");
  if (!data) GTEST_SKIP() << no_shared_text("tinyshakespeare.txt");
  const TempFolder folder;
  const nlohmann::json flags = {{"model", "char"},
                                {"data", data->string()},
                                {"tokenizer", "char"},
                                {"steps", 2000},
                                {"batch", 12},
                                {"context", 64},
                                {"lr", 1e-3},
                                {"seed", 1},
                                {"eval_batches", 0},  // the whole validation part
                                {"out", (folder / "run").string()}};
  Trainer trainer(resolve_config({}, flags));
  const TrainResult result = trainer.train(std::atomic<bool>(false));
  EXPECT_LE(result.val_loss.value(), 1.88);
}

}  // namespace
}  // namespace adjoint

// Training on several ranks, threads of this process: what they train is what one rank trains, and
// what they save knows nothing of the mesh.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class RankFolder : public TrainFolder {
 protected:
  // Batches of five samples, of which the last of two ranks has two.
  json ranked(const std::string& name, const std::string& stack, json more = json::object()) const {
    json all = options(name, {{"batch", 5}, {"threads", 1}, {"stack", stack}});
    all.update(more);
    return all;
  }
  static TrainResult train_on(int ranks, const json& flags) {
    const ResolvedConfig resolved = resolve_config({}, flags);
    TrainResult result;
    run_ranks(ranks, [&](const Communicator& world) {
      Trainer trainer(resolved, world);
      const TrainResult mine = trainer.train(std::atomic<bool>(false));
      if (world.rank() == 0) result = mine;
    });
    return result;
  }
  void expect_same_save(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out(a) / file), read_file(out(b) / file)) << file;
    }
  }
};

TEST_F(RankFolder, RanksTrainWhatOneRankTrains) {
  const TrainResult one = train(ranked("one", ""));
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks);
    const TrainResult many = train_on(ranks, ranked("many" + n, "data_parallel(" + n + ")"));
    EXPECT_EQ(many.step, one.step);
    EXPECT_NEAR(*many.loss, *one.loss, 1e-4) << ranks;
    EXPECT_NEAR(*many.val_loss, *one.val_loss, 1e-4) << ranks;
    EXPECT_EQ(fs::file_size(out("many" + n) / "model.safetensors"),
              fs::file_size(out("one") / "model.safetensors"));
  }
}

// Initial weights, batches and dropout do not depend on the mesh: after no step at all but one the
// parameters are those of one rank, up to the order of sums.
TEST_F(RankFolder, TheWholeValidationPartIsEvaluated) {
  const json all = {{"eval_batches", 0}, {"steps", 1}};
  const TrainResult one = train(ranked("one", "", all));
  const TrainResult two = train_on(2, ranked("two", "data_parallel(2)", all));
  EXPECT_NEAR(*two.val_loss, *one.val_loss, 1e-5);
}

// Shards are put together when they are saved, bit for bit.
TEST_F(RankFolder, ZeroSavesTheSameBytes) {
  const TrainResult plain = train_on(2, ranked("plain", "data_parallel(2)"));
  for (const char* stage : {"1", "2", "3"}) {
    const TrainResult zero =
        train_on(2, ranked("zero", std::string("data_parallel(2) | zero(") + stage + ")",
                           {{"overwrite", true}, {"save_every", 3}}));
    EXPECT_EQ(zero.loss, plain.loss);
    EXPECT_EQ(zero.val_loss, plain.val_loss);
    expect_same_save("zero", "plain");
  }
}

TEST_F(RankFolder, ResumeGoesOnBitForBitAndUnderAnotherMesh) {
  const std::string stack = "data_parallel(2) | zero(3)";
  const TrainResult whole = train_on(2, ranked("whole", stack));
  train_on(2, ranked("parts", stack, {{"stop_after", 3}}));
  EXPECT_EQ(train_on(2, resume("parts")).loss, whole.loss);
  expect_same_save("parts", "whole");
  train_on(2, ranked("other", stack, {{"stop_after", 3}}));
  const TrainResult alone = train(resume("other", {{"stack", ""}, {"ranks", 1}}));
  EXPECT_EQ(alone.step, 7);
  EXPECT_NEAR(*alone.loss, *whole.loss, 1e-4);
  train_on(2, ranked("third", stack, {{"stop_after", 3}}));
  const TrainResult three = train_on(3, resume("third", {{"stack", "data_parallel(3)"}}));
  EXPECT_NEAR(*three.loss, *whole.loss, 1e-4);
}

TEST_F(RankFolder, AMeshHasAsManyRanksAsTheRun) {
  EXPECT_EQ(error_of(ranked("run", "data_parallel(2)")),
            "the mesh of the stack (data=2) has 2 ranks, and this run has 1; say --ranks 2");
  const auto refused = [&](int ranks, const std::string& stack) {
    try {
      train_on(ranks, ranked("run", stack));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refused(2, ""),
            "--ranks 2: the stack says no mesh, so every rank would do the same; add "
            "data_parallel(2) to it");
  EXPECT_EQ(refused(3, "data_parallel(2)"),
            "the mesh of the stack (data=2) has 2 ranks, and this run has 3; say --ranks 2");
  EXPECT_FALSE(fs::exists(out("run"))) << "nothing was written";
}

}  // namespace
}  // namespace adjoint

// Several ranks on one GPU, threads of this process: the laws that they keep on a CPU, and runs
// that train what ranks of a CPU train. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/gpu_reduction.h"
#include "device/gpu.h"
#include "laws/judge.h"
#include "run/machine.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

Subject subject_of(const std::string& model, int64_t batch) {
  StepOptions options;
  options.eps = 1e-2;  // as in verify
  options.target = Target::kCuda;
  options.deterministic = true;
  nlohmann::json settings = {{"layers", 2}, {"vocab", 37}, {"dropout", 0.1}};
  if (model == "char") settings.update({{"hidden", 32}, {"heads", 2}});
  const BoundModel bound(find_model(model), {.batch = batch, .context = 8, .settings = settings});
  return {.forward = bound.forward(), .options = options, .seeds = {1}, .target = Target::kCuda};
}

struct Case {
  const char *model, *stack, *functor;
  int64_t batch;
};

class GpuRanks : public testing::TestWithParam<Case> {};

TEST_P(GpuRanks, KeepTheirLaws) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  const Case& c = GetParam();
  Judge judge(subject_of(c.model, c.batch));
  const Stack stack = parse_stack(c.stack);
  size_t index = stack.functors.size();
  for (size_t i = 0; i < stack.functors.size(); ++i) {
    if (stack.functors[i].functor.name == c.functor) index = i;
  }
  ASSERT_LT(index, stack.functors.size()) << c.functor;
  const Verdict verdict = judge.judge(stack, index);
  EXPECT_TRUE(verdict.ok) << verdict.tensor << " is off by " << verdict.error << ", allowed "
                          << verdict.allowed;
  EXPECT_EQ(verdict.note, "");
}

INSTANTIATE_TEST_SUITE_P(
    Stacks, GpuRanks,
    testing::Values(Case{"char", "data_parallel(2)", "data_parallel", 6},
                    Case{"llama-tiny", "data_parallel(2)", "data_parallel", 6},
                    Case{"char", "data_parallel(3)", "data_parallel", 7},  // uneven
                    Case{"char", "data_parallel(2) | bf16 | accumulate(2)", "data_parallel", 6},
                    Case{"char", "data_parallel(2) | fp16", "data_parallel", 6},
                    Case{"char", "data_parallel(2) | zero(1)", "zero", 6},
                    Case{"char", "data_parallel(2) | zero(2)", "zero", 6},
                    Case{"char", "data_parallel(2) | zero(3)", "zero", 6},
                    Case{"llama-tiny", "data_parallel(3) | zero(3) | bf16", "zero", 7},
                    Case{"char", "data_parallel(2) | zero(3) | checkpoint(every=1)", "zero", 6},
                    Case{"char", "data_parallel(2) | offload(optimizer)", "data_parallel", 6},
                    Case{"char", "tensor_parallel(2)", "tensor_parallel", 6},
                    Case{"llama-tiny", "tensor_parallel(2)", "tensor_parallel", 6},
                    Case{"llama-tiny", "tensor_parallel(2) | bf16 | checkpoint(every=1)",
                         "tensor_parallel", 6},
                    Case{"char", "data_parallel(2) | tensor_parallel(2) | zero(3)", "zero", 6}));

class GpuRankFolder : public TrainFolder {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
    TrainFolder::SetUp();
  }
  json ranked(const std::string& name, const std::string& stack, json more = json::object()) const {
    json all = options(name, {{"batch", 5},
                              {"threads", 1},
                              {"stack", stack},
                              {"device", "cuda"},
                              {"deterministic", true}});
    all.update(more);
    return all;
  }
  static TrainResult train_on(int ranks, const json& flags) {
    const ResolvedConfig resolved = resolve_config({}, flags);
    TrainResult result;
    run_ranks(ranks,
              [&](const Communicator& world) {
                Trainer trainer(resolved, world);
                const TrainResult mine = trainer.train(std::atomic<bool>(false));
                if (world.rank() == 0) result = mine;
              },
              {.memory = memory_of(target_named(resolved.config.device))});
    return result;
  }
};

TEST_F(GpuRankFolder, TrainWhatOneRankTrains) {
  const TrainResult one = train(ranked("one", ""));
  const TrainResult cpu = train_on(2, ranked("cpu", "data_parallel(2)", {{"device", "cpu"}}));
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks);
    const TrainResult many = train_on(ranks, ranked("many" + n, "data_parallel(" + n + ")"));
    EXPECT_EQ(many.step, one.step);
    EXPECT_NEAR(*many.loss, *one.loss, 1e-4) << ranks;
    EXPECT_NEAR(*many.val_loss, *one.val_loss, 1e-4) << ranks;
    EXPECT_NEAR(*many.loss, *cpu.loss, 1e-3) << ranks;
  }
}

TEST_F(GpuRankFolder, ZeroSavesTheSameBytesAndResumes) {
  const TrainResult plain = train_on(2, ranked("plain", "data_parallel(2)"));
  for (const char* stage : {"1", "2", "3"}) {
    const std::string stack = std::string("data_parallel(2) | zero(") + stage + ")";
    train_on(2, ranked("zero", stack, {{"overwrite", true}, {"stop_after", 3}}));
    EXPECT_EQ(train_on(2, resume("zero")).loss, plain.loss) << stage;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out("zero") / file), read_file(out("plain") / file)) << file << stage;
    }
  }
}

// With products that are timed: the first rank's choice is that of all.
TEST_F(GpuRankFolder, RanksShareOneTableOfProducts) {
  const json tuned = {{"deterministic", false}, {"stop_after", 3}};
  train_on(2, ranked("run", "data_parallel(2) | zero(2) | bf16", tuned));
  EXPECT_EQ(train_on(2, resume("run")).step, 7);
}

TEST_F(GpuRankFolder, MemoryOfAllRanksIsCounted) {
  std::string refused = "no error";
  try {
    train_on(2, ranked("run", "data_parallel(2)",
                       {{"batch", 1000000}, {"context", 128}, {"eval_batches", 1}}));
  } catch (const std::runtime_error& e) {
    refused = e.what();
  }
  EXPECT_TRUE(refused.starts_with("2 ranks on one GPU want ")) << refused;
  EXPECT_FALSE(fs::exists(out("run"))) << "nothing was written";
}

}  // namespace
}  // namespace adjoint

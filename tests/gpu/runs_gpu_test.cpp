// What runs do beside their steps, on the GPU: spikes, norms, repeats, resumes on another device,
// documents apart. The same is held on the CPU by tests/train. Skipped where there is no GPU.
#include <cmath>
#include <fstream>

#include "base/json.h"
#include "data/safetensors.h"
#include "device/gpu.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class GpuRuns : public TrainFolder {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
    TrainFolder::SetUp();
  }
  json on_gpu(const std::string& name, json more = json::object()) const {
    json all = options(name, {{"device", "cuda"}, {"deterministic", true}});
    all.update(more);
    return all;
  }
  json lines(const std::string& name, const char* file = "metrics.jsonl") const {
    json all = json::array();
    std::ifstream in(out(name) / file);
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }
  // Bit for bit, but for what counts good steps.
  void expect_same_numbers(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const SafetensorsFile x(out(a) / file), y(out(b) / file);
      ASSERT_EQ(x.tensors().size(), y.tensors().size());
      for (const SafetensorView& t : x.tensors()) {
        if (t.name.starts_with("loss_scale")) continue;
        const SafetensorView* other = y.find(t.name);
        ASSERT_TRUE(other && other->size == t.size) << t.name;
        EXPECT_EQ(std::string_view(static_cast<const char*>(t.data), t.size.count),
                  std::string_view(static_cast<const char*>(other->data), t.size.count))
            << t.name;
      }
    }
  }

  // A hundred documents of one kind, and one of another, which stands out once the run has learned
  // (tests/train/spikes_test.cpp).
  json with_odd_document(const std::string& name, json more = json::object()) const {
    const fs::path talks = folder_ / "talks.jsonl";
    if (!fs::exists(talks)) {
      std::string text;
      for (int i = 1; i <= 100; ++i) {
        const std::string line = i == 40 ? "9#7@1!5$3%8^6&2*4(0)9#7@1!5$3%8^"
                                         : "the cat sat on mat " + std::to_string(i * 37 % 101);
        text += json{{"text", line}}.dump() + "\n";
      }
      write_file_atomically(talks, text);
    }
    json all = {{"data", talks.string()},
                {"steps", 120},
                {"context", 34},
                {"lr", 0.02},
                {"warmup", 0},
                {"packing", "padded"},
                {"spike", 1.6},
                {"on_spike", "skip"},
                {"eval_every", 0}};
    all.update(more);
    return on_gpu(name, all);
  }
};

// The step itself leaves everything as it was: the host learns of it a step later.
TEST_F(GpuRuns, ASpikeIsSkipped) {
  for (const char* stack : {"", "fp16", "bf16"}) {
    SCOPED_TRACE(stack);
    json more = {{"stack", stack}, {"overwrite", true}};
    ASSERT_EQ(train(with_odd_document("whole", more)).step, 120);
    const json told = lines("whole", "spikes.jsonl");
    ASSERT_FALSE(told.empty());
    const int64_t at = told[0]["step"];
    EXPECT_EQ(told[0]["wrong"], "spike");
    EXPECT_EQ(told[0]["done"], "skipped");
    EXPECT_NE(read_file(out("whole") / "spike.json").find("9#7@1!5$"), std::string::npos);
    more["stop_after"] = at - 1;
    train(with_odd_document("before", more));
    more["stop_after"] = at;
    train(with_odd_document("behind", more));
    expect_same_numbers("before", "behind");
    train(resume("before"));
    expect_same_numbers("before", "whole");
  }
}

TEST_F(GpuRuns, ASpikeIsLeftOutByGoingBack) {
  for (const char* stack : {"", "fp16"}) {
    SCOPED_TRACE(stack);
    const json back = {
        {"on_spike", "back"}, {"save_every", 7}, {"stack", stack}, {"overwrite", true}};
    ASSERT_EQ(train(with_odd_document("whole", back)).step, 120);
    const json told = lines("whole", "spikes.jsonl");
    ASSERT_FALSE(told.empty());
    const json position = read_json(out("whole") / "position.json");
    ASSERT_EQ(position["left_out"].size(), told.size());
    for (size_t i = 0; i < told.size(); ++i) {
      EXPECT_EQ(position["left_out"][i], told[i]["batch"]);
      const int64_t step = told[i]["step"];
      EXPECT_EQ(told[i]["done"], "went back to step " + std::to_string((step - 1) / 7 * 7));
    }
    int64_t count = 0;
    for (const json& line : lines("whole")) EXPECT_EQ(line["step"], ++count) << "a line a step";
    EXPECT_EQ(count, 120);
    train(with_odd_document("again", back));
    expect_same_numbers("again", "whole");
  }
}

TEST_F(GpuRuns, NormsOfParametersThatLieWithTheHost) {
  const auto whole = [](const json& norms) {
    double squares = 0;
    for (const auto& [role, norm] : norms.items()) squares += std::pow(norm.get<double>(), 2);
    return std::sqrt(squares);
  };
  json told[2];
  for (const bool far : {false, true}) {
    const std::string name = far ? "far" : "near";
    train(on_gpu(name, {{"norms", 3}, {"stack", far ? "offload(parameters)" : ""}}));
    for (const json& line : lines(name)) {
      if (line.contains("weight_norms")) told[far].push_back(line);
    }
  }
  ASSERT_EQ(told[0].size(), 2);
  ASSERT_EQ(told[1].size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(told[1][i]["weight_norms"], told[0][i]["weight_norms"]);
    EXPECT_EQ(told[1][i]["grad_norms"], told[0][i]["grad_norms"]);
    EXPECT_NEAR(whole(told[1][i]["grad_norms"]), told[1][i]["grad_norm"].get<double>(), 1e-4);
    EXPECT_GT(whole(told[1][i]["weight_norms"]), 1);
  }
}

TEST_F(GpuRuns, GoOnWhereTheOtherDeviceStopped) {
  for (const char* stack : {"", "fp16"}) {
    SCOPED_TRACE(stack);
    json more = {{"stack", stack}, {"overwrite", true}};
    const TrainResult whole = train(on_gpu("whole", more));
    more["stop_after"] = 3;
    train(on_gpu("there", more));
    const TrainResult there = train(resume("there", {{"device", "cpu"}}));
    more["device"] = "cpu";
    train(on_gpu("here", more));
    const TrainResult here = train(resume("here", {{"device", "cuda"}}));
    for (const TrainResult& mixed : {there, here}) {
      EXPECT_EQ(mixed.step, 7);
      EXPECT_NEAR(*mixed.loss, *whole.loss, 2e-3);
      EXPECT_NEAR(*mixed.val_loss, *whole.val_loss, 2e-3);
    }
  }
}

TEST_F(GpuRuns, ADeterministicRunIsRepeatedBitForBit) {
  for (const char* stack : {"", "bf16 | checkpoint(every=1) | accumulate(2)"}) {
    train(on_gpu("run", {{"stack", stack}, {"seed", 5}, {"overwrite", true}}));
    const json again = {
        {"repeat", out("run").string()}, {"out", out("again").string()}, {"overwrite", true}};
    EXPECT_EQ(train(again).step, 7);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out("run") / file), read_file(out("again") / file)) << file << stack;
    }
  }
}

// Positions of a learned table restart with a document, and no document sees another.
TEST_F(GpuRuns, DocumentsApartAreSeenAsIfAlone) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += json{{"text", std::to_string(i) + " + 7 = " + std::to_string(i + 7)}}.dump() + "\n";
  }
  const fs::path sums = folder_ / "sums.jsonl";
  write_file_atomically(sums, text);
  for (const char* stack : {"", "bf16"}) {
    SCOPED_TRACE(stack);
    json run = {{"data", sums.string()},
                {"model", "gpt2"},
                {"tokenizer", "byte"},
                {"set", {{"layers", 2}, {"hidden", 64}, {"heads", 2}}},
                {"context", 40},
                {"batch", 8},
                {"eval_batches", 0},
                {"steps", 3},
                {"lr", 0.01},
                {"stack", stack},
                {"overwrite", true}};
    run["packing"] = "padded";
    train(on_gpu("base", run));
    run.update({{"init", out("base").string()}, {"steps", 1}, {"lr", 0}, {"min_lr", 0}});
    const TrainResult alone = train(on_gpu("alone", run));
    run["packing"] = "documents";
    const TrainResult together = train(on_gpu("together", run));
    run["documents"] = "apart";
    const TrainResult apart = train(on_gpu("apart", run));
    run["device"] = "cpu";
    const TrainResult cpu = train(on_gpu("cpu", run));
    ASSERT_TRUE(alone.val_loss && together.val_loss && apart.val_loss && cpu.val_loss);
    const double near = *stack ? 2e-3 : 1e-5;
    EXPECT_NEAR(*apart.val_loss, *alone.val_loss, near);
    EXPECT_NEAR(*apart.val_loss, *cpu.val_loss, near);
    EXPECT_GT(std::abs(*together.val_loss - *alone.val_loss), 1e-4);
    EXPECT_NEAR(*apart.loss, *cpu.loss, 2 * near);
  }
}

}  // namespace
}  // namespace adjoint

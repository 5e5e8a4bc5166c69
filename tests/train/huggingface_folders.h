// Tiny models of Hugging Face's format as transformers wrote them (tests/huggingface), and what it
// computed with them in float64 (scripts/reference_models.py).
#pragma once
#include <gtest/gtest.h>

#include <cstring>

#include "base/temp_folder.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "kernels/harness.h"
#include "run/parameters.h"
#include "train/cached_model.h"
#include "train/fed_inputs.h"
#include "train/model_folder.h"
#include "train/trainer.h"

namespace adjoint {

namespace fs = std::filesystem;

constexpr const char* kFamilies[] = {"gpt2",    "llama",     "llama3",    "llama_biased", "smollm",
                                     "mistral", "qwen2",     "qwen3",     "gemma2",       "gemma3",
                                     "mixtral", "qwen3_moe", "qwen3_yarn"};

inline fs::path family_folder(const std::string& family) {
  return fs::path(SOURCE_DIR) / "tests" / "huggingface" / family;
}

// What transformers gave.
class ReferenceFile {
 public:
  explicit ReferenceFile(const fs::path& folder) : file_(folder / "reference.safetensors") {}

  std::vector<int32_t> ids(const char* name) const {
    const SafetensorView& view = *file_.find(name);
    std::vector<int32_t> all(view.size.count / 4);
    std::memcpy(all.data(), view.data, view.size.count);
    return all;
  }
  Numbers doubles(const char* name) const {
    const SafetensorView& view = *file_.find(name);
    Numbers all(view.size.count / 8);
    std::memcpy(all.data(), view.data, view.size.count);
    return all;
  }
  const SafetensorView* gradient(const std::string& name) const {
    return file_.find("gradient:" + name);
  }
  double said(const std::string& key) const { return std::stod(file_.metadata().at(key)); }
  int64_t batch() const { return file_.find("tokens")->shape[0]; }
  int64_t seq() const { return file_.find("tokens")->shape[1]; }

 private:
  SafetensorsFile file_;
};

inline double distance(const Numbers& a, const Numbers& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

struct LoadedModel {
  LoadedModel(const std::string& folder, int64_t batch, int64_t seq)
      : model(find_model(folder), {.batch = batch, .seq = seq}) {}

  std::unique_ptr<Run> running(const Scheme& scheme, Target target = Target::kCpu) const {
    auto run = std::make_unique<Run>(
        scheme,
        make_plan(scheme, {.threads = num_threads(), .target = target, .deterministic = true}));
    initialize(*run, 1);  // other numbers, which the folder's replace
    ModelFolder(model.text().weights).load(model, *run);
    return run;
  }

  BoundModel model;
};

inline Numbers logits_for(const fs::path& folder, const std::vector<int32_t>& tokens, int64_t batch,
                          Target target = Target::kCpu) {
  const LoadedModel loaded(folder.string(), batch, static_cast<int64_t>(tokens.size()) / batch);
  const auto run = loaded.running(without_randomness(logits_of(loaded.model.forward())), target);
  run->write(input_named(run->scheme(), "tokens"), tokens.data());
  // Experts' losses read targets, which logits do not depend on.
  if (const auto targets = run->scheme().find({"targets"})) run->clear(*targets);
  run->step();
  return run->values(run->scheme().outputs[0]);
}

// Greedy tokens of generation, which keeps keys and values and draws each token where the model is,
// are those of transformers until two are as good. How many were compared.
inline size_t expect_greedy_tokens(const fs::path& folder, Target target = Target::kCpu) {
  const ReferenceFile reference(folder);
  const std::vector<int32_t> greedy = reference.ids("greedy");
  const Numbers margins = reference.doubles("margins");
  const size_t prompt = greedy.size() - margins.size();
  const LoadedModel loaded(folder.string(), 1, static_cast<int64_t>(greedy.size()));
  CachedModel model(logits_of(loaded.model.forward()), {},
                    {.threads = num_threads(), .target = target}, {});
  ModelFolder(folder).load(loaded.model, model.run());
  const std::vector<int32_t> none = {0};
  for (size_t i = 0; i < prompt; ++i) {
    model.step(std::span(greedy).subspan(i, 1), std::vector{static_cast<int32_t>(i)}, none);
  }
  size_t agreed = 0;
  for (; agreed < margins.size() && margins[agreed] >= 1e-4; ++agreed) {
    model.ask_drawn();
    const int32_t token = model.take_drawn()[0];
    EXPECT_EQ(token, greedy[prompt + agreed]) << "token " << agreed;
    if (token != greedy[prompt + agreed]) break;
    model.step_on(std::vector{static_cast<int32_t>(prompt + agreed)});
  }
  return agreed;
}

// Runs that begin with a folder's weights, on tokens without a tokenizer.
class RunOfFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<int32_t> tokens(600);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 41);
    AtomicFile file(folder_ / "data.safetensors");
    const SafetensorView view{
        .name = "tokens", .dtype = "I32", .shape = {600}, .data = tokens.data(), .size = {4 * 600}};
    write_safetensors(file, std::span(&view, 1), {});
    file.commit();
  }
  nlohmann::json options(const std::string& family, const std::string& stack) const {
    return {{"model", family_folder(family).string()},
            {"data", (folder_ / "data.safetensors").string()},
            {"out", (folder_ / "run").string()},
            {"steps", 3},
            {"batch", 2},
            {"seq", 16},
            {"lr", 0.01},
            {"warmup", 0},
            {"eval_batches", 1},
            {"stack", stack}};
  }
  static void train(const nlohmann::json& flags) {
    Trainer(resolve_config({}, flags)).train(std::atomic<bool>(false));
  }
  TempFolder folder_;
};

}  // namespace adjoint

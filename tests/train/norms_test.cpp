// Norms of gradients and weights by role, as a run tells them.
#include <cmath>
#include <fstream>

#include "data/safetensors.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class Norms : public TrainFolder {
 protected:
  json lines(const std::string& name) const {
    json all = json::array();
    std::ifstream in(out(name) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }
  static double whole(const json& norms) {
    double squares = 0;
    for (const auto& [role, norm] : norms.items()) squares += std::pow(norm.get<double>(), 2);
    return std::sqrt(squares);
  }
  // Of the parameters in a save whose names have this in them.
  double saved(const std::string& name, const std::string& part) const {
    const SavedModel model{SavePaths(out(name))};
    double squares = 0;
    for (const SafetensorView& t : model.file().tensors()) {
      if (t.name.find(part) == std::string::npos || t.dtype != "F32") continue;
      for (const float number : model.floats(t.name)) squares += double{number} * number;
    }
    return std::sqrt(squares);
  }
};

TEST_F(Norms, AreThoseOfTheStepAndOfItsWeights) {
  train(options("told", {{"steps", 6}, {"norms", 2}, {"log_every", 4}, {"tensorboard", true}}));
  train(options("plain", {{"steps", 6}}));
  EXPECT_EQ(read_file(out("told") / "model.safetensors"),
            read_file(out("plain") / "model.safetensors"))
      << "who looks changes nothing";
  const json told = lines("told"), plain = lines("plain");
  ASSERT_EQ(told.size(), 3) << told;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told[i]["step"], 2 * (i + 1)) << "a line wherever there are norms";
    const json& step = plain[2 * i + 1];
    EXPECT_EQ(told[i]["grad_norm"], step["grad_norm"]);
    EXPECT_NEAR(whole(told[i]["grad_norms"]), step["grad_norm"].get<double>(),
                1e-5 * step["grad_norm"].get<double>());
    EXPECT_FALSE(step.contains("grad_norms"));
  }
  const json& weights = told[2]["weight_norms"];
  EXPECT_NEAR(whole(weights), saved("told", ""), 1e-5 * saved("told", ""));
  EXPECT_NEAR(weights["attention_in"].get<double>(), saved("told", "qkv"), 1e-5) << weights;
  for (const char* role : {"norm", "attention_out", "feed_forward"}) {
    EXPECT_GT(weights.value(role, 0.0), 0) << role << weights;
    EXPECT_TRUE(told[2]["grad_norms"].contains(role)) << role;
  }
  std::string events;
  for (const fs::directory_entry& entry : fs::directory_iterator(out("told"))) {
    if (entry.path().filename().string().starts_with("events.")) events = read_file(entry.path());
  }
  for (const char* name : {"grad_norms/attention_in", "weight_norms/norm"}) {
    EXPECT_NE(events.find(name), std::string::npos) << name;
  }
}

// Frozen parameters have no gradients and adapters have; codes are no weights; what lies with the
// host is fetched.
TEST_F(Norms, UnderStacks) {
  train(options("base", {{"steps", 2}}));
  const json even = {{"norms", 5}, {"steps", 5}};
  train(tuned("lora", "lora(rank=2)", even));
  const json lora = lines("lora").back();
  EXPECT_NEAR(whole(lora["grad_norms"]), lora["grad_norm"].get<double>(), 1e-5);
  EXPECT_NEAR(whole(lora["weight_norms"]), saved("lora", ""), 1e-4 * saved("lora", ""));
  train(tuned("codes", "quantize(int8, group=32) | lora(rank=2)", even));
  const json codes = lines("codes").back();
  EXPECT_LT(whole(codes["weight_norms"]), whole(lora["weight_norms"]));
  EXPECT_GT(whole(codes["weight_norms"]), 0);
  train(tuned("far", "offload(parameters)", even));
  const json far = lines("far").back();
  EXPECT_NEAR(whole(far["weight_norms"]), saved("far", ""), 1e-4 * saved("far", ""));
  train(tuned("half", "fp16", even));
  const json half = lines("half").back();
  EXPECT_NEAR(whole(half["grad_norms"]), half["grad_norm"].get<double>(),
              1e-4 * half["grad_norm"].get<double>())
      << "unscaled";
}

}  // namespace
}  // namespace adjoint

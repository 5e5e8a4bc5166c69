// A run's folder says all that is needed to repeat it, and is refused where that has changed.
#include "train/provenance.h"

#include "train/huggingface_folders.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class Repeated : public TrainFolder {
 protected:
  json repeat(const std::string& of, const std::string& name, json more = json::object()) const {
    json all = {{"repeat", out(of).string()}, {"out", out(name).string()}};
    all.update(more);
    return all;
  }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const char* file :
         {"model.safetensors", "optimizer.safetensors", "model.scheme", "tokenizer.json"}) {
      EXPECT_EQ(read_file(out(a) / file), read_file(out(b) / file)) << file;
    }
  }
  json about(const std::string& name) const {
    return json::parse(read_file(out(name) / "run.json"));
  }
};

// With a functor, an optimizer and a model of its own, which are gone when it is repeated.
TEST_F(Repeated, BitForBitFromItsFolder) {
  const fs::path own = folder_ / "own.functor", rule = folder_ / "own.optimizer",
                 model = folder_ / "own.scheme";
  write_file_atomically(own, "functor own = layer_decay(0.5) | checkpoint(every=1)\n");
  write_file_atomically(rule,
                        "optimizer own(mu = 0.8):\n  state m like p\n"
                        "  m = mu*m + g\n  p = p - rate*(m + decay*p)\n");
  write_file_atomically(model, read_file(fs::path(SOURCE_DIR) / "models" / "gpt2.scheme"));
  train(options("run", {{"stack", own.string()},
                        {"optimizer", rule.string() + "(mu=0.7)"},
                        {"model", model.string() + ":char"},
                        {"spike", 3.0},
                        {"norms", 3},
                        {"seed", 5}}));
  for (const fs::path& file : {own, rule, model}) fs::remove(file);
  EXPECT_EQ(train(repeat("run", "again")).step, 7);
  expect_same_files("run", "again");
  // And what is repeated can be.
  EXPECT_EQ(train(repeat("again", "third")).step, 7);
  expect_same_files("run", "third");
  EXPECT_EQ(train(repeat("run", "longer", {{"steps", 8}})).step, 8) << "flags are said on top";
  const json by = about("run")["made_by"];
  EXPECT_EQ(by["adjoint"], "0.1.0");
  EXPECT_TRUE(by["program"].get<std::string>().starts_with("xxh3:")) << by;
  EXPECT_TRUE(by.contains("onednn") && by.contains("compiler")) << by;
}

TEST_F(Repeated, OnlyOfTheSameDataAndTheSameParameters) {
  train(options("base", {{"steps", 2}}));
  train(tuned("run", "lora(rank=2)"));
  train(repeat("run", "again"));
  expect_same_files("run", "again");
  const auto refusal = [&](json more = json::object()) {
    return error_of(repeat("run", "no", more));
  };
  train(resume("base", {{"steps", 3}}));
  EXPECT_EQ(refusal(), out("base").string() + ": this has changed since the run in " +
                           out("run").string() + " began with it");
  fs::remove_all(out("base"));
  EXPECT_NE(refusal().find("the run began with the init of " + out("base").string() +
                           ", which is no longer there"),
            std::string::npos);
  train(options("plain"));
  write_file_atomically(data(), read_file(data()) + "the cat\n");
  EXPECT_NE(error_of(repeat("plain", "no")).find("has changed since the run began"),
            std::string::npos);
  EXPECT_EQ(train(repeat("plain", "other", {{"data", data().string()}})).step, 7)
      << "unless it is said";
}

TEST_F(Repeated, NotWhatWentOnOtherwise) {
  train(options("run", {{"stop_after", 3}}));
  train(resume("run", {{"save_every", 2}, {"stop_after", 5}}));
  EXPECT_EQ(about("run")["history"], json::array()) << "what is saved when changes no number";
  train(resume("run", {{"lr", 0.01}}));
  const json history = about("run")["history"];
  ASSERT_EQ(history.size(), 1);
  EXPECT_EQ(history[0]["step"], 5);
  EXPECT_EQ(history[0]["changed"]["lr"]["is"], 0.01);
  EXPECT_EQ(error_of(repeat("run", "no")),
            out("run").string() +
                ": from step 5 on this run went on otherwise (lr), so that its "
                "options do not say how to repeat it");
  EXPECT_NE(error_of(repeat("nowhere", "no")).find("nowhere: there is no run here to repeat"),
            std::string::npos);
  EXPECT_NE(
      error_of(repeat("run", "no", {{"resume", true}})).find("--repeat and --resume contradict"),
      std::string::npos);
  json merged = about("run");
  merged["merged"] = {{"from", "base"}};
  write_file_atomically(out("run") / "run.json", merged.dump());
  EXPECT_EQ(error_of(repeat("run", "no")),
            out("run").string() + ": this run was merged from base, not trained; repeat that one");
  EXPECT_FALSE(fs::exists(out("no")));
}

// Weights and tokenizer come of the folder that the run came of; an adapter, too.
TEST_F(RunOfFolder, IsRepeated) {
  const fs::path copy = folder_ / "llama";
  fs::copy(family_folder("llama"), copy, fs::copy_options::recursive);
  json flags = options("llama", "lora(rank=4, alpha=6)");
  flags["model"] = copy.string();
  flags["adapter"] = family_folder("llama_adapter").string();
  train(flags);
  const json again = {{"repeat", (folder_ / "run").string()},
                      {"out", (folder_ / "again").string()}};
  train(again);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(folder_ / "run" / file), read_file(folder_ / "again" / file)) << file;
  }
  std::string weights = read_file(copy / "model.safetensors");
  weights[weights.size() - 9] ^= 1;
  write_file_atomically(copy / "model.safetensors", weights);
  json third = again;
  third["out"] = (folder_ / "third").string();
  std::string error = "no error";
  try {
    train(third);
  } catch (const Error& e) {
    error = e.what();
  }
  EXPECT_NE(error.find("llama: this has changed since the run in"), std::string::npos) << error;
}

}  // namespace
}  // namespace adjoint

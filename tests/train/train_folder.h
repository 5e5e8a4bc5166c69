// A folder with a small text and runs of a tiny model on it.
#pragma once
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "train/trainer.h"

namespace adjoint {

namespace fs = std::filesystem;
using nlohmann::json;

class TrainFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the cat sat on mat " + std::to_string(i * 37 % 101) + "\n";
    write_file_atomically(data(), text);
  }
  fs::path data() const { return folder_ / "text.txt"; }
  fs::path out(const std::string& name) const { return folder_ / name; }

  json options(const std::string& name, json more = json::object()) const {
    json all = {{"model", "char"},
                {"data", data().string()},
                {"out", out(name).string()},
                {"steps", 7},
                {"batch", 2},
                {"context", 16},
                {"eval_batches", 2},
                {"save_every", 0},
                {"log_every", 1},
                {"set", {{"layers", 2}, {"hidden", 32}, {"heads", 2}, {"dropout", 0.1}}}};
    all.update(more);
    return all;
  }
  // Options of a run that starts from the run "base" and adds this stack; `lr` is high, so that
  // five steps matter.
  json tuned(const std::string& name, const std::string& stack, json more = json::object()) const {
    json all = {{"init", out("base").string()},
                {"data", data().string()},
                {"out", out(name).string()},
                {"steps", 5},
                {"batch", 2},
                {"lr", 0.02},
                {"warmup", 0},
                {"eval_batches", 2},
                {"log_every", 1},
                {"stack", stack}};
    all.update(more);
    return all;
  }
  static TrainResult train(const json& flags) {
    Trainer trainer(resolve_config({}, flags));
    return trainer.train(std::atomic<bool>(false));
  }
  json resume(const std::string& name, json more = json::object()) const {
    json all = {{"resume", true}, {"out", out(name).string()}};
    all.update(more);
    return all;
  }
  static std::string error_of(const json& flags) {
    try {
      train(flags);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  TempFolder folder_;
};

}  // namespace adjoint

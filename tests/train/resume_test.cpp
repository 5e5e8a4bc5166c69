// Stop and go on: the same bytes as without the stop. And what a folder must survive.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "base/hash.h"
#include "base/philox.h"
#include "data/safetensors.h"
#include "kernels/cuda/cublaslt/product_table.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

TEST_F(TrainFolder, ResumeContinuesBitForBit) {
  const TrainResult whole = train(options("whole"));
  const TrainResult first = train(options("parts", {{"stop_after", 3}}));
  EXPECT_EQ(first.step, 3);
  const TrainResult second = train(resume("parts"));
  EXPECT_EQ(second.step, 7);
  EXPECT_EQ(second.loss, whole.loss);
  EXPECT_EQ(second.val_loss, whole.val_loss);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(out("whole") / file), read_file(out("parts") / file)) << file;
  }
  // Every step has one line, and the lines of both runs say the same.
  std::ifstream a(out("whole") / "metrics.jsonl"), b(out("parts") / "metrics.jsonl");
  for (int step = 1; step <= 7; ++step) {
    std::string line_a, line_b;
    ASSERT_TRUE(std::getline(a, line_a) && std::getline(b, line_b)) << step;
    const json x = json::parse(line_a), y = json::parse(line_b);
    for (const char* key : {"step", "loss", "lr", "grad_norm"}) EXPECT_EQ(x[key], y[key]) << key;
    EXPECT_EQ(x["step"], step);
  }
}

// Rates, groups and optimizers of single parameters, parameters in bf16 that are rounded at random,
// and a stack of others from a file that is gone by then.
TEST_F(TrainFolder, ResumeKeepsHowParametersAreTrained) {
  const fs::path own = folder_ / "own.functor", apart = folder_ / "apart.functor";
  write_file_atomically(own, "functor own(f = 0.5: number) = layer_decay(f) | bf16_weights\n");
  write_file_atomically(apart,
                        "functor apart:\n  law approximating\n"
                        "  object vector -> optimizer momentum and clipped as vectors\n");
  const std::string stack = own.string() + "(0.25) | " + apart.string();
  const TrainResult whole = train(options("whole", {{"stack", stack}}));
  train(options("parts", {{"stack", stack}, {"stop_after", 3}}));
  fs::remove(own);
  fs::remove(apart);
  const TrainResult second = train(resume("parts"));
  EXPECT_EQ(second.step, 7);
  EXPECT_EQ(second.loss, whole.loss);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(out("whole") / file), read_file(out("parts") / file)) << file;
  }
  const TrainResult plain = train(options("plain"));
  EXPECT_NE(plain.loss, whole.loss) << "the stack did something";
}

// The table of tuned products is an input of a run on a GPU: a resumed run uses the table that it
// began with, whatever this machine's own table contains by now.
TEST_F(TrainFolder, ResumeReadsTheTunedProducts) {
  train(options("run", {{"stop_after", 3}}));
  EXPECT_FALSE(fs::exists(out("run") / "products.json")) << "none is asked on a CPU";
  const auto id = [](int64_t id) { return TunedProduct{{.id = id}, 1.0}; };
  product_table().remember("no GPU", "m=1", id(5));
  save_products(SavePaths(out("run")));
  product_table().remember("no GPU", "m=1", id(6));
  product_table().remember("no GPU", "m=2", id(7));
  load_products(SavePaths(out("run")));
  EXPECT_EQ(product_table().find("no GPU", "m=1")->algorithm.id, 5) << "the folder's";
  EXPECT_EQ(product_table().find("no GPU", "m=2")->algorithm.id, 7) << "known here alone";
  // Another device goes on without touching it; a new run begins without it.
  train(resume("run"));
  EXPECT_TRUE(fs::exists(out("run") / "products.json"));
  train(options("run", {{"overwrite", true}}));
  EXPECT_FALSE(fs::exists(out("run") / "products.json"));
}

TEST_F(TrainFolder, RefusesADamagedTableOfProducts) {
  train(options("run", {{"stop_after", 3}}));
  const fs::path table = out("run") / "products.json";
  const std::string before = read_file(out("run") / "run.json");
  for (const char* text : {"", "{", "[]", R"({"format": "adjoint tuned products 0"})"}) {
    write_file_atomically(table, text);
    std::string error;
    try {
      load_products(SavePaths(out("run")));
    } catch (const Error& e) {
      error = e.what();
    }
    EXPECT_NE(error.find("products.json: this is no table of tuned products"), std::string::npos)
        << error;
  }
  EXPECT_EQ(read_file(out("run") / "run.json"), before);
  EXPECT_EQ(train(resume("run")).step, 7) << "a CPU does not ask it";
}

// How products are cut, and so the order of their sums, depends on the cap on workspaces: the run
// keeps the one that it began with.
TEST_F(TrainFolder, ResumeKeepsTheCapOnWorkspaces) {
  const auto cap_of = [](const json& flags) {
    return Trainer(resolve_config({}, flags)).run().plan().workspace_cap.count;
  };
  const auto saved = [&](const char* name) {
    return json::parse(read_file(out(name) / "run.json"))["options"]["workspace"];
  };
  EXPECT_EQ(cap_of(options("sheet")), 64 << 20) << "the CPU's sheet";
  EXPECT_EQ(saved("sheet"), "67108864") << "kept, though a later version's sheet may say another";
  train(options("parts", {{"stop_after", 3}, {"workspace", "8KiB"}}));
  EXPECT_EQ(saved("parts"), "8192");
  const TrainResult whole = train(options("whole", {{"workspace", "8KiB"}}));
  EXPECT_EQ(cap_of(resume("parts")), 8192);
  EXPECT_EQ(train(resume("parts")).loss, whole.loss);
  EXPECT_EQ(read_file(out("whole") / "model.safetensors"),
            read_file(out("parts") / "model.safetensors"));
  // A folder of before this was kept goes on by the sheet.
  json old = json::parse(read_file(out("sheet") / "run.json"));
  old["options"].erase("workspace");
  write_file_atomically(out("sheet") / "run.json", old.dump());
  train(options("old", {{"stop_after", 3}}));
  write_file_atomically(out("old") / "run.json", old.dump());
  EXPECT_EQ(cap_of(resume("old")), 64 << 20);
  for (const char* wrong : {"0", "-1", "much", "64Mi"}) {
    EXPECT_NE(error_of(options("wrong", {{"workspace", wrong}})).find("--workspace: wanted a size"),
              std::string::npos)
        << wrong;
  }
  EXPECT_FALSE(fs::exists(out("wrong")));
}

TEST_F(TrainFolder, ARunThatEndedCanGoOnLonger) {
  train(options("run"));
  EXPECT_EQ(train(resume("run", {{"steps", 9}})).step, 9);
}

TEST_F(TrainFolder, InterruptSavesAndStops) {
  {
    Trainer trainer(resolve_config({}, options("run")));
    EXPECT_NE(error_of(options("run", {{"overwrite", true}})).find("another run is writing"),
              std::string::npos);
    const TrainResult result = trainer.train(std::atomic<bool>(true));
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(result.step, 0);
  }
  EXPECT_EQ(train(resume("run")).step, 7);
}

TEST_F(TrainFolder, AnotherRunIsNotOverwrittenUnasked) {
  train(options("run"));
  const std::string before = read_file(out("run") / "model.safetensors");
  EXPECT_NE(error_of(options("run")).find("already holds a run, at step 7"), std::string::npos);
  EXPECT_EQ(read_file(out("run") / "model.safetensors"), before);
  EXPECT_EQ(train(options("run", {{"overwrite", true}})).step, 7);
}

TEST_F(TrainFolder, RefusesDamagedSaves) {
  train(options("run"));
  const fs::path model = out("run") / "model.safetensors";
  const std::string whole = read_file(model);
  for (const size_t keep : {size_t{0}, size_t{7}, size_t{300}, whole.size() - 1}) {
    write_file_atomically(model, std::string_view(whole).substr(0, keep));
    EXPECT_NE(error_of(resume("run", {{"steps", 9}})).find("model.safetensors"), std::string::npos);
  }
  std::string flipped = whole;
  flipped[whole.size() - 100] ^= 0x40;
  write_file_atomically(model, flipped);
  EXPECT_NE(error_of(resume("run", {{"steps", 9}})).find("damaged"), std::string::npos);
  write_file_atomically(model, whole);
  write_file_atomically(out("run") / "run.json", "{");
  EXPECT_NE(error_of(resume("run")).find("run.json"), std::string::npos);
}

TEST_F(TrainFolder, RefusesTheSaveOfAnotherModel) {
  train(options("run"));
  const std::string wide = error_of(resume("run", {{"steps", 9}, {"set", {{"hidden", 64}}}}));
  EXPECT_NE(wide.find("save of another model"), std::string::npos) << wide;
  const std::string other =
      error_of(resume("run", {{"steps", 9}, {"model", "llama-tiny"}, {"set", json::object()}}));
  EXPECT_NE(other, "no error");
  // The same shapes, computed otherwise.
  const std::string heads = error_of(resume("run", {{"steps", 9}, {"set", {{"heads", 4}}}}));
  EXPECT_NE(heads.find("save of another model"), std::string::npos) << heads;
  EXPECT_NE(error_of(resume("nowhere")).find("no run here to resume"), std::string::npos);
}

// A run whose text changes by one letter, and back.
class OtherData : public TrainFolder {
 protected:
  void expect_change_is_noticed() {
    std::string text = read_file(data());
    text[5] = 'z';
    write_file_atomically(data(), text);
    EXPECT_NE(error_of(resume("run")).find("has changed"), std::string::npos);
    text[5] = 'a';
    write_file_atomically(data(), text);
  }
};

TEST_F(OtherData, IsNoticed) {
  train(options("run", {{"stop_after", 3}}));
  expect_change_is_noticed();
  EXPECT_EQ(train(resume("run", {{"data", data().string()}})).step, 7);
}

// The hash of the text was another one before xxHash.
TEST_F(OtherData, IsKnownByTheHashOfAnEarlierVersion) {
  train(options("run", {{"stop_after", 3}}));
  json about = json::parse(read_file(out("run") / "run.json"));
  EXPECT_EQ(about["data"], hash_text(hash_of(read_file(data()))));
  about["data"] = fmt::format("{:016x}", stable_hash(read_file(data())));
  write_file_atomically(out("run") / "run.json", about.dump());
  expect_change_is_noticed();
  EXPECT_EQ(train(resume("run")).step, 7);
}

TEST_F(TrainFolder, OverwritingLeavesNoOldWeightsBehind) {
  train(options("run"));
  { Trainer begun(resolve_config({}, options("run", {{"overwrite", true}, {"seed", 9}}))); }
  EXPECT_NE(error_of(resume("run")).find("no save here"), std::string::npos);
}

// A loss that blows up leaves a save of numbers.
TEST_F(TrainFolder, DivergenceIsNoticedAndNotSaved) {
  const json wild = {{"optimizer", "sgd"}, {"lr", 1000.0},  {"clip", 0.0}, {"steps", 60},
                     {"save_every", 1},    {"min_lr", 0.0}, {"warmup", 0}};
  const std::string message = error_of(options("wild", wild));
  EXPECT_NE(message.find("no longer"), std::string::npos) << message;
  const SafetensorsFile saved(out("wild") / "model.safetensors");
  for (const SafetensorView& t : saved.tensors()) {
    for (int64_t i = 0; i < t.size.count / 4; ++i) {
      float number;
      std::memcpy(&number, static_cast<const char*>(t.data) + 4 * i, 4);
      ASSERT_TRUE(std::isfinite(number)) << t.name;
    }
  }
}

// Every number that an update takes, at both ends of its range: the save holds numbers, or the run
// says that it lost them.
TEST_F(TrainFolder, SettingsAtTheirEndsLeaveNumbers) {
  const std::set<std::string_view> of_updates = {
      "lr", "min_lr", "beta1", "beta2", "eps", "momentum", "weight_decay", "clip", "cooldown"};
  size_t seen = 0;
  for (const OptionSpec& option : train_options()) {
    if (!of_updates.count(option.name)) continue;
    ++seen;
    const std::string& name = option.name;
    for (const double end : {std::max(option.least, option.traits.least_to_train), option.most}) {
      json more = {{name, end}, {"steps", 3}, {"overwrite", true}};
      more["optimizer"] = name == "momentum" ? "momentum" : "adamw";
      if (name == "min_lr") more["lr"] = std::max(end, 1e-3);
      const std::string said = error_of(options("run", more));
      EXPECT_TRUE(said == "no error" || said.find("no longer") != std::string::npos)
          << name << "=" << end << ": " << said;
      if (!fs::exists(out("run") / "model.safetensors")) continue;
      const SavedModel saved{SavePaths(out("run"))};
      for (const SafetensorView& t : saved.file().tensors()) {
        for (const float number : saved.floats(t.name)) {
          ASSERT_TRUE(std::isfinite(number)) << name << "=" << end << ": " << t.name;
        }
      }
    }
  }
  EXPECT_EQ(seen, of_updates.size());
}

TEST_F(TrainFolder, BadInputIsNamedBeforeAnythingIsWritten) {
  const auto refused = [&](const json& more, const std::string& part) {
    const std::string message = error_of(options("refused", more));
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(out("refused"))) << message;
  };
  refused({{"data", (folder_ / "absent").string()}}, "absent: there is no such file");
  write_file_atomically(folder_ / "empty", "");
  refused({{"data", (folder_ / "empty").string()}}, "empty");
  write_file_atomically(folder_ / "binary", std::string("ab\0\xff\xfe", 5));
  refused({{"data", (folder_ / "binary").string()}}, "--tokenizer byte");
  refused({{"context", 100000}}, "context of 100000");
  refused({{"model", "chra"}}, "char");
  refused({{"set", {{"heads", 5}}}}, "gpt2.scheme:");
}

}  // namespace
}  // namespace adjoint

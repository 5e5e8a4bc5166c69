// Fine-tuning: from a base, with a stack that adds to its linear maps, and back to a plain model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "data/safetensors.h"
#include "device/parallel.h"
#include "train/generate.h"
#include "train/merge.h"
#include "train/merged_by_hand.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class Adapters : public TrainFolder {
 protected:
  Tensors tensors(const std::string& name) const {
    const SafetensorsFile file(out(name) / "model.safetensors");
    Tensors all;
    for (const SafetensorView& t : file.tensors()) {
      EXPECT_TRUE(t.dtype == "F32" || t.dtype == "I8" || t.dtype == "U8");
      if (t.dtype != "F32") continue;
      std::vector<float>& numbers = all[t.name];
      numbers.resize(t.size.count / 4);
      std::memcpy(numbers.data(), t.data, t.size.count);
    }
    return all;
  }
  std::string written(const std::string& name, const std::string& text) const {
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  std::string greedy(const std::string& name) const {
    return Generator(out(name), {.threads = num_threads()})
        .generate("the cat", {.tokens = 40, .temperature = 0}, nullptr);
  }
  std::string merge_error(const std::string& run, const std::string& to) const {
    try {
      merge_run(out(run), out(to));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  void expect_refused(const json& flags, const std::string& part) const {
    const std::string said = error_of(flags);
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
    EXPECT_FALSE(fs::exists(flags["out"].get<std::string>())) << said;
  }
};

TEST_F(Adapters, ARunFromABaseBeginsAsTheBase) {
  const TrainResult base = train(options("base"));
  // No step is taken: what is saved is what it began with.
  Trainer trainer(resolve_config({}, tuned("more", "")));
  EXPECT_EQ(trainer.first_step(), 0);
  EXPECT_EQ(trainer.evaluate(std::atomic<bool>(false)), base.val_loss);
  trainer.train(std::atomic<bool>(true));
  EXPECT_EQ(tensors("more"), tensors("base"));
}

TEST_F(Adapters, ABaseIsFrozenAndItsAdaptersStartFresh) {
  train(options("base"));
  train(tuned("lora", "lora(rank=2)"));
  const Tensors base = tensors("base"), lora = tensors("lora");
  EXPECT_EQ(lora.size(), base.size() + 2 * 8) << "two matrices beside each of 2 x 4 linear maps";
  for (const auto& [name, numbers] : base) EXPECT_EQ(lora.at(name), numbers) << name;
  // It goes on like any run, and needs the base no longer.
  fs::remove_all(out("base"));
  EXPECT_EQ(train(resume("lora", {{"steps", 6}})).step, 6);
}

TEST_F(Adapters, ResumingWithAdaptersContinuesBitForBit) {
  train(options("base"));
  train(tuned("whole", "lora(rank=2) | checkpoint(block)"));
  train(tuned("parts", "lora(rank=2) | checkpoint(block)", {{"stop_after", 2}}));
  train(resume("parts"));
  EXPECT_EQ(tensors("whole"), tensors("parts"));
}

TEST_F(Adapters, ABaseThatDoesNotFitIsRefusedWithTheDifference) {
  train(options("base"));
  const auto set = [&](const char* axis, int size) {
    return tuned("never", "", {{"set", {{axis, size}}}});
  };
  expect_refused(set("hidden", 64), "this model's is F32[");
  expect_refused(set("layers", 3), "it has no 'block[2].");
  expect_refused(set("layers", 1), "it has 'block[1].");
  expect_refused(set("heads", 4), "the same shapes, computed otherwise");
  expect_refused(tuned("never", "", {{"context", 8}}), "its 'wpe.weight' is F32[16, 32]");
  expect_refused(tuned("never", "", {{"model", "llama-tiny"}, {"set", json::object()}}),
                 "save of another model");
  expect_refused(tuned("never", "", {{"tokenizer", "byte"}}),
                 "has the tokenizer 'char', not 'byte'");
  expect_refused(tuned("never", "", {{"init", out("absent").string()}}),
                 "no run here to start from");
  write_file_atomically(folder_ / "other.txt", std::string(2000, 'x') + "QQQ");
  expect_refused(tuned("never", "", {{"data", (folder_ / "other.txt").string()}}), "other.txt");
  // A base with adapters of its own is not what the plain model has.
  train(tuned("lora", "lora(rank=2)"));
  expect_refused(tuned("never", "lora(rank=2)", {{"init", out("lora").string()}}), "lora_a.weight");
  const std::string both = error_of(resume("lora", {{"init", out("base").string()}, {"steps", 9}}));
  EXPECT_NE(both.find("--resume and --init contradict"), std::string::npos) << both;
}

TEST_F(Adapters, MergedMatricesAreWPlusScaledBA) {
  train(options("base"));
  train(tuned("lora", "lora(rank=2, alpha=3) | checkpoint(block)"));
  const MergeResult result = merge_run(out("lora"), out("merged"));
  EXPECT_EQ(result.step, 5);
  EXPECT_EQ(result.merged, (std::map<std::string, int64_t>{
                               {"attention_in", 2}, {"attention_out", 2}, {"feed_forward", 4}}));
  const Tensors lora = tensors("lora"), merged = tensors("merged");
  int changed = 0;
  for (const auto& [name, w] : lora) {
    if (name.find(".lora_") != std::string::npos) continue;
    const std::vector<float> wanted = merged_by_hand(lora, name);
    changed += wanted != w;
    ASSERT_TRUE(merged.count(name)) << name;
    EXPECT_EQ(merged.at(name), wanted) << name;
  }
  EXPECT_EQ(changed, 8);
  EXPECT_EQ(merged.size(), tensors("base").size());
  EXPECT_EQ(greedy("merged"), greedy("lora"));
  EXPECT_NE(greedy("merged"), greedy("base")) << "five steps must have taught it something";
}

TEST_F(Adapters, AMergedFolderIsABaseAndNoRunToGoOnWith) {
  train(options("base"));
  train(tuned("lora", "lora(rank=2)"));
  merge_run(out("lora"), out("merged"));
  const std::string said = error_of(resume("merged", {{"steps", 9}}));
  EXPECT_NE(said.find("--init"), std::string::npos) << said;
  EXPECT_EQ(train(tuned("again", "lora", {{"init", out("merged").string()}})).step, 5);
  EXPECT_FALSE(fs::exists(out("merged") / "optimizer.safetensors"));
}

// Anything that is added to a linear map, if it is linear in the same operand.
TEST_F(Adapters, AFunctorOfTheUsersIsMergedToo) {
  train(options("base"));
  const std::string own = written("beside.functor",
                                  "functor beside:\n"
                                  "  law approximating\n"
                                  "  object parameter -> frozen unless made here\n"
                                  "  morphism y = linear(x, W) where feed_forward\n"
                                  "    -> 1.5*y + linear(dropout(x, 0.1), width(y), name=side,\n"
                                  "                      init=normal(0.01)) + 0.25\n");
  train(tuned("own", own));
  EXPECT_EQ(merge_run(out("own"), out("merged")).merged,
            (std::map<std::string, int64_t>{{"feed_forward", 4}}));
  const Tensors before = tensors("own"), after = tensors("merged");
  for (const char* call : {"block[0].up", "block[1].down"}) {
    const std::string path(call);
    const auto &b = before.at(path + ".bias"), &side = before.at(path + ".side.bias");
    for (size_t i = 0; i < b.size(); ++i) {
      EXPECT_EQ(after.at(path + ".bias")[i],
                static_cast<float>(1.5 * b[i] + double{side[i]} + 0.25));
    }
  }
  EXPECT_EQ(greedy("merged"), greedy("own"));
}

// Rules that make the use again, with another matrix or another operand.
TEST_F(Adapters, AMapThatIsMadeAgainIsMergedToo) {
  train(options("base"));
  for (const std::string stack : {"dora(rank=2)", "ia3", "sparse24"}) {
    const std::string run = stack.substr(0, stack.find('('));
    train(tuned(run, stack));
    merge_run(out(run), out(run + "_merged"));
    EXPECT_EQ(tensors(run + "_merged").size(), tensors("base").size());
    EXPECT_EQ(greedy(run + "_merged"), greedy(run)) << run;
    EXPECT_NE(tensors(run + "_merged"), tensors("base")) << run;
  }
  train(tuned("prompt", "prompt(n=3)"));
  const std::string said = merge_error("prompt", "prompt_merged");
  EXPECT_NE(said.find("its stack 'prompt(n=3)' rewrites no linear map"), std::string::npos) << said;
}

// Centres are trained, and what they are the centres of stays; such a base is merged, too.
TEST_F(Adapters, ABookOfCentresIsTrainedAndMerged) {
  train(options("base"));
  const auto bytes = [&](const std::string& name) {
    const SafetensorsFile file(out(name) / "model.safetensors");
    std::map<std::string, std::string> all;
    for (const SafetensorView& t : file.tensors()) {
      all[t.name] = std::string(static_cast<const char*>(t.data), t.size.count);
    }
    return all;
  };
  // No step is taken: what it begins with.
  Trainer(resolve_config({}, tuned("begun", "codebook(k=8)"))).train(std::atomic<bool>(true));
  train(tuned("book", "codebook(k=8)"));
  const auto begun = bytes("begun"), book = bytes("book");
  int kept = 0, moved = 0;
  for (const auto& [name, before] : begun) {
    if (name.ends_with(":indices")) kept += book.at(name) == before;
    if (name.ends_with(":centres")) moved += book.at(name) != before;
  }
  EXPECT_EQ(kept, 8);
  EXPECT_EQ(moved, 8);
  // Every number is near its centre: k-means of eight leaves a seventh of the numbers' size.
  const Tensors base = tensors("base");
  const Tensors centres = tensors("begun");
  const std::string w = "block[0].up.weight";
  double lost = 0, size = 0;
  for (size_t i = 0; i < base.at(w).size(); ++i) {
    const auto index = static_cast<uint8_t>(begun.at(w + ":indices")[i]);
    const double change = base.at(w)[i] - centres.at(w + ":centres")[i / 32 * 8 + index];
    lost += change * change, size += base.at(w)[i] * base.at(w)[i];
  }
  EXPECT_GT(lost, 0);
  EXPECT_LT(std::sqrt(lost / size), 0.25);
  train(tuned("both", "codebook(k=8) | lora(rank=2)"));
  merge_run(out("both"), out("merged"));
  EXPECT_EQ(greedy("merged"), greedy("both"));
  EXPECT_NE(merge_error("book", "never").find("nothing to merge"), std::string::npos);
}

TEST_F(Adapters, AQuantizedBaseIsMergedAsWhatItsCodesStandFor) {
  train(options("base"));
  train(tuned("codes", "quantize(int8, per=channel) | lora(rank=2)"));
  merge_run(out("codes"), out("merged"));
  EXPECT_EQ(tensors("merged").size(), tensors("base").size());
  EXPECT_EQ(greedy("merged"), greedy("codes"));
}

TEST_F(Adapters, WhatCannotBeMergedIsRefused) {
  train(options("base"));
  const auto refused = [&](const std::string& run, const std::string& part) {
    const std::string said = merge_error(run, "never");
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
    EXPECT_FALSE(fs::exists(out("never"))) << said;
  };
  refused("absent", "there is no such folder");
  refused("base", "nothing to merge: this run has no stack");
  train(tuned("frozen", "freeze(norm) | checkpoint(block)"));
  refused("frozen", "'checkpoint(every=block) | freeze(on=norm)' rewrites no linear map");
  const auto rule = [&](const std::string& name, const std::string& line) {
    const std::string own = written(name + ".functor", "functor " + name +
                                                           ":\n  law approximating\n"
                                                           "  morphism " +
                                                           line + "\n");
    train(tuned(name, own));
  };
  rule("bent", "y = linear(x, W) where inside chain -> y + gelu(linear(x, width(y), name=g))");
  refused("bent", "'block[0].qkv' cannot be merged: what the stack made of it is not linear");
  rule("tied", "y = linear(x, W) where readout -> y + linear(x, width(y), bias=no, name=r)");
  refused("tied", "its 'wte.weight' is tied: 'wte' reads it too");
  rule("shift", "y = linear(x, W) where readout -> y + 1");
  refused("shift", "adds a constant");
  rule("norms", "y = layer_norm(x, g) -> y + linear(x, width(y), name=beside)");
  refused("norms", "");
  train(tuned("lora", "lora(rank=2)"));
  const std::string there = merge_error("lora", "base");
  EXPECT_NE(there.find("already holds a run, at step 7"), std::string::npos) << there;
}

// The run keeps the text of a functor that came from a file.
TEST_F(Adapters, AUsersFunctorIsKeptWithTheRun) {
  const std::string text =
      "functor mine(k = 2):\n"
      "  law approximating\n"
      "  object parameter -> frozen unless made here\n"
      "  morphism y = linear(x, W) where attention\n"
      "    -> y + linear(linear(x, k, bias=no, name=a), width(y), bias=no, name=b, init=zeros)\n";
  train(options("base"));
  const std::string own = written("mine.functor", text);
  const std::string stack = own + "(k=3) | checkpoint(block)";
  train(tuned("whole", stack));
  train(tuned("run", stack, {{"stop_after", 2}}));
  fs::remove(own);
  EXPECT_EQ(read_file(out("run") / "functors/mine.functor"), text);
  // Another place, another program, no file of the user's.
  fs::rename(out("run"), out("moved"));
  EXPECT_EQ(train(resume("moved")).step, 5);
  EXPECT_EQ(tensors("moved"), tensors("whole"));
  EXPECT_EQ(greedy("moved"), greedy("whole"));
  merge_run(out("moved"), out("merged"));
  EXPECT_EQ(greedy("merged"), greedy("moved"));
  EXPECT_FALSE(fs::exists(out("merged") / "functors"));
  const json saved = json::parse(read_file(out("moved") / "run.json"));
  EXPECT_EQ(saved["options"]["stack"], "functors/mine.functor(k=3) | checkpoint(block)");
}

TEST_F(Adapters, TwoFunctorsOfOneFileNameAreTwoFiles) {
  const auto mine = [](const std::string& name, const std::string& on) {
    return "functor " + name + ":\n  law approximating\n  object parameter of " + on +
           " -> frozen\n";
  };
  fs::create_directories(folder_ / "a");
  fs::create_directories(folder_ / "b");
  const std::string a = written("a/mine.functor", mine("first", "norm")),
                    b = written("b/mine.functor", mine("second", "attention"));
  train(options("run", {{"stack", a + " | " + b}, {"stop_after", 2}}));
  fs::remove_all(folder_ / "a");
  fs::remove_all(folder_ / "b");
  EXPECT_EQ(train(resume("run")).step, 7);
  // Begun anew without them, the folder has them no longer.
  train(options("run", {{"overwrite", true}}));
  EXPECT_FALSE(fs::exists(out("run") / "functors"));
}

}  // namespace
}  // namespace adjoint

// Frozen parameters in 16 bits: trained beside, saved, read under other stacks, and merged.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/half.h"
#include "data/safetensors.h"
#include "device/parallel.h"
#include "train/generate.h"
#include "train/merge.h"
#include "train/merged_by_hand.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

float bf16(float x) { return static_cast<float>(BFloat16(x)); }
float f16(float x) { return static_cast<float>(Float16(x)); }

bool is_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

class Frozen : public TrainFolder {
 protected:
  Tensors tensors(const std::string& run) const {
    const SavedModel saved{SavePaths(out(run))};
    Tensors all;
    for (const SafetensorView& t : saved.file().tensors()) all[t.name] = saved.floats(t.name);
    return all;
  }
  std::map<std::string, std::string> dtypes(const std::string& run) const {
    const SavedModel saved{SavePaths(out(run))};
    std::map<std::string, std::string> all;
    for (const SafetensorView& t : saved.file().tensors()) all[t.name] = t.dtype;
    return all;
  }
  void expect_held_in(const std::string& run, const std::string& dtype) const {
    for (const auto& [name, held] : dtypes(run)) {
      EXPECT_EQ(held, is_adapter(name) ? "F32" : dtype) << run << ": " << name;
    }
  }
  void expect_held_in_float32(const std::string& run) const {
    for (const auto& [name, held] : dtypes(run)) EXPECT_EQ(held, "F32") << run << ": " << name;
  }
  // The folder of a run with every number changed, held in float32.
  void copy_base(const std::string& from, const std::string& to,
                 const std::function<float(float)>& changed) const {
    fs::copy(out(from), out(to), fs::copy_options::recursive);
    const SavedModel saved{SavePaths(out(from))};
    Tensors numbers = tensors(from);
    std::vector<SafetensorView> views;
    for (const SafetensorView& t : saved.file().tensors()) {
      std::vector<float>& n = numbers[t.name];
      for (float& x : n) x = changed(x);
      views.push_back(t);
      views.back().data = n.data();
    }
    save_model(SavePaths(out(to)), views, saved.step(), saved.file().metadata().at("model"));
  }
  std::string holding(const std::string& dtype) const {
    const fs::path file = folder_ / ("hold_" + dtype + ".functor");
    write_file_atomically(file, "functor hold_" + dtype +
                                    ":\n  law approximating\n  object frozen -> " + dtype + "\n");
    return file.string();
  }
  // Loss, norm and evaluation of every step, as they were printed.
  std::vector<json> curve(const std::string& run) const {
    std::ifstream in(out(run) / "metrics.jsonl");
    std::vector<json> all;
    for (std::string line; std::getline(in, line);) {
      json entry = json::parse(line);
      entry.erase("tokens_per_s");
      entry.erase("stall_s");
      entry.erase("memory_bytes");
      all.push_back(std::move(entry));
    }
    return all;
  }
};

// The same bits as a run whose frozen parameters were rounded beforehand and are held in float32:
// products read the same 16 bits either way, and widening to float32 is exact.
TEST_F(Frozen, TrainsLikeARunWhoseBaseWasRounded) {
  train(options("base"));
  // Llama's projections are joined: a frozen matrix is then part of another one.
  train(options("llama", {{"model", "llama-tiny"}, {"set", json::object()}, {"steps", 2}}));
  copy_base("base", "base_bf16", bf16);
  copy_base("base", "base_f16", f16);
  copy_base("llama", "llama_bf16", bf16);
  struct Case {
    std::string base, rounded, stack, holding;
  };
  const std::string own = " | " + this->holding("bf16"), own_16 = " | " + this->holding("f16");
  for (const Case& c :
       {Case{"base", "base_bf16", "lora(rank=2)", own},
        Case{"base", "base_f16", "lora(rank=2)", own_16},
        Case{"base", "base_bf16", "lora(rank=2) | checkpoint(block) | accumulate(2)", own},
        Case{"llama", "llama_bf16", "lora(rank=2)", own},
        Case{"llama", "llama_bf16", "lora(rank=2) | bf16", own},
        Case{"base", "base_bf16", "lora(rank=2) | bf16", own}}) {
    train(tuned("held", c.stack + c.holding, {{"init", out(c.base).string()}}));
    train(tuned("plain", c.stack, {{"init", out(c.rounded).string()}}));
    EXPECT_EQ(curve("held"), curve("plain")) << c.base << ": " << c.stack;
    EXPECT_TRUE(tensors("held") == tensors("plain")) << c.base << ": " << c.stack;
    EXPECT_TRUE(read_file(out("held") / "optimizer.safetensors") ==
                read_file(out("plain") / "optimizer.safetensors"))
        << c.base << ": " << c.stack;
    for (const char* run : {"held", "plain"}) fs::remove_all(out(run));
  }
}

// By default what is read in 16 bits alone is held so, with the bits of a run that holds all of it
// in float32 and casts it in every step: losses, evaluations, adapters and their moments, and what
// is generated and merged. A norm reads float32, and its gain stays.
TEST_F(Frozen, WhatIsReadInSixteenBitsIsHeldSo) {
  train(options("base"));
  train(options("llama", {{"model", "llama-tiny"}, {"set", json::object()}, {"steps", 2}}));
  struct Case {
    std::string base, rest;
  };
  for (const Case& c : {Case{"base", "lora(rank=2)"}, Case{"llama", "lora(rank=2) | accumulate(2)"},
                        Case{"base", "lora(rank=2) | checkpoint(block)"}}) {
    const json init = {{"init", out(c.base).string()}};
    train(tuned("held", c.rest + " | bf16", init));
    train(tuned("plain", c.rest + " | bf16(frozen=f32)", init));
    EXPECT_EQ(curve("held"), curve("plain")) << c.rest;
    EXPECT_TRUE(read_file(out("held") / "optimizer.safetensors") ==
                read_file(out("plain") / "optimizer.safetensors"))
        << c.rest;
    const Tensors held = tensors("held"), plain = tensors("plain");
    int narrow = 0;
    for (const auto& [name, dtype] : dtypes("held")) {
      const bool is_wide = is_adapter(name) || name.find("norm") != std::string::npos;
      if (is_wide) {
        EXPECT_EQ(dtype, "F32") << name;
      }
      narrow += dtype == "BF16";
      for (size_t i = 0; i < held.at(name).size(); ++i) {
        const float wanted = dtype == "BF16" ? bf16(plain.at(name)[i]) : plain.at(name)[i];
        ASSERT_EQ(held.at(name)[i], wanted) << name;
      }
    }
    EXPECT_GE(narrow, 9) << "two tables or more, and the matrices of two blocks";
    expect_held_in_float32("plain");
    // Other readers see the same bits.
    const auto text = [&](const char* run) {
      return Generator(out(run), {.threads = num_threads()})
          .generate("the cat", {.tokens = 12, .temperature = 0}, nullptr);
    };
    EXPECT_EQ(text("held"), text("plain")) << c.rest;
    for (const char* run : {"held", "plain"}) fs::remove_all(out(run));
  }
}

// The switch of bf16 says the same as a functor of one's own, of what is frozen alone.
TEST_F(Frozen, TheSwitchOfBf16HoldsWhatIsFrozen) {
  train(options("run", {{"stack", "freeze(attention) | bf16(frozen=bf16)"}}));
  int narrow = 0;
  for (const auto& [name, dtype] : dtypes("run")) {
    const bool attention =
        name.find(".qkv.") != std::string::npos || name.find(".proj.") != std::string::npos;
    EXPECT_EQ(dtype, attention ? "BF16" : "F32") << name;
    narrow += attention;
  }
  EXPECT_EQ(narrow, 8) << "two blocks of two matrices with their biases";
  train(options("other", {{"stack", "bf16(frozen=bf16)"}}));
  for (const auto& [name, dtype] : dtypes("other")) EXPECT_EQ(dtype, "F32") << name;
}

TEST_F(Frozen, GoesOnBitForBit) {
  train(options("base"));
  const std::string stack = "lora(rank=2) | bf16(frozen=bf16)";
  train(tuned("whole", stack));
  train(tuned("parts", stack, {{"stop_after", 2}}));
  expect_held_in("parts", "BF16");
  train(resume("parts"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(read_file(out("whole") / file) == read_file(out("parts") / file)) << file;
  }
  const Tensors base = tensors("base"), held = tensors("whole");
  for (const auto& [name, numbers] : base) {
    for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(held.at(name)[i], bf16(numbers[i]));
  }
}

// A run's stack says how it holds what it reads: wider is exact, narrower is rounded once.
TEST_F(Frozen, OtherStacksReadWhatTheyHold) {
  train(options("base"));
  const std::string held = "lora(rank=2) | bf16(frozen=bf16)",
                    plain = "lora(rank=2) | bf16(frozen=f32)";
  train(tuned("run", held, {{"stop_after", 2}}));
  const Tensors narrow = tensors("run");
  train(resume("run", {{"stack", plain}, {"stop_after", 3}}));
  expect_held_in("run", "F32");
  for (const auto& [name, numbers] : tensors("run")) {
    if (is_adapter(name)) continue;
    EXPECT_TRUE(numbers == narrow.at(name)) << name;
  }
  train(resume("run", {{"stack", held}}));
  expect_held_in("run", "BF16");
  for (const auto& [name, numbers] : tensors("run")) {
    if (is_adapter(name)) continue;
    EXPECT_TRUE(numbers == narrow.at(name)) << name;
  }
  // As a base: its float32 copy is what the 16 bits are.
  train(options("half", {{"stack", "freeze(attention) | bf16(frozen=bf16)"}}));
  Trainer begun(resolve_config({}, tuned("from_half", "", {{"init", out("half").string()}})));
  begun.train(std::atomic<bool>(true));
  EXPECT_TRUE(tensors("from_half") == tensors("half"));
}

TEST_F(Frozen, BeginsAsTheFloat32RunRounded) {
  const auto begun = [&](const std::string& name, const std::string& stack) {
    Trainer(resolve_config({}, options(name, {{"stack", stack}}))).train(std::atomic<bool>(true));
    return tensors(name);
  };
  const Tensors plain = begun("plain", "lora(rank=2) | bf16(frozen=f32)"),
                held = begun("held", "lora(rank=2) | bf16(frozen=bf16)");
  ASSERT_EQ(plain.size(), held.size());
  for (const auto& [name, numbers] : plain) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(held.at(name)[i], is_adapter(name) ? numbers[i] : bf16(numbers[i])) << name;
    }
  }
}

// The adapter is added in float64 to what the 16 bits are, and rounded once, to float32: in 16 bits
// most of what was learnt would be lost.
TEST_F(Frozen, MergesToFloat32) {
  train(options("base"));
  train(tuned("lora", "lora(rank=2, alpha=3) | bf16(frozen=bf16)"));
  merge_run(out("lora"), out("merged"));
  const Tensors lora = tensors("lora"), merged = tensors("merged");
  int changed = 0;
  for (const auto& [name, dtype] : dtypes("merged")) EXPECT_EQ(dtype, "F32") << name;
  for (const auto& [name, w] : lora) {
    if (is_adapter(name)) continue;
    const std::vector<float> wanted = merged_by_hand(lora, name);
    changed += wanted != w;
    EXPECT_TRUE(merged.at(name) == wanted) << name;
  }
  EXPECT_EQ(changed, 8);
  const auto text = [&](const char* run) {
    return Generator(out(run), {.threads = num_threads()})
        .generate("the cat", {.tokens = 20, .temperature = 0}, nullptr);
  };
  EXPECT_EQ(text("merged").size(), text("lora").size());
}

TEST_F(Frozen, WhatSixteenBitsCannotHoldIsRefused) {
  train(options("base"));
  copy_base("base", "large", [](float x) { return x * 1e9f; });
  const std::string stack = "lora(rank=2) | " + holding("f16");
  const std::string said = error_of(tuned("never", stack, {{"init", out("large").string()}}));
  EXPECT_NE(said.find("too large for f16"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(out("never")));
  // The same when a run goes on.
  train(tuned("run", "lora(rank=2)", {{"stop_after", 2}}));
  const SavedModel saved{SavePaths(out("run"))};
  Tensors numbers = tensors("run");
  std::vector<SafetensorView> views;
  for (const SafetensorView& t : saved.file().tensors()) {
    if (t.name == "wte.weight") numbers[t.name][3] = 1e9f;
    views.push_back(t);
    views.back().data = numbers[t.name].data();
  }
  const std::string optimizer = read_file(out("run") / "optimizer.safetensors");
  save_model(SavePaths(out("run")), views, saved.step(), saved.file().metadata().at("model"));
  write_file_atomically(out("run") / "optimizer.safetensors", optimizer);
  const std::string on = error_of(resume("run", {{"stack", stack}}));
  EXPECT_NE(on.find("'wte.weight' has values that are too large for f16"), std::string::npos) << on;
}

TEST_F(Frozen, WhatIsNoNumberIsNotSaved) {
  train(options("base"));
  Trainer trainer(resolve_config({}, tuned("run", "lora(rank=2) | bf16(frozen=bf16)")));
  auto& run = const_cast<adjoint::Run&>(trainer.run());
  for (const Value v : run.scheme().inputs) {
    if (to_string(run.scheme()[v].source) != "wpe.weight") continue;
    EXPECT_EQ(run.scheme()[v].type.dtype, Dtype::kBF16);
    std::vector<BFloat16> bad(run.scheme()[v].type.num_elements(), BFloat16(INFINITY));
    run.write(v, bad.data());
  }
  std::string why = "no error";
  try {
    trainer.train(std::atomic<bool>(true));
  } catch (const Error& e) {
    why = e.what();
  }
  EXPECT_NE(why.find("'wpe.weight' holds values that are no longer numbers"), std::string::npos)
      << why;
  EXPECT_FALSE(fs::exists(out("run") / "model.safetensors"));
}

}  // namespace
}  // namespace adjoint

// Folders of Hugging Face's format that convert writes, and adapters in PEFT's layout.
#include "train/convert.h"

#include "base/error_text.h"
#include "base/file.h"
#include "models/library.h"
#include "train/huggingface_folders.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

using nlohmann::json;

class Converted : public testing::TestWithParam<const char*> {
 protected:
  fs::path folder_ = family_folder(GetParam());
};

// What convert writes holds the same numbers, in one file or in several.
TEST_P(Converted, FolderGivesTheSameLogits) {
  const TempFolder folder;
  const ConvertResult one = convert(folder_, folder / "one", {});
  const ConvertResult many = convert(folder / "one", folder / "many", {.shard = Bytes{4000}});
  EXPECT_EQ(one.files, 1);
  EXPECT_GT(many.files, 2);
  EXPECT_EQ(one.size, many.size);
  const ReferenceFile reference(folder_);
  const std::vector<int32_t> tokens = reference.ids("tokens");
  const Numbers logits = logits_for(folder_, tokens, reference.batch());
  EXPECT_EQ(logits_for(folder / "one", tokens, reference.batch()), logits);
  EXPECT_EQ(logits_for(folder / "many", tokens, reference.batch()), logits);
}

INSTANTIATE_TEST_SUITE_P(All, Converted, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param); });

// Weights that are exact in bfloat16 are so in float32, and in float16 where they are small.
TEST(Convert, WritesTheDtypeThatIsAskedFor) {
  const TempFolder folder;
  convert(family_folder("gemma2"), folder / "wide", {.dtype = Dtype::kF32});
  convert(folder / "wide", folder / "again", {.dtype = Dtype::kBF16});
  const ModelFolder first(family_folder("gemma2")), wide(folder / "wide"), again(folder / "again");
  for (const std::string& name : first.names()) {
    EXPECT_EQ(wide.find(name)->dtype, "F32");
    const SafetensorView &a = *first.find(name), &b = *again.find(name);
    ASSERT_EQ(a.size, b.size);
    EXPECT_EQ(std::memcmp(a.data, b.data, a.size.count), 0) << name;
  }
  const SafetensorsFile file(family_folder("llama") / "model.safetensors");
  std::vector<SafetensorView> views = file.tensors();
  std::vector<float> norm(16, 1e6F);
  for (SafetensorView& view : views) {
    if (view.name != "model.norm.weight") continue;
    view.dtype = "F32";
    view.data = norm.data();
    view.size = {64};
  }
  fs::create_directories(folder / "large");
  fs::copy_file(family_folder("llama") / "config.json", folder / "large" / "config.json");
  AtomicFile out(folder / "large" / "model.safetensors");
  write_safetensors(out, views, {});
  out.commit();
  EXPECT_EQ(error_text([&] { convert(folder / "large", folder / "f16", {.dtype = Dtype::kF16}); }),
            "tensor 'model.norm.weight' has values that are too large for f16");
}

TEST(Convert, WritesOnlyToAnEmptyFolder) {
  const TempFolder folder;
  write_file_atomically(folder / "something", "");
  const std::string text = error_text([&] { convert(family_folder("llama"), folder / ".", {}); });
  EXPECT_NE(text.find("choose a folder that is new or empty"), std::string::npos) << text;
}

TEST(PeftAdapter, OfPeftIsMergedAsPeftUsesIt) {
  const TempFolder folder;
  convert(family_folder("llama"), folder / "merged",
          {.dtype = Dtype::kF32, .adapter = family_folder("llama_adapter").string()});
  const ReferenceFile reference(family_folder("llama_adapter"));
  const Numbers logits = logits_for(folder / "merged", reference.ids("tokens"), reference.batch());
  EXPECT_LE(distance(logits, reference.doubles("logits")), 2 * reference.said("float32_error"));
}

// What a folder holds in 16 bits is trained in 32, and written as it was.
TEST_F(RunOfFolder, KeepsTheDtypesOfItsFolder) {
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16}) {
    const fs::path narrow = folder_ / ("narrow_" + std::string(name(dtype)));
    convert(family_folder("llama"), narrow, {.dtype = dtype});
    for (const char* stack : {"", "lora(rank=4)"}) {
      json flags = options("llama", stack);
      flags["model"] = narrow.string();
      flags["overwrite"] = true;
      train(flags);
      const fs::path out = folder_ / "out";
      fs::remove_all(out);
      convert(folder_ / "run", out, {});
      const ModelFolder before(narrow), after(out);
      for (const std::string& tensor : before.names()) {
        EXPECT_EQ(after.find(tensor)->dtype, before.find(tensor)->dtype) << tensor << stack;
      }
      EXPECT_EQ(json::parse(read_file(out / "config.json")).at("torch_dtype"),
                json::parse(read_file(narrow / "config.json")).at("torch_dtype"));
    }
  }
}

// A run's model is another one than its folder's after a few steps, and goes on where it stopped.
TEST_F(RunOfFolder, IsConverted) {
  train(options("mistral", ""));
  convert(folder_ / "run", folder_ / "out", {.dtype = Dtype::kF32});
  const ReferenceFile reference(family_folder("mistral"));
  const std::vector<int32_t> tokens = reference.ids("tokens");
  const Numbers before = logits_for(family_folder("mistral"), tokens, 2);
  const Numbers after = logits_for(folder_ / "out", tokens, 2);
  EXPECT_GT(distance(before, after), 0.1);
  const SafetensorsFile saved(folder_ / "run" / "model.safetensors");
  const ModelFolder written(folder_ / "out");
  std::vector<float> ours(24 * 16), theirs(24 * 16);
  read_floats(*saved.find("block[1].gate.weight"), 0, ours);
  read_floats(*written.find("model.layers.1.mlp.gate_proj.weight"), 0, theirs);
  EXPECT_EQ(ours, theirs);
  // Fields that say nothing of the model go along.
  const json config = json::parse(read_file(folder_ / "out" / "config.json"));
  EXPECT_EQ(config.at("eos_token_id"), 2);
  EXPECT_EQ(config.at("sliding_window"), 7);
  EXPECT_EQ(config.at("torch_dtype"), "float32");
  json more = options("mistral", "");
  more["resume"] = true;
  more["steps"] = 5;
  train(more);
}

// A text in which a layer norm was deleted by hand: the other is layer_norm#1 now, which the format
// calls ln_1.
TEST_F(RunOfFolder, OfAChangedTextIsNotConverted) {
  std::string text;
  for (const LibraryText& model : library_texts()) {
    if (model.name.starts_with("gpt2")) text = model.text;
  }
  const auto change = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos);
    text.replace(at, from.size(), to);
  };
  change("preset gpt2:",
         "preset tiny: layers=2 hidden=16 heads=2 context=16 vocab=41\npreset gpt2:");
  const fs::path file = folder_ / "my.scheme";
  write_file_atomically(file, text);
  nlohmann::json flags = options("llama", "");
  flags["model"] = file.string() + ":tiny";
  train(flags);
  convert(folder_ / "run", folder_ / "whole", {});
  EXPECT_TRUE(fs::exists(folder_ / "whole" / "config.json"));
  change("linear(layer_norm(x, eps=eps), 3*hidden", "linear(x, 3*hidden");
  write_file_atomically(file, text);
  flags["out"] = (folder_ / "other").string();
  train(flags);
  const std::string why = error_text([&] { convert(folder_ / "other", folder_ / "less", {}); });
  EXPECT_NE(why.find("module \"block[{l}].layer_norm#2\" of its format huggingface names no call "
                     "of this text, so it is no GPT2LMHeadModel"),
            std::string::npos)
      << why;
  EXPECT_FALSE(fs::exists(folder_ / "less"));
}

// A run that begins with PEFT's adapter, and does not move, is what PEFT computes.
TEST_F(RunOfFolder, BeginsWithPeftsAdapter) {
  json flags = options("llama", "lora(rank=4, alpha=6)");
  flags["adapter"] = family_folder("llama_adapter").string();
  flags["lr"] = 0.0;
  train(flags);
  convert(folder_ / "run", folder_ / "merged", {.dtype = Dtype::kF32});
  const ReferenceFile reference(family_folder("llama_adapter"));
  const Numbers logits = logits_for(folder_ / "merged", reference.ids("tokens"), 2);
  EXPECT_LE(distance(logits, reference.doubles("logits")), 2 * reference.said("float32_error"));
  const auto refusal = [&](const std::string& stack) {
    flags["stack"] = stack;
    flags["out"] = (folder_ / "other").string();
    return error_text([&] { train(flags); });
  };
  EXPECT_TRUE(has(refusal("lora(rank=4, alpha=8)"),
                  "has rank 4 and scale 1.5, the stack's has rank 4 and scale 2"));
  EXPECT_TRUE(has(refusal("lora(rank=4, alpha=6, on=attention)"),
                  "mlp.down_proj.lora_A.weight' belongs to no linear map that is adapted here"));
  EXPECT_TRUE(has(refusal(""), "--adapter: the stack adds nothing to linear maps"));
}

// Merging what a run added gives what its adapters give when they are merged as PEFT's.
TEST_F(RunOfFolder, WritesAdaptersThatMergeToTheSame) {
  train(options("llama", "lora(rank=4, alpha=6)"));
  convert(folder_ / "run", folder_ / "merged", {.dtype = Dtype::kF32});
  convert(folder_ / "run", folder_ / "adapter", {.adapters_only = true});
  convert(family_folder("llama"), folder_ / "again",
          {.dtype = Dtype::kF32, .adapter = (folder_ / "adapter").string()});
  const json config = json::parse(read_file(folder_ / "adapter" / "adapter_config.json"));
  EXPECT_EQ(config.at("r"), 4);
  EXPECT_EQ(config.at("lora_alpha"), 6);
  const std::vector<std::string> targets = {"down_proj", "gate_proj", "k_proj", "o_proj",
                                            "q_proj",    "up_proj",   "v_proj"};
  EXPECT_EQ(config.at("target_modules"), targets);
  const std::vector<int32_t> tokens = ReferenceFile(family_folder("llama")).ids("tokens");
  const Numbers merged = logits_for(folder_ / "merged", tokens, 2);
  EXPECT_GT(distance(merged, logits_for(family_folder("llama"), tokens, 2)), 0.01);
  EXPECT_LT(relative_error(logits_for(folder_ / "again", tokens, 2), merged), 1e-6);
}

TEST(Convert, SaysHowAModelOfOnesOwnGetsAFormat) {
  const TempFolder folder;
  write_file_atomically(folder / "own.scheme",
                        "axes hidden=8 context=4 vocab=11\nmodel tokens[batch, seq]:\n"
                        "  x = linear(embed(tokens, vocab, name=wte), vocab, name=out)\n");
  const BoundModel model(find_model((folder / "own.scheme").string()), {.batch = 1});
  EXPECT_TRUE(has(error_text([&] { model.format(); }),
                  "this model says nothing of the format huggingface; give its text a `format` "
                  "section (adjoint help formats)"));
}

}  // namespace
}  // namespace adjoint

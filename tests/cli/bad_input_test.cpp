// Folders and data that are not what they should be: one sentence, exit code 1, and nothing
// written.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

class BadInput : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "model");
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(fs::path(SOURCE_DIR) / "tests/huggingface/llama" / file,
                    folder_ / "model" / file);
    }
    write("model/tokenizer.json", R"({"kind": "char", "vocab": ["\n", " ", "a", "b", "c"]})");
    std::string text;
    for (int i = 0; i < 200; ++i) text += "abc ";
    write("text.txt", text);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, std::string_view text) const {
    write_file_atomically(folder_ / name, text);
    return at(name);
  }
  // Puts one text for another of the same length, so that a file's sizes stay right.
  void patch(const std::string& file, const std::string& from, const std::string& to) const {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = read_file(folder_ / file);
    const size_t place = bytes.find(from);
    ASSERT_NE(place, bytes.npos) << from;
    write_file_atomically(folder_ / file, bytes.replace(place, from.size(), to));
  }
  std::string train(const std::string& data, const std::string& more = "") const {
    return "train --model " + at("model") + " --data " + data +
           " --steps 1 --batch 2 --seq 4 --eval-batches 1 --out " + at("out") + " " + more;
  }
  void refused(const std::string& arguments, const std::string& sentence) const {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 1) << o.text;
    EXPECT_EQ(o.text, "adjoint: " + sentence + "\n");
    EXPECT_FALSE(fs::exists(folder_ / "out")) << "something was written";
  }
  TempFolder folder_;
};

TEST_F(BadInput, TheFolderAsItIsTrains) {
  const Outcome o = run(train(at("text.txt")));
  EXPECT_EQ(o.code, 0) << o.text;
}

TEST_F(BadInput, UnknownArchitectureNamesFieldsAndFamilies) {
  patch("model/config.json", "LlamaForCausalLM", "LamaaForCausalLM");
  for (const std::string& command :
       {train(at("text.txt")), "eval --model " + at("model") + " --data " + at("text.txt"),
        "generate --model " + at("model") + " --prompt a",
        "convert " + at("model") + " " + at("out")}) {
    const Outcome o = run(command);
    EXPECT_EQ(o.code, 1) << o.text;
    EXPECT_TRUE(o.text.starts_with("adjoint: " + at("model/config.json") +
                                   ": no family knows architectures [\"LamaaForCausalLM\"], "
                                   "model_type \"llama\"; there are "))
        << o.text;
    EXPECT_NE(o.text.find("GPT2LMHeadModel (models/gpt2.scheme)"), std::string::npos) << o.text;
    EXPECT_NE(o.text.find("did you mean 'LlamaForCausalLM'?"), std::string::npos) << o.text;
    EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '\n'), 1) << o.text;
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  }
}

TEST_F(BadInput, MissingTensor) {
  patch("model/model.safetensors", "\"lm_head.weight\"", "\"lm_heat.weight\"");
  refused(train(at("text.txt")), at("model") +
                                     ": there is no tensor 'lm_head.weight', which is "
                                     "'readout.weight' of models/llama.scheme");
}

TEST_F(BadInput, DoubledTensor) {
  patch("model/model.safetensors", "\"model.layers.0.self_attn.k_proj.weight\"",
        "\"model.layers.0.self_attn.v_proj.weight\"");
  const Outcome o = run(train(at("text.txt")));
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_TRUE(o.text.starts_with("adjoint: " + at("model/model.safetensors") +
                                 ": the header is not a JSON object: the name "
                                 "\"model.layers.0.self_attn.v_proj.weight\" comes twice in one "
                                 "object at its byte "))
      << o.text;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// Names of a stranger's file do not reach the terminal as they are.
TEST_F(BadInput, NamesWithControlCharactersAreShownByNumber) {
  write("model/model.safetensors.index.json",
        R"({"weight_map": {"\u001b[31mred": "../model.safetensors"}})");
  refused(train(at("text.txt")), at("model/model.safetensors.index.json") +
                                     ": tensor '\\x1b[31mred' is in \"../model.safetensors\", "
                                     "wanted the name of a file in the same folder");
}

TEST_F(BadInput, OtherShape) {
  patch("model/config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4");
  const Outcome o = run(train(at("text.txt")));
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("tensor 'model.layers.0.self_attn.k_proj.weight' is [8, 16], wanted [16, "
                        "16] by config.json"),
            std::string::npos)
      << o.text;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(BadInput, OtherDtype) {
  patch("model/model.safetensors", "\"BF16\"", "\"U16\" ");
  const Outcome o = run(train(at("text.txt")));
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find(": tensor 'lm_head.weight' is U16, wanted F32, F16 or BF16\n"),
            std::string::npos)
      << o.text;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(BadInput, TokenizerThatDoesNotFitTheVocabulary) {
  const Outcome o = run(train(at("text.txt"), "--tokenizer byte"));
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_NE(o.text.find("vocab=41 is too small: the tokenizer has 256 tokens\n"), std::string::npos)
      << o.text;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(BadInput, BrokenLineIsNamedOrCounted) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"text\": \"abc abc abc\"}\n";
  lines += "{\"text\": \"abc\n{\"text\": 7}\n{\"txt\": \"a\"}\n";
  const std::string data = write("lines.jsonl", lines);
  refused(train(data),
          data + ": line 41: this is not JSON at column 14; --skip-bad leaves such lines out");
  const Outcome o = run(train(data, "--skip-bad"));
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_NE(o.text.find("3 broken lines"), std::string::npos) << o.text;
}

TEST_F(BadInput, EmptySources) {
  refused(train(write("none.txt", "")),
          at("none.txt") + ": this source is empty: it has no tokens");
  refused(train(write("blank.jsonl", "\n \n\n")),
          at("blank.jsonl") + ": this source is empty: it has no tokens");
  fs::create_directories(folder_ / "nothing");
  const Outcome folder = run(train(at("nothing")));
  EXPECT_EQ(folder.code, 1) << folder.text;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// A limit on the size of files stands for a full disk: both end a write in the middle.
TEST_F(BadInput, FullDiskLeavesNoHalfShard) {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += "abc\n";
  write("long.txt", text);
  const std::string cache = at("cache");
  const Outcome full = run(train(at("long.txt"), "--cache " + cache), "ulimit -f 100;");
  EXPECT_EQ(full.code, 3) << full.text;  // the machine's fault, not the user's
  EXPECT_NE(full.text.find(": cannot be written: File too large\n"), std::string::npos)
      << full.text;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  for (const auto& entry : fs::directory_iterator(cache)) {
    EXPECT_EQ(entry.path().filename(), "lock") << "a part of a shard is left";
  }
  const Outcome again = run(train(at("long.txt"), "--cache " + cache));
  EXPECT_EQ(again.code, 0) << again.text;
}

}  // namespace
}  // namespace adjoint

// Commands that are held to a folder: every kind of file that a command reads or writes is refused
// outside it, by its path and by way of links, and nothing is written there.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"
#include "studio/running_studio.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

class Inside : public testing::Test {
 protected:
  Inside() {
    fs::create_directories(folder_ / "in/data");
    fs::create_directories(folder_ / "out/data");
    for (const char* where : {"in", "out"}) {
      put(std::string(where) + "/tiny.scheme", kTiny);
      put(std::string(where) + "/text.txt", small_text());
      put(std::string(where) + "/data/text.txt", small_text());
    }
    fs::copy(fs::path(SOURCE_DIR) / "tests/huggingface/gpt2", folder_ / "out/hf");
    fs::create_symlink("../out", folder_ / "in/link");
    fs::create_symlink("../../out/text.txt", folder_ / "in/data/link.txt");
    put("in/uses.scheme", "use \"../out/tiny.scheme\"\n");
    put("in/uses_link.scheme", "use \"link/tiny.scheme\"\n");
    put("out/own.optimizer", "x\n");
    put("out/own.functor", "x\n");
    put("out/own.schedule", "x\n");
    put("out/own.device", "x\n");
    put("out/own.toml", "steps = 1\n");
    put("out/own.template", "x\n");
    put("out/tokenizer.json", "{}\n");
    put("out/text.txt.gz", "x");
    put("out/tokens.bin", "x");
    put("out/fields.safetensors", "x");
    put("out/profile.json", "{}");
    put("out/prompts.txt", "x");
    put("out/run.json", "{}");
    outside_ = outside();
  }

  void put(const std::string& name, const std::string& text) const {
    write_file_atomically(folder_ / name, text);
  }

  // Everything outside, with its bytes.
  std::vector<std::string> outside() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "")) {
      const std::string name = entry.path().lexically_relative(folder_ / "").string();
      if (name == "in" || name.starts_with("in/")) continue;
      all.push_back(name + (entry.is_regular_file() ? ": " + read_file(entry.path()) : ""));
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  Outcome command(const std::string& words) const {
    const std::string in = (folder_ / "in").string();
    return run("--inside " + in + " " + words, "cd " + in + " && OMP_WAIT_POLICY=passive");
  }

  void refused(const std::string& words, const std::string& why = "outside the folder") const {
    const Outcome o = command(words);
    EXPECT_EQ(o.code, 1) << words << "\n" << o.text;
    EXPECT_NE(o.text.find(why), std::string::npos) << words << "\n" << o.text;
  }

  // The command with PATH replaced by several ways of naming a file outside.
  void refused_everywhere(const std::string& words, const std::string& name) const {
    for (const std::string& path :
         {"../out/" + name, "link/" + name, (folder_ / "out" / name).string()}) {
      std::string said = words;
      said.replace(said.find("PATH"), 4, path);
      refused(said);
    }
  }

  TempFolder folder_;
  std::vector<std::string> outside_;
};

const std::string kTrain =
    "train --model tiny.scheme --tokenizer char --batch 2 --threads 1 --steps 1 --eval-batches 1 ";

TEST_F(Inside, ModelsAndWhatTheyAreMadeOf) {
  EXPECT_EQ(command("plan --model tiny.scheme").code, 0);
  refused_everywhere("plan --model PATH", "tiny.scheme");
  refused_everywhere("plan --model tiny.scheme --stack PATH", "own.functor");
  refused_everywhere("plan --model tiny.scheme --optimizer PATH", "own.optimizer");
  refused_everywhere("plan --model tiny.scheme --device PATH", "own.device");
  refused_everywhere(
      "plan --model tiny.scheme --set layers=4 --stack 'pipeline(2, schedule=\"PATH\", parts=2)'",
      "own.schedule");
  // What is outside is as if it were not there.
  refused("plan --model uses.scheme", "there is no file");
  refused("plan --model uses_link.scheme", "there is no file");
  for (const char* model : {"../out/hf", "link/hf"}) {
    refused(std::string("plan --model ") + model, "there is no model");
  }
  refused_everywhere("eval --data text.txt --model PATH", "hf");
  refused_everywhere("generate --prompt a --tokens 1 --model PATH", "hf");
  refused("plan --model tiny.scheme --fit 1GB --profile ../out", "is no folder of");
  EXPECT_EQ(outside(), outside_);
}

TEST_F(Inside, EditsDiagramsAndBenches) {
  const auto request = [&](const std::string& file) {
    put("in/request.json",
        nlohmann::json{{"file", file},
                       {"edit", {{"kind", "set"}, {"axis", "hidden"}, {"to", "32"}}}}
            .dump());
    return std::string("edit --request request.json ");
  };
  const Outcome edited = command(request("tiny.scheme") + "--write");
  EXPECT_EQ(edited.code, 0) << edited.text;
  EXPECT_NE(read_file(folder_ / "in/tiny.scheme").find("hidden=32"), std::string::npos);
  put("in/tiny.scheme", kTiny);
  for (const std::string& file :
       {std::string("../out/tiny.scheme"), std::string("link/tiny.scheme"),
        (folder_ / "out/tiny.scheme").string()}) {
    refused(request(file));
    refused(request(file) + "--write");
    put("in/request.json", nlohmann::json{{"file", file}, {"text", kTiny}}.dump());
    refused("edit --write --request request.json");
  }
  refused_everywhere("edit --request PATH", "run.json");
  // A link is written through, and stays one.
  fs::create_symlink("tiny.scheme", folder_ / "in/again.scheme");
  EXPECT_EQ(command(request("again.scheme") + "--write").code, 0);
  EXPECT_TRUE(fs::is_symlink(folder_ / "in/again.scheme"));
  EXPECT_NE(read_file(folder_ / "in/tiny.scheme").find("hidden=32"), std::string::npos);
  fs::permissions(folder_ / "in/tiny.scheme", fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(command(request("tiny.scheme") + "--write").code, 0);
  EXPECT_EQ(fs::status(folder_ / "in/tiny.scheme").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  put("in/tiny.scheme", kTiny);
  EXPECT_EQ(command("show --model tiny.scheme --viete drawn.json").code, 0);
  EXPECT_EQ(command("plan --model drawn.json").code, 0);
  fs::copy(folder_ / "in/drawn.json", folder_ / "out/drawn.json");
  outside_ = outside();
  refused_everywhere("show --model tiny.scheme --viete PATH", "new.json");
  refused_everywhere("show --model tiny.scheme --viete PATH", "drawn.json");
  refused_everywhere("plan --model PATH", "drawn.json");
  refused_everywhere("show --model PATH", "drawn.json");
  refused_everywhere("bench step --model PATH --steps 1", "tiny.scheme");
  refused_everywhere("bench step --model tiny.scheme --steps 1 --optimizer PATH", "own.optimizer");
  refused_everywhere("bench ops --model tiny.scheme --stack PATH", "own.functor");
  refused_everywhere("bench tokens --model PATH", "drawn.json");
  refused_everywhere("bench sweep --model PATH --batches 1", "tiny.scheme");
  EXPECT_EQ(outside(), outside_);
}

TEST_F(Inside, Data) {
  refused_everywhere(kTrain + "--out run --data PATH", "text.txt");
  refused_everywhere(kTrain + "--out run --data PATH", "data");
  refused_everywhere(kTrain + "--out run --data 'PATH/*.txt'", "data");
  refused_everywhere(kTrain + "--out run --data PATH", "text.txt.gz");
  refused_everywhere(kTrain + "--out run --data PATH", "tokens.bin");
  refused_everywhere(kTrain + "--out run --data PATH", "fields.safetensors");
  refused(kTrain + "--out run --data data");        // has a link that leaves
  refused(kTrain + "--out run --data '**/*.txt'");  // meets it
  refused(kTrain + "--out run --data data/link.txt");
  refused_everywhere(kTrain + "--out run --data text.txt --config PATH", "own.toml");
  refused_everywhere(kTrain + "--out run --data text.txt --template PATH", "own.template");
  refused_everywhere("tokenizer info --tokenizer PATH", "tokenizer.json");
  refused_everywhere("tokenizer info --tokenizer PATH", "hf");
  refused_everywhere("tokenizer train --out t.json --data PATH", "text.txt");
  const std::string train =
      "train --model tiny.scheme --batch 2 --steps 1 --data text.txt --out run ";
  refused(train + "--tokenizer ../out/tokenizer.json", "there is no tokenizer");
  refused(train + "--init ../out", "there is no run");
  refused("train --repeat ../out --out run", "there is no run");
  refused("train --resume --out ../out", "there is no run");
  EXPECT_FALSE(fs::exists(folder_ / "in/run"));
  EXPECT_EQ(outside(), outside_);
}

TEST_F(Inside, Outputs) {
  const Outcome trained = command(kTrain + "--data text.txt --out run --cache tokens");
  ASSERT_EQ(trained.code, 0) << trained.text;
  refused_everywhere(kTrain + "--data text.txt --out PATH", "new");
  refused_everywhere(kTrain + "--data text.txt --overwrite --out PATH", "hf");
  refused_everywhere(kTrain + "--data text.txt --out run2 --cache PATH", "new");
  fs::create_directory(folder_ / "in/linked");
  fs::create_symlink(folder_ / "out/new", folder_ / "in/linked/lock");
  refused(kTrain + "--data text.txt --out run2 --cache linked", "outside the folder");
  refused_everywhere("plan --model tiny.scheme --chart PATH", "new.svg");
  refused_everywhere("plan --model tiny.scheme --trace PATH", "new.json");
  refused_everywhere("plan --model tiny.scheme --pareto --pareto-chart PATH", "new.svg");
  refused_everywhere("profile --model tiny.scheme --steps 1 --out PATH", "new");
  const Outcome adapted =
      command(kTrain + "--data text.txt --out lora --set layers=2 --stack 'lora(rank=2)'");
  ASSERT_EQ(adapted.code, 0) << adapted.text;
  refused_everywhere("merge --run lora --out PATH", "new");
  refused_everywhere("quantize --run run --per channel --out PATH", "new");
  refused_everywhere("tokenizer train --data text.txt --vocab 300 --out PATH", "new.json");
  refused("convert ../out/hf new", "there is neither a run here");
  refused("convert link/hf new", "there is neither a run here");
  refused_everywhere("merge --run PATH --out new", "hf");
  refused_everywhere("quantize --run PATH --out new", "hf");
  EXPECT_EQ(outside(), outside_);
}

TEST_F(Inside, DraftsAndStandardInput) {
  const std::string in = (folder_ / "in").string();
  const auto with = [&](const std::string& input, const std::string& words) {
    put("input.json", input);
    return run("--inside " + in + " --read-only --drafts " + words + " < " +
                   (folder_ / "input.json").string(),
               "cd " + in + " &&");
  };
  const nlohmann::json model = {{"drafts", {{"new.scheme", kTiny}}}};
  EXPECT_EQ(with(model.dump(), "plan --model new.scheme").code, 0);
  EXPECT_EQ(with(model.dump(), "plan --model other.scheme").code, 1);
  ASSERT_EQ(command("tokenizer train --data text.txt --vocab 260 --out made.json").code, 0);
  const std::string learned = read_file(folder_ / "in/made.json");
  fs::remove(folder_ / "in/made.json");
  const nlohmann::json tokenizer = {{"drafts", {{"t.json", learned}}}, {"stdin", "abc"}};
  const Outcome encoded = with(tokenizer.dump(), "tokenizer encode --tokenizer t.json");
  EXPECT_EQ(encoded.code, 0) << encoded.text;
  EXPECT_NE(encoded.text.find_first_of("0123456789"), std::string::npos) << encoded.text;
  for (const char* broken : {"", "{", "[]", "{\"drafts\": 1}", "{\"drafts\": {\"a\": 1}}",
                             "{\"drafts\": {\"../a\": \"x\"}}"}) {
    const Outcome o = with(broken, "ops");
    EXPECT_EQ(o.code, 1) << broken << o.text;
    EXPECT_EQ(std::count(o.text.begin(), o.text.end(), '\n'), 1) << o.text;
  }
}

}  // namespace
}  // namespace adjoint

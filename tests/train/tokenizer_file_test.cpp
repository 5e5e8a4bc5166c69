// A run whose tokenizer is a file: it keeps the tokenizer, and needs the file no more.
#include <gtest/gtest.h>

#include <cmath>

#include "data/bpe_train.h"
#include "device/parallel.h"
#include "train/convert.h"
#include "train/generate.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class TokenizerFile : public TrainFolder {
 protected:
  void SetUp() override {
    TrainFolder::SetUp();
    write("tokenizer.json", 300);
  }
  void write(const std::string& name, int64_t vocab) const {
    const std::string text = read_file(options("any")["data"].get<std::string>());
    const ByteLevelFile file = train_bpe(std::vector<std::string_view>{text}, {.vocab = vocab});
    write_file_atomically(folder_ / name, byte_level_json(file));
  }
  json with_file(const std::string& out_name, const std::string& name = "tokenizer.json") const {
    json flags = options(out_name);
    flags["tokenizer"] = (folder_ / name).string();
    return flags;
  }
};

TEST_F(TokenizerFile, TheRunKeepsItsTokenizer) {
  EXPECT_TRUE(std::isfinite(train(with_file("run")).val_loss.value()));
  fs::remove(folder_ / "tokenizer.json");
  Generator generator(out("run"), {.threads = num_threads()});
  EXPECT_NE(generator.generate("the cat", {.tokens = 8, .temperature = 0}, nullptr), "");
  // A folder for others has it, too, and generates the same.
  convert(out("run"), folder_ / "hub", {});
  Generator converted(folder_ / "hub", {.threads = num_threads()});
  EXPECT_EQ(converted.generate("the cat", {.tokens = 8, .temperature = 0}, nullptr),
            generator.generate("the cat", {.tokens = 8, .temperature = 0}, nullptr));
  // It goes on without the file, but not with another one.
  EXPECT_TRUE(std::isfinite(train(resume("run", {{"steps", 8}})).val_loss.value()));
  write("other.json", 290);
  const std::string other = (folder_ / "other.json").string();
  const std::string error = error_of(resume("run", {{"steps", 9}, {"tokenizer", other}}));
  EXPECT_NE(error.find("this run has the tokenizer 'bpe', not '"), std::string::npos) << error;
}

// So does a run that began with a folder and took the tokenizer from there, or a file of ours.
TEST_F(TokenizerFile, ARunOfAFolderGoesOnWithTheFoldersTokenizer) {
  train(with_file("run"));
  convert(out("run"), folder_ / "hub", {});
  json flags = options("tuned");
  flags["model"] = (folder_ / "hub").string();
  flags.erase("set");
  flags.erase("context");
  flags["seq"] = 8;
  train(flags);
  EXPECT_EQ(error_of(resume("tuned", {{"steps", 8}})), "no error");
  const std::string learned = (out("chars") / "tokenizer.json").string();
  train(options("chars"));
  json of_file = options("of_file");
  of_file["tokenizer"] = learned;
  train(of_file);
  EXPECT_EQ(error_of(resume("of_file", {{"steps", 8}})), "no error");
}

TEST_F(TokenizerFile, RefusesOneThatDoesNotFit) {
  json flags = with_file("small");
  flags["set"]["vocab"] = 299;
  EXPECT_NE(error_of(flags).find("vocab=299 is too small: the tokenizer has 300 tokens"),
            std::string::npos)
      << error_of(flags);
  flags = options("none");
  flags["tokenizer"] = "bite";
  EXPECT_EQ(
      error_of(flags),
      "there is no tokenizer 'bite': wanted byte, char, word or the path of a file or folder; "
      "did you mean 'byte'?");
  write_file_atomically(folder_ / "broken.json", "{\"model\": {\"type\": \"WordPiece\"}}");
  EXPECT_NE(error_of(with_file("broken", "broken.json"))
                .find("broken.json: the model WordPiece is not supported, only BPE"),
            std::string::npos);
}

}  // namespace
}  // namespace adjoint

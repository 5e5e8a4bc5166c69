#include "base/text.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace adjoint {
namespace {

const std::vector<std::string> kNames = {"byte", "char", "word"};

TEST(Text, Join) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
}

TEST(Text, NearestIsTheSmallestEditDistance) {
  EXPECT_EQ(nearest("bite", kNames), "byte");
  EXPECT_EQ(nearest("words", kNames), "word");
  EXPECT_EQ(nearest("chr", kNames), "char");
  EXPECT_EQ(nearest("char", kNames), "char");
  EXPECT_EQ(nearest("geul", {"ceil", "gelu", "relu"}), "gelu") << "two letters changed places";
  EXPECT_EQ(nearest("sclae", {"slice", "scale"}), "scale");
}

TEST(Text, NearestRefusesWhatIsFar) {
  EXPECT_EQ(nearest("sentencepiece", kNames), "");
  EXPECT_EQ(nearest("byte", {}), "");
}

TEST(Text, NearestKnowsWhatPeopleWrite) {
  const std::vector<std::string> models = {"gpt2", "gpt2-xl", "gpt3-175b", "llama3.2-1b",
                                           "llama3-8b"};
  EXPECT_EQ(nearest("gpt3", models), "gpt3-175b") << "the beginning of a name";
  EXPECT_EQ(nearest("GPT2", models), "gpt2") << "capitals are letters";
  EXPECT_EQ(nearest("lama3", models), "llama3-8b") << "a mistyped beginning";
  EXPECT_EQ(nearest("bert-base", models), "");
  const std::vector<std::string> flags = {"--lr", "--batch", "--steps", "--stop-after", "--seq"};
  EXPECT_EQ(nearest("--batch-size", flags), "--batch");
  EXPECT_EQ(nearest("--max-steps", flags), "--steps");
  EXPECT_EQ(nearest("--learning-rate", flags), "--lr") << "its initials";
  EXPECT_EQ(nearest("--stop_after", flags), "--stop-after");
  EXPECT_EQ(nearest("--something-else", flags), "");
  EXPECT_EQ(nearest("kk", {"L", "k"}), "k");
  EXPECT_EQ(nearest("pan", {"man", "plan"}), "plan") << "a letter was left out";
  EXPECT_EQ(nearest("--out", {"--set", "--optimizer"}), "") << "dashes are no letters";
  EXPECT_EQ(nearest("r", {"rank", "alpha"}), "rank") << "the one that begins so";
  EXPECT_EQ(nearest("r", {"rank", "rate"}), "");
  EXPECT_EQ(nearest("xy", {"ab"}), "") << "not a letter is left";
  EXPECT_EQ(nearest("fit", {"div"}), "") << "one of three letters is left";
  EXPECT_EQ(nearest("4090", {"h100", "rtx4090"}), "rtx4090");
}

TEST(Text, DidYouMean) {
  EXPECT_EQ(did_you_mean("bite", kNames), "; did you mean 'byte'?");
  EXPECT_EQ(did_you_mean("sentencepiece", kNames), "");
  EXPECT_EQ(did_you_mean("wte", {"wte", "wpe"}), "; did you mean 'wpe'?")
      << "never the word itself";
}

TEST(Text, ShortestReadsBackAsTheSameDouble) {
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(3), "3");
  EXPECT_EQ(shortest(-0.5), "-0.5");
  for (const double number : {0.1 + 0.2, 1.0 / 3, 6e-4, 1e-300, 5e-324, 1.7976931348623157e308}) {
    EXPECT_EQ(std::strtod(shortest(number).c_str(), nullptr), number) << shortest(number);
  }
}

TEST(ParseBytes, ReadsSizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("24GB")->count, 24'000'000'000);
  EXPECT_EQ(parse_bytes("1.5 GiB")->count, 3LL << 29);
  EXPECT_EQ(parse_bytes("512MiB")->count, 512LL << 20);
  EXPECT_EQ(parse_bytes("10kB")->count, 10'000);
  EXPECT_EQ(parse_bytes("1000")->count, 1000);
  EXPECT_EQ(parse_bytes("7B")->count, 7);
  EXPECT_EQ(parse_bytes("0")->count, 0);
  for (const char* no :
       {"", "GB", "-3GB", "3GBs", "1e30GB", "nan", "inf", "three", "3 G B", "0x10"}) {
    EXPECT_FALSE(parse_bytes(no)) << no;
  }
}

}  // namespace
}  // namespace adjoint

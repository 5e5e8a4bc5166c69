#include "data/corpus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

std::vector<int32_t> count_to(size_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(Corpus, TheFirstPartTrainsAndTheRestValidates) {
  const Corpus corpus = split_corpus(count_to(10), 0.25);  // 7.5 rounds down
  EXPECT_EQ(corpus.train, std::vector<int32_t>({0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(corpus.validation, std::vector<int32_t>({7, 8, 9}));
}

TEST(Corpus, SplitsTinyShakespeareAsNanoGptDoes) {
  // The sizes that nanoGPT's data/shakespeare_char/prepare.py states.
  const Corpus corpus = split_corpus(count_to(1'115'394), 0.1);
  EXPECT_EQ(corpus.train.size(), 1'003'854u);
  EXPECT_EQ(corpus.validation.size(), 111'540u);
}

TEST(Corpus, NothingIsLostAtAnyFraction) {
  for (const size_t size : {0, 1, 2, 7, 100}) {
    for (const double fraction : {0.0, 0.1, 1.0 / 3, 0.5, 0.999}) {
      const Corpus corpus = split_corpus(count_to(size), fraction);
      std::vector<int32_t> all = corpus.train;
      all.insert(all.end(), corpus.validation.begin(), corpus.validation.end());
      EXPECT_EQ(all, count_to(size));
      EXPECT_TRUE(fraction > 0 || corpus.validation.empty());
    }
  }
}

TEST(Corpus, RefusesAFractionThatLeavesNothingToTrain) {
  for (const double fraction : {-0.1, 1.0, 1.5, std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(has(error_text([&] { split_corpus(count_to(10), fraction); }), "fraction"));
  }
}

TEST(LoadText, GivesTheFile) {
  const TempFolder folder;
  write_file_atomically(folder / "x.txt", "some text\n");
  EXPECT_EQ(load_text(folder / "x.txt"), "some text\n");
}

TEST(LoadText, NamesAFileThatIsMissingEmptyOrAFolder) {
  const TempFolder folder;
  write_file_atomically(folder / "empty.txt", "");
  std::filesystem::create_directory(folder / "texts");
  for (const char* name : {"missing.txt", "empty.txt", "texts"}) {
    const std::string error = error_text([&] { load_text(folder / name); });
    EXPECT_TRUE(has(error, (folder / name).string())) << error;
  }
}

}  // namespace
}  // namespace adjoint
